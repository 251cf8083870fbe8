// Memory of the application's that a blocking call lends to its connection for Zcopy. The loan registers it
// with the RNIC, offers it to the engine, and returns it with an exact count.
//
// States: free -> Lend -> lent -> (the engine has a result) Collect -> back -> TakeResult -> free. Any thread
// that makes progress on the socket collects. The call that lent takes the result, and must not return
// before. A call that can no longer wait for the peer leaves a copy: lent -> Keep -> kept -> Collect -> free.
// Then its count is known at once. A thread that forks may leave the copy for the call. Guarded by the
// socket's lock.
#ifndef SDP_PRELOAD_SOCKET_LOAN_H_
#define SDP_PRELOAD_SOCKET_LOAN_H_

#include <cstdint>
#include <memory>

#include "core/base/types.h"
#include "preload/socket/session.h"

namespace sdp::preload {

class Loan {
 public:
  enum class Kind : uint8_t { kSource, kSink };
  explicit Loan(Kind kind) : kind_(kind) {}

  // Returns true if no memory is lent, and no result is left to be taken.
  [[nodiscard]] bool free() const { return state_ == State::kFree && bytes_ == 0; }
  [[nodiscard]] bool lent() const { return state_ == State::kLent; }
  // Returns true if the engine has an offer, of the application's memory or of the copy.
  [[nodiscard]] bool offered() const { return state_ == State::kLent || state_ == State::kKept; }

  // Registers and offers `memory` (a source is only read). Returns false if that is not possible now; then
  // nothing has changed. `advertise`: see engine::SinkBuffer.
  bool Lend(Session& session, MutableBytes memory, bool advertise);
  // Asks for the memory back; the result follows.
  void Revoke(Session& session);
  // The peer may take its time: the connection continues with a copy, and lent() no longer holds. All of a
  // source counts as sent. Data for a sink is for Engine::Receive from now on. Returns false if there is no
  // memory for the copy, the RNIC cannot do that, a source was revoked before, or Revoke() succeeds at once.
  bool Keep(Session& session);
  // Several processes will share the connection. Keeps a source, if possible, and asks the copy back: what
  // the peer has not taken is then sent without the loan. Asks a sink back. The result follows.
  void Withdraw(Session& session);
  // After progress: returns true if the memory, or the copy, has come back. The STag is invalid from here on.
  bool Collect(Session& session);
  // The connection is gone, and nothing refers to the memory any more.
  void Drop();
  // In the child of a fork: the loan is the parent's. `call_goes_on`: the call that lent continues in the
  // child, too.
  void Forget(bool call_goes_on);
  // Called once, when lent() no longer holds. Returns the bytes moved: for a kept source all; for a kept sink
  // those that belong to the call.
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
