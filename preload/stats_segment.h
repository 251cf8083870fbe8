// The writer of a process's stats file (stats_layout.h says what is in it).
//
// Best effort throughout: when the file cannot be made, or cannot grow, sockets work and sdpstat shows less.
// A publish makes no system call, takes no lock and allocates nothing; only Open, AcquireSlot (when the file
// grows), ForkChild, Remove and the first traced message make calls, and those only through SystemCalls,
// because inside a preloaded process the plain names are interposed.
//
// The directory: SDP_STATS_DIR if set (made 0700 if missing); else for root /run/sdp-stats (made 0755; only
// root can write there); else $XDG_RUNTIME_DIR/sdp; else /tmp/sdp-UID (0700). The directory must belong to
// the user (or to root) and be writable by nobody else, is never a symbolic link, and a file in it is 0600. A
// process that gave up root since (a server's worker) falls to its own user's default directory.
//
// Threads: AcquireSlot, ReleaseSlot, RecordFallback and the totals may be called from any thread. Publish on
// one slot has to be serialised by its caller (the connection's lock).
#ifndef SDP_PRELOAD_STATS_SEGMENT_H_
#define SDP_PRELOAD_STATS_SEGMENT_H_

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "preload/stats_calls.h"
#include "preload/stats_layout.h"
#include "preload/stats_trace.h"

namespace sdp::stats {

class StatsSegment {
 public:
  // Makes this process's file, and removes files of dead processes from the directory. `directory`: empty for
  // the default. Null on failure, then *error says why in one line (for the caller's log).
  static std::unique_ptr<StatsSegment> Open(const std::string& directory, const SystemCalls& calls,
                                            std::string* error);
  // Removes the file (if this is the process that made it) and unmaps: no slot may be used any more.
  ~StatsSegment();
  StatsSegment(const StatsSegment&) = delete;
  StatsSegment& operator=(const StatsSegment&) = delete;

  // A slot for a connection or listener, holding `record`; null when no slot can be had (then nothing is
  // published: every function below accepts null).
  Slot* AcquireSlot(const ConnectionRecord& record);
  // Everything of the record, or its counters alone (which is what changes with data: some 40 stores).
  static void Publish(Slot* slot, const ConnectionRecord& record);
  static void Publish(Slot* slot, const Counters& counters);
  // What was last published, for the slot's writer.
  static Counters LastPublished(const Slot* slot);
  // Adds the slot's counters to the totals and frees it: publish the final record first. A connection counts
  // if it was ever established, and as aborted if it has a reason.
  void ReleaseSlot(Slot* slot);

  // A socket that could have been SDP became TCP (or a listener is TCP only): counts it under record.fallback
  // and keeps the record among the last kFallbackSlots. kind, state (unless it is
  // kFailed), reason and opened_at_ns (if 0) are filled in.
  void RecordFallback(const ConnectionRecord& record);
  // Counts without a record, for what would flood the ring (plain clients of a listener).
  void CountFallback(FallbackReason reason);

  // Until when somebody wants the messages of this process traced (CLOCK_MONOTONIC, ns); 0: nobody. Stays
  // where it is.
  [[nodiscard]] const std::atomic<uint64_t>* trace_until() const { return &header()->trace_until; }
  // For the trace file, which is made if need be. Any thread, also in a signal handler.
  void Trace(const MessageNote& note, uint32_t connection);

  // Around fork, as pthread_atfork has it: PrepareFork holds the lock, ForkParent and ForkChild let it go.
  void PrepareFork() { mutex_.lock(); }
  void ForkParent() { mutex_.unlock(); }
  // In the child after fork: listeners keep their slots, which are no longer the parent's; those of
  // connections are free, since a child gets another when it uses one, and those of kernel RNICs' listeners,
  // which stay the parent's. Makes the child's own file at once if any slot is in use, else with the first
  // slot or fall-back. Totals start from zero.
  void ForkChild();
  // Removes the file now; slots stay writable and are seen by nobody. For exit handlers and _exit.
  void Remove();

  [[nodiscard]] const std::string& path() const { return path_; }  // empty: no file at present

 private:
  explicit StatsSegment(const SystemCalls& calls) : calls_(calls), ring_(calls) {}
  // Tries the wanted directory, then (or if there is none) the default ones of the effective user.
  bool CreateSomewhere(std::string* error);
  // Writes all chunks to a new file and maps it in their place.
  bool CreateIn(const std::string& directory, std::string* error);
  bool MapChunks(int fd, std::string* error);
  // One more chunk, of the file or (detached) of plain memory.
  bool Grow();
  std::byte* MapNewChunk();
  void AddSlots(std::byte* chunk, size_t first_offset);
  void InitializeHeader();
  bool AttachIfDetached();
  void RemoveFile();
  Header* header() const { return header_; }
  Slot* FallbackSlot(uint32_t index) const;

  const SystemCalls& calls_;
  std::mutex mutex_;
  std::string wanted_directory_;
  uid_t wanted_by_ = 0;  // the effective user who named it
  std::string path_;
  pid_t owner_ = 0;                 // the process the file belongs to
  bool attach_failed_ = false;      // do not try again with every slot
  std::vector<std::byte*> chunks_;  // kChunkSize each; the first starts with the header
  Header* header_ = nullptr;
  TraceRing ring_;
  std::vector<Slot*> free_;  // capacity for every slot there is, so that giving one back does not allocate
  size_t slots_ = 0;
  size_t in_use_ = 0;
  uint32_t next_fallback_ = 0;
};

// An Address from a sockaddr_in or sockaddr_in6; IPv4-mapped IPv6 stays IPv6. Anything else gives family 0.
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
