// Calls that a process may make only with one thread, or that affect only the calling thread. The helper
// thread is the library's, and the program must not notice it.
#include <sched.h>

#include "preload/entry_points.h"
#include "preload/process_life.h"
#include "preload/startup.h"

namespace sdp::preload {
namespace {

// Flags for which the calling thread stays where it is, and only its children are moved. After CLONE_NEWPID
// the process could not start another thread.
constexpr int kUnsharedForChildren = CLONE_NEWPID | CLONE_NEWTIME;
constexpr int kSetForChildren = CLONE_NEWPID;

template <typename Call>
int AsOneThread(int flags, int of_children, Call call) {
  const bool for_children = flags != 0 && (flags & ~of_children) == 0;
  if (!Started() || !OwnsProcess() || for_children) return call();
  const NoCancellation no_cancellation;
  BeforeCallOfOneThread();
  const int result = call();
  const KeepErrno keep;
  AfterCallOfOneThread();
  return result;
}

}  // namespace

int SDP_ENTRY(unshare)(int flags) noexcept {
  return AsOneThread(flags, kUnsharedForChildren, [flags] { return real.unshare(flags); });
}

int SDP_ENTRY(setns)(int fd, int type) noexcept {
  return AsOneThread(type, kSetForChildren, [fd, type] { return real.setns(fd, type); });
}

}  // namespace sdp::preload
