// Which threads of this process are left. A process whose last thread ends by pthread_exit, or by a system
// call, ends with it; the library's helper thread would keep it alive and so has to look.
#ifndef SDP_PRELOAD_SOCKET_LAST_THREAD_H_
#define SDP_PRELOAD_SOCKET_LAST_THREAD_H_

#include <optional>

#include "core/base/types.h"

namespace sdp::preload {

// Returns the number of threads of this process; 0: /proc does not tell.
unsigned ThreadsOfProcess();

// `stat`: the text of /proc/self/stat. Returns the status with which the first thread has ended if one other
// thread is left, and no more; else nothing.
std::optional<int> StatusBeforeLastThread(const char* stat);

// The helper's look for other threads, once the thread that the process began with has ended.
class LastThreadWatch {
 public:
  // How often it looks.
  static constexpr Duration kInterval = std::chrono::seconds(1);

  // Returns the status with which the process is to end, if the caller is the only thread left. Nothing:
  // other threads are left, /proc does not tell, or the last look is less than kInterval ago.
  std::optional<int> Look(Time now);

 private:
  Time next_{};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LAST_THREAD_H_
