// The C library's own functions behind the interposed names. Inside libsdp.so the plain names are our entry
// points, so the library's code makes each of these calls as `real.read(...)`. Any thread may call, at any
// time.
#ifndef SDP_PRELOAD_REAL_CALLS_H_
#define SDP_PRELOAD_REAL_CALLS_H_

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <optional>

namespace sdp::preload {

// A pointer to a function that is looked up at its first call. Later calls cost one relaxed load and an
// indirect call.
template <typename Function>
class RealCall {
 public:
  using Pointer = Function*;
  constexpr RealCall(Pointer first) : function_(first) {}
  operator Pointer() const { return function_.load(std::memory_order_relaxed); }
  void Set(Pointer function) { function_.store(function, std::memory_order_relaxed); }

 private:
  std::atomic<Pointer> function_;
};

struct RealCalls {
#define SDP_CALL(result, name, parameters, exception) RealCall<result parameters> name;
#include "preload/calls.inc"
};

// Usable from the first instruction on, before any constructor has run, and inside a memory allocator. Each
// pointer starts at a function that looks all of them up. The look-up takes the next definition after
// libsdp.so's in search order, so that other preloaded libraries keep their place (those
// that know a call by another name of it alone, such as fcntl64, are not asked). If there is none, or if
// the look-up itself makes the call, the call is a bare system call.
extern RealCalls real;

// Every call of calls.inc as a bare system call (raw_calls.cc), for when the C library's function cannot be
// looked up. Not cancellation points.
namespace raw {
#define SDP_CALL(result, name, parameters, exception) result name parameters;
#include "preload/calls.inc"
}  // namespace raw

// Looks all of them up now, so that later calls need not. Any thread may call this, any number of times.
void ResolveRealCalls();

// Returns an option of a descriptor that is an int; nothing if getsockopt fails.
inline std::optional<int> IntOption(int fd, int level, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  return real.getsockopt(fd, level, name, &value, &length) == 0 ? std::optional(value) : std::nullopt;
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_REAL_CALLS_H_
