// What a connection notes about its messages. The last kRecentMessages are always in its slot of the stats
// file: sdpstat shows them, and the log has them when the connection aborts. While a reader traces the
// process, all messages are noted. A message costs a note in memory, of its headers and the time of the
// kernel's last tick; the reader decodes it. Without a trace, the possibility of one costs a branch that is
// never taken.
//
// A recorder belongs to a connection, whose lock serialises all calls.
#ifndef SDP_PRELOAD_STATS_RECORDER_H_
#define SDP_PRELOAD_STATS_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/types.h"
#include "preload/stats_layout.h"

namespace sdp::stats {

class StatsSegment;

// How a connection's data moved, by mechanism; Counters::transfers_in and _out say what is counted.
struct TransferCounts {
  uint64_t in[kMechanisms] = {};
  uint64_t out[kMechanisms] = {};
  uint64_t mode_changes = 0;
};

class MessageRecorder {
 public:
  // From here on the connection has a slot of `segment` and the number `connection`; `record` is the slot's
  // content. Earlier notes move to the slot.
  void Attach(StatsSegment* segment, Slot* slot, const ConnectionRecord& record);
  // The connection ends or loses its slot. Later messages are not noted.
  void Detach();
  // Call in the child of a fork: the slot is the parent's.
  void ForgetAfterFork();

  // Notes a Hello or HelloAck that travelled as private data.
  void NotePrivateData(NoteDirection direction, Bytes data);
  // Notes a message. `pieces` are in order; only the headers are read.
  void NoteReceived(std::span<const Bytes> pieces, uint32_t length, bool solicited,
                    std::optional<STag> invalidated);
  void NoteSent(Bytes header, std::span<const Bytes> payload, bool solicited,
                std::optional<STag> invalidated);
  void NoteRdma(NoteKind kind, uint32_t length, const RdmaNote& work);
  void NoteReadDone();

  // Returns when a Data message was noted last, by CLOCK_REALTIME_COARSE; 0: none was.
  [[nodiscard]] uint64_t noted_at_ns() const { return noted_at_ns_; }
  [[nodiscard]] const TransferCounts& transfers() const { return transfers_; }
  // Another process that shares the connection has counted further.
  void SetTransfers(const TransferCounts& transfers) { transfers_ = transfers; }
  // Returns the last messages, oldest first.
  [[nodiscard]] std::vector<MessageNote> Recent() const;

 private:
  void Count(const MessageNote& note);
  // Handles most messages: Data without an invalidated STag. Returns false, and does nothing, for other
  // messages or while a reader traces.
  bool NoteData(NoteDirection direction, Bytes first_piece, uint32_t length, bool solicited,
                bool invalidates);
  // Handles the other messages.
  void NoteAny(NoteDirection direction, std::span<const Bytes> pieces, uint32_t length, bool solicited,
               std::optional<STag> invalidated);
  void Note(MessageNote& note);
  void Trace(const MessageNote& note) const;
  void TraceNames(NoteKind kind, const ConnectionRecord& record, const Address& local,
                  const Address& peer) const;

  static constexpr size_t kMaxEarly = 8;

  MessageEntry* recent_ = nullptr;
  const std::atomic<uint64_t>* trace_until_ = nullptr;  // set while recent_ is
  StatsSegment* segment_ = nullptr;
  uint32_t connection_ = 0;
  uint32_t count_ = 0;
  uint64_t noted_at_ns_ = 0;
  bool over_ = false;
  TransferCounts transfers_;
  std::unique_ptr<std::vector<MessageNote>> early_;  // notes from before there is a slot
};

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_RECORDER_H_
