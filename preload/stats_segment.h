// The writer of a process's stats file, whose content stats_layout.h describes.
//
// Best effort throughout: if the file cannot be made or cannot grow, sockets work and sdpstat shows less. A
// publish makes no system call, takes no lock and allocates nothing. Only Open, AcquireSlot (when the file
// grows), ForkChild, Remove and the first traced message make system calls. They use SystemCalls, because
// inside a preloaded process the plain names are interposed.
//
// The directory is SDP_STATS_DIR if set (made with mode 0700 if missing). Otherwise root has /run/sdp-stats
// (0755; only root can write there). Other users have $XDG_RUNTIME_DIR/sdp if that variable is set. The last
// choice for all is /tmp/sdp-UID (0700). The directory must belong to the user or to root, no other user may
// write to it, and it must not be a symbolic link. A file in it has mode 0600. A process that has given up
// root, such as a server's worker, uses its own user's default directory.
//
// Threads: any thread may call AcquireSlot, ReleaseSlot and RecordFallback, and may add to the totals. The
// caller serialises Publish on one slot, with the connection's lock.
#ifndef SDP_PRELOAD_STATS_SEGMENT_H_
#define SDP_PRELOAD_STATS_SEGMENT_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "preload/stats_calls.h"
#include "preload/stats_layout.h"
#include "preload/stats_trace.h"

namespace sdp::stats {

// In nanoseconds. The vDSO answers without a system call.
inline uint64_t Clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t WallClock() { return Clock(CLOCK_REALTIME); }

class StatsSegment {
 public:
  // Makes this process's file, and sweeps files of dead processes from the directory. `directory`: empty for
  // the default. Returns null on failure, with one line in *error for the caller's log.
  static std::unique_ptr<StatsSegment> Open(const std::string& directory, const SystemCalls& calls,
                                            std::string* error);
  // Removes the file, if this process made it, and unmaps it. No slot may be used any more.
  ~StatsSegment();
  StatsSegment(const StatsSegment&) = delete;
  StatsSegment& operator=(const StatsSegment&) = delete;

  // Returns a slot for a connection or listener, filled with `record`, or null if no slot is left. Every
  // function below accepts null, and then publishes nothing.
  Slot* AcquireSlot(const ConnectionRecord& record);
  // Publishes the whole record, or only its counters, which change with the data (about 40 stores).
  static void Publish(Slot* slot, const ConnectionRecord& record);
  // Inline, so that a caller that makes the counters stores them where they go.
  static void Publish(Slot* slot, const Counters& counters) {
    if (slot == nullptr) return;
    const uint64_t writing = BeginWriting(slot);
    StoreEach(slot, counters, std::make_index_sequence<kCounterWords>());
    slot->sequence.store(writing + 1, std::memory_order_release);
  }
  // Returns what was last published, for the slot's writer.
  static ConnectionRecord LastPublished(const Slot* slot);
  // Adds the slot's counters to the totals and frees the slot; publish the final record first. A connection
  // counts if it was ever established, and as aborted if it has a reason.
  void ReleaseSlot(Slot* slot);

  // A socket that could have been SDP became TCP, or a listener is TCP only. Counts it under record.fallback
  // and keeps the record among the last kFallbackSlots. Fills in kind, state (unless it is kFailed), reason
  // and opened_at_ns (if 0).
  void RecordFallback(const ConnectionRecord& record);
  // Counts without a record, for fall-backs that would flood the ring (plain clients of a listener).
  void CountFallback(FallbackReason reason);

  // Until when a reader wants this process's messages traced (CLOCK_MONOTONIC, ns); 0: no reader does. The
  // address never changes.
  [[nodiscard]] const std::atomic<uint64_t>* trace_until() const { return &header()->trace_until; }
  // Appends to the trace file, which is made if necessary. Any thread may call this, also in a signal
  // handler.
  void Trace(const MessageNote& note, uint32_t connection);

  // Call around fork, as with pthread_atfork. PrepareFork takes the lock; ForkParent and ForkChild release
  // it.
  void PrepareFork() { mutex_.lock(); }
  void ForkParent() { mutex_.unlock(); }
  // Call in the child after fork. Listeners keep their slots, which are the child's own from now on. Slots of
  // connections become free, since the child gets another when it uses the connection. So do slots of kernel
  // RNICs' listeners, which stay the parent's. Makes the child's own file at once if any slot is in use, else
  // with the first slot or fall-back. Totals start from zero. A child without memory for that has no
  // statistics: AcquireSlot returns nullptr. What its listeners publish goes to the parent's rows.
  void ForkChild();
  // Removes the file now, for exit handlers and _exit. Slots stay writable, but no reader sees them.
  void Remove();

  [[nodiscard]] const std::string& path() const { return path_; }  // empty: no file at present

 private:
  // Returns the odd sequence of a slot that is being written. A sequence left odd, by a copy of the slot to a
  // new file during a publish, is repaired by the next publish.
  static uint64_t BeginWriting(Slot* slot) {
    const uint64_t writing = (slot->sequence.load(std::memory_order_relaxed) + 1) | 1;
    slot->sequence.store(writing, std::memory_order_relaxed);
    return writing;
  }
  // Release: a reader that sees this word also sees the odd sequence.
  static void StoreWord(Slot* slot, const void* words, size_t i) {
    uint64_t word;
    std::memcpy(&word, static_cast<const char*>(words) + i * sizeof word, sizeof word);
    slot->words[i].store(word, std::memory_order_release);
  }
  template <size_t... I>
  static void StoreEach(Slot* slot, const Counters& counters, std::index_sequence<I...> /*words*/) {
    (StoreWord(slot, &counters, I), ...);
  }
  explicit StatsSegment(const SystemCalls& calls) : calls_(calls), ring_(calls) {}
  // Tries the wanted directory. Then, or if there is none, tries the effective user's default directories.
  bool CreateSomewhere(std::string* error);
  // Writes all chunks to a new file and maps the file in their place.
  bool CreateIn(const std::string& directory, std::string* error);
  bool MapChunks(int fd, std::string* error);
  // Adds a chunk, of the file or (detached) of plain memory.
  bool Grow();
  std::byte* MapNewChunk();
  void AddSlots(std::byte* chunk);
  void InitializeHeader();
  bool AttachIfDetached();
  void RemoveFile();
  Header* header() const { return header_; }
  Slot* SlotAt(size_t index) const;

  const SystemCalls& calls_;
  std::mutex mutex_;
  std::string wanted_directory_;
  uid_t wanted_by_ = 0;  // the effective user when the directory was named
  std::string path_;
  pid_t owner_ = 0;                 // the process the file belongs to
  bool attach_failed_ = false;      // do not try again with every slot
  bool parents_ = false;            // the memory is the parent's: a child found none for its own
  std::vector<std::byte*> chunks_;  // kChunkSize each; the first starts with the header
  Header* header_ = nullptr;
  TraceRing ring_;
  std::vector<Slot*> free_;  // has capacity for every slot, so that freeing one does not allocate
  size_t slots_ = 0;
  size_t in_use_ = 0;
  uint32_t next_fallback_ = 0;
};

// Converts a sockaddr_in or sockaddr_in6; IPv4-mapped IPv6 stays IPv6. Anything else gives family 0.
Address ToAddress(const sockaddr* address);
// Copies as much of `text` as fits, and ends it with a NUL.
template <size_t N>
void SetText(char (&field)[N], const char* text) {
  size_t i = 0;
  for (; i + 1 < N && text[i] != '\0'; ++i) field[i] = text[i];
  for (; i < N; ++i) field[i] = '\0';
}

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_SEGMENT_H_
