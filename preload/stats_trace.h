// The writer of a process's trace file (stats_messages.h says what is in it). Made when sdpstat asks for it
// first, and kept from then on, because threads write to it without a lock.
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
  // Makes the file beside the stats file `stats_path`, which is this process's and ends in ".stats". 0 or an
  // errno. One thread at a time.
  int Open(const char* stats_path);
  // Needs open(). Any thread.
  void Append(const MessageNote& note, uint32_t connection);
  // In the child of a fork: the file is the parent's.
  void ForgetAfterFork();
  // Unlinks the file; whoever has it open still reads what is appended.
  void Remove();

 private:
  static constexpr size_t kLongestPath = 4096;

  const SystemCalls& calls_;
  std::atomic<std::byte*> memory_{nullptr};
  char path_[kLongestPath] = {};
};

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_TRACE_H_
