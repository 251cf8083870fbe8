// Memory of the application's that a blocking call lends to its connection for Zcopy: registered with the
// RNIC, offered to the engine, and given back with an exact count.
//
// States: free -> Lend -> lent -> (the engine has a result) Collect -> back -> TakeResult -> free. Whoever
// makes progress on the socket collects; the call that lent takes the result, and must not return before. A
// call that cannot wait for the peer any longer leaves a copy: lent -> Keep -> kept -> Collect -> free, and
// what it counts is known at once; so does another thread in its place, that of a fork. Guarded by the
// socket's lock.
#ifndef SDP_PRELOAD_SOCKET_LOAN_H_
#define SDP_PRELOAD_SOCKET_LOAN_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/types.h"
#include "preload/socket/session.h"

namespace sdp::preload {

class Loan {
 public:
  enum class Kind : uint8_t { kSource, kSink };
  explicit Loan(Kind kind) : kind_(kind) {}

  // Nobody else's memory is lent, or its result not yet taken.
  [[nodiscard]] bool free() const { return state_ == State::kFree && bytes_ == 0; }
  [[nodiscard]] bool lent() const { return state_ == State::kLent; }
  // The engine has an offer, of the application's memory or of the copy.
  [[nodiscard]] bool offered() const { return state_ == State::kLent || state_ == State::kKept; }

  // Registers and offers `memory` (a source is only read). False: not now, nothing has changed. `advertise`:
  // see engine::SinkBuffer.
  bool Lend(Session& session, MutableBytes memory, bool advertise);
  // Asks for it back; the result follows.
  void Revoke(Session& session);
  // The peer may take its time: the connection goes on with a copy, and lent() no longer holds. All of a
  // source counts as sent; what comes for a sink from now on is for Engine::Receive. False: there is no
  // memory for it, the RNIC cannot do that, a source was revoked before, or Revoke() does at once.
  bool Keep(Session& session);
  // The connection is to be common to several processes: a source is kept, if it can be, and the copy asked
  // back, so that what the peer does not take follows without it; a sink is asked back. The result follows.
  void Withdraw(Session& session);
  // After progress: true if the memory has come back by it. The STag is invalid from here on.
  bool Collect(Session& session);
  // The connection is gone, and with it whatever knew of the memory.
  void Drop();
  // In the child of a fork: the loan is the parent's. `call_goes_on`: the call that lent does in the child,
  // too.
  void Forget(bool call_goes_on);
  // Once, when lent() no longer holds: the bytes moved; of a source that is kept, all; of a sink that is,
  // those that are the call's.
  uint64_t TakeResult();

 private:
  enum class State : uint8_t { kFree, kLent, kKept, kBack };

  const Kind kind_;
  State state_ = State::kFree;
  bool revoked_ = false;
  STag stag_{};
  Bytes memory_{};
  std::unique_ptr<std::byte[]> copy_;  // kKept
  uint64_t bytes_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LOAN_H_
