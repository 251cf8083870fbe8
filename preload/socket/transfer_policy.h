// Decides how a send or a receive goes, if neither SDP_FORCE nor a Bcopy threshold does: copied, or by Read
// Zcopy or Write Zcopy. Owns what the traffic has taught: turns of large blocks (turn_taking.h), timings of a
// stream over an adapter (stream_timing.h), and how soon the peer's reader comes. Tells the engine the mode
// and the thresholds; lends no memory, and waits for nothing. A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_TRANSFER_POLICY_H_
#define SDP_PRELOAD_SOCKET_TRANSFER_POLICY_H_

#include <cstddef>
#include <cstdint>

#include "core/engine/engine.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_timing.h"
#include "preload/socket/turn_taking.h"

namespace sdp::preload {

class TransferPolicy {
 public:
  // The connection, as the socket knows it.
  struct Connection {
    bool chosen = false;      // SDP_FORCE says nothing
    bool free = false;        // nor does a Bcopy threshold, for this socket or all
    bool adapter = false;     // over a kernel RNIC
    bool connecting = false;  // this end has connected, the other accepted
    // Returns true if timing chooses the mechanism of traffic in turns.
    [[nodiscard]] bool by_time() const { return free && !adapter; }
  };
  using Clock = Time (*)();

  // The connection begins, continues over another link, or comes back from another process, which may have
  // set the engine otherwise.
  void Reset(engine::Engine& e, const Connection& connection);
  // A send of so many bytes begins. `describe` returns the Connection; most sends need none.
  template <typename Describe>
  void SendBegins(engine::Engine& e, size_t bytes, bool blocking, bool shared, Describe describe, Clock now) {
    if (!e.can_send()) return;
    if (shared) [[unlikely]]
      traffic_ = {};  // other processes send and receive as well, and nothing is lent
    if (traffic_.answered() && traffic_.End(e.sink_threshold())) [[unlikely]]
      BeginTurn(e, describe(), now());
    traffic_.Sent(bytes);
    if (traffic_.way() != applied_) [[unlikely]]
      Apply(e, describe());
    if (blocking && !shared && bytes > kLeastTimed) [[unlikely]]
      TimeStream(e, bytes, describe(), now);
  }
  // SendBegins() for a small send in traffic without large blocks, where it has nothing to decide. Returns
  // false, and does nothing, in other traffic.
  [[nodiscard]] bool SendsSmall(const engine::Engine& e, size_t bytes) {
    return copies() && traffic_.SentSmall(bytes, traffic_.answered() ? e.sink_threshold() : 0);
  }
  // Returns true if sends are copied until a turn ends.
  [[nodiscard]] bool copies() const {
    return traffic_.way() == TurnTaking::Way::kCopy && applied_ == TurnTaking::Way::kCopy;
  }
  void Received(size_t bytes) { traffic_.Received(bytes); }

  // A receive with a large buffer begins, over the embedded RNIC. Returns whether it should lend the buffer
  // before any data has come. Called once a receive.
  [[nodiscard]] bool LendsAhead(engine::Engine& e);

  // --- A writer whose reader may be about to lend memory. AwaitsSink: should it wait? NoteSink: did it come?
  [[nodiscard]] bool AwaitsSink() const { return sinks_missed_ < kMostSinksMissed; }
  void NoteSink(bool came) { sinks_missed_ = came ? 0 : sinks_missed_ + 1; }

  // --- A writer that lends memory
  // Returns true if the next large write is to be copied, because the last loans found no reader.
  [[nodiscard]] bool TakesCopy();
  // A loan is over; `missed`: without a reader.
  void NoteLoan(bool missed);
  // An adapter answers the peer's RDMA Reads unseen. Returns how long a writer waits for them on top of its
  // patience: twice as long as the reads of the last loans took.
  [[nodiscard]] Duration ReadsExpected(size_t bytes) const;
  void NoteReads(Duration taken, size_t bytes);

 private:
  static constexpr uint32_t kMostSinksMissed = 3;
  static constexpr size_t kLeastTimed = 512 * 1024;  // bytes; less is not worth a registration

  void BeginTurn(engine::Engine& e, const Connection& connection, Time now);
  void Apply(engine::Engine& e, const Connection& connection);
  void TimeStream(engine::Engine& e, size_t bytes, const Connection& connection, Clock now);

  TurnTaking traffic_;
  TurnTaking::Way applied_ = TurnTaking::Way::kCopy;  // that the engine was last set to
  StreamTiming stream_timing_;                        // over an adapter
  uint32_t sinks_missed_ = 0;  // large writes in Pipelined Mode that found no lent memory, in a row
  uint32_t copies_wanted_ = 0;
  uint32_t copied_in_a_row_ = 0;
  Duration mebibyte_read_ = std::chrono::milliseconds(20);  // about an adapter's peer's time to read one
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_TRANSFER_POLICY_H_
