// Finds out which threads of this process are left. A process whose last thread ends by pthread_exit, or by a
// system call, ends with it. The library's helper thread would keep it alive, so the helper has to check.
#ifndef SDP_PRELOAD_SOCKET_LAST_THREAD_H_
#define SDP_PRELOAD_SOCKET_LAST_THREAD_H_

#include <optional>

#include "core/base/types.h"

namespace sdp::preload {

// Returns the number of threads of this process; 0: /proc does not tell.
unsigned ThreadsOfProcess();

// `stat`: the text of /proc/self/stat. Returns the status with which the first thread has ended, if exactly
// one other thread is left; else nothing.
std::optional<int> StatusBeforeLastThread(const char* stat);

// The helper's check for other threads, once the process's first thread has ended.
class LastThreadWatch {
 public:
  // The time between two checks.
  static constexpr Duration kInterval = std::chrono::seconds(1);

  // Returns the status with which the process is to end, if the caller is the only thread left. Returns
  // nothing if other threads are left, /proc does not tell, or the last check is less than kInterval ago.
  std::optional<int> Look(Time now);

 private:
  Time next_{};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LAST_THREAD_H_
