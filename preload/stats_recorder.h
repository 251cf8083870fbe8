// What a connection notes down about its messages: the last kRecentMessages always, in its slot of the stats
// file, where sdpstat sees them and the log gets them from when the connection aborts; all of them while
// somebody traces the process. A message costs a note in memory: its headers and the time of the kernel's
// last tick, decoded when somebody reads it. That somebody could trace costs, where nobody does, one branch
// that is never taken.
//
// Belongs to a connection, whose lock serialises all calls.
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

// What moved a connection's data, by mechanism: Counters::transfers_in and _out say what is counted.
struct TransferCounts {
  uint64_t in[kMechanisms] = {};
  uint64_t out[kMechanisms] = {};
  uint64_t mode_changes = 0;
};

class MessageRecorder {
 public:
  // The connection has a slot of `segment` from here on, and the number `connection`. What was noted before
  // comes with it. `record`: what the slot holds.
  void Attach(StatsSegment* segment, Slot* slot, const ConnectionRecord& record);
  // The connection ends, or loses its slot; nothing is noted from here on.
  void Detach();
  // In the child of a fork: the slot is the parent's.
  void ForgetAfterFork();

  // Hello and HelloAck that travelled as private data.
  void NotePrivateData(NoteDirection direction, Bytes data);
  // A message: its pieces in order, of which only the headers are looked at.
  void NoteReceived(std::span<const Bytes> pieces, uint32_t length, bool solicited,
                    std::optional<STag> invalidated);
  void NoteSent(Bytes header, std::span<const Bytes> payload, bool solicited,
                std::optional<STag> invalidated);
  void NoteRdma(NoteKind kind, uint32_t length, const RdmaNote& work);
  void NoteReadDone();

  [[nodiscard]] const TransferCounts& transfers() const { return transfers_; }
  // Another process that shares the connection went on counting.
  void SetTransfers(const TransferCounts& transfers) { transfers_ = transfers; }
  // The last messages, oldest first.
  [[nodiscard]] std::vector<MessageNote> Recent() const;

 private:
  void Count(const MessageNote& note);
  // Most messages: Data, with nothing else to tell. False if it is none, or somebody traces; nothing is done
  // then.
  bool NoteData(NoteDirection direction, Bytes first_piece, uint32_t length, bool solicited,
                bool invalidates);
  // The others.
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
  bool over_ = false;
  TransferCounts transfers_;
  std::unique_ptr<std::vector<MessageNote>> early_;  // before there is a slot
};

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_RECORDER_H_
