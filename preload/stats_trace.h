// The writer of a process's trace file, whose content stats_messages.h describes. The file is made when
// sdpstat first asks for it, and kept from then on, because threads write to it without a lock.
//
// Everything here may be called in a signal handler: no allocation, no lock.
#ifndef SDP_PRELOAD_STATS_TRACE_H_
#define SDP_PRELOAD_STATS_TRACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/stats_calls.h"
#include "preload/stats_messages.h"

namespace sdp::stats {

class TraceRing {
 public:
  explicit TraceRing(const SystemCalls& calls) : calls_(calls) {}
  ~TraceRing();
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  [[nodiscard]] bool open() const { return memory_.load(std::memory_order_acquire) != nullptr; }
  // Makes the file beside this process's stats file `stats_path`, which ends in ".stats". Returns 0 or an
  // errno. Only one thread may call this at a time.
  int Open(const char* stats_path);
  // Requires open(). Any thread may call this.
  void Append(const MessageNote& note, uint32_t connection);
  // Call in the child of a fork: the file is the parent's.
  void ForgetAfterFork();
  // Unlinks the file. A reader that has it open still sees what is appended.
  void Remove();

 private:
  static constexpr size_t kLongestPath = 4096;

  const SystemCalls& calls_;
  std::atomic<std::byte*> memory_{nullptr};
  char path_[kLongestPath] = {};
};

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_TRACE_H_
