// What the entry points share. Each is thin: is the descriptor one of ours? If not, the real call and nothing
// else; if so, the arguments in the shape Socket takes them, and the real call after all when the socket
// turns out to be plain TCP.
#ifndef SDP_PRELOAD_ENTRY_POINTS_H_
#define SDP_PRELOAD_ENTRY_POINTS_H_

#include <pthread.h>

#include <cerrno>
#include <new>

#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/inheritance.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"

// The names under which the entry points are compiled: the C library's, for libsdp.so; with a prefix for
// tests, which then have both at hand.
#ifdef SDP_PREFIXED_ENTRY_POINTS
#define SDP_ENTRY(name) sdp_entry_##name
#define SDP_ENTRY_ALIAS(alias_name, name) static_assert(true)
#else
#define SDP_ENTRY(name) name
#define SDP_ENTRY_ALIAS(alias_name, name) \
  extern "C" decltype(name) alias_name __attribute__((alias(#name), visibility("default")))
#endif

// The kernel's, liburing's and the C library's; only their addresses are passed on.
struct io_uring;
struct io_uring_params;
struct aiocb;
struct aiocb64;

#define SDP_CALL(result, name, parameters, exception)                      \
  extern "C" __attribute__((visibility("default"))) result SDP_ENTRY(name) \
  parameters exception;
#define SDP_VARIADIC(result, name, parameters, exception) SDP_CALL(result, name, parameters, exception)
#include "preload/calls.inc"

// Ends the process: a buffer is smaller than the length passed with it. What a fortified program expects of
// its __*_chk calls.
extern "C" [[noreturn]] void __chk_fail();

namespace sdp::preload {

// `managed(socket)`, or ENOMEM where memory was wanted in vain: the program is not to end for that.
template <typename Managed>
inline auto OrNoMemory(Socket& socket, int fd, Managed managed) -> decltype(managed(socket)) {
  try {
    return managed(socket);
  } catch (const std::bad_alloc&) {
    socket.RanOutOfMemory(fd);
    return Fail(ENOMEM);
  }
}

// `managed(Socket&)` if there is a Socket behind `fd` and it does not answer kPassThrough, else `plain()`.
// What succeeds leaves errno alone. A cancellation point: one that is pending ends the thread before anything
// has happened, one that comes meanwhile where the call sleeps.
template <typename Cancellation = CancelledInSleepsOnly, typename Managed, typename Plain>
inline auto Dispatch(int fd, Managed managed, Plain plain) -> decltype(plain()) {
  if (FdTable::Has(fd)) {
    if (SocketRef socket = FdTable::Get(fd)) {
      pthread_testcancel();
      [[maybe_unused]] const Cancellation whole{};
      const int error = errno;
      const auto result = OrNoMemory(*socket.get(), fd, managed);
      if (result >= 0) errno = error;
      if (result != kPassThrough) return result;
    }
  }
  return plain();
}

// Dispatch for calls that move bytes. What they do between their sleeps holds cancellation off by itself,
// where it makes a system call that is a cancellation point: a byte that is there already costs none.
struct HeldOffWhereNeeded {};
template <typename Managed, typename Plain>
inline auto DispatchBytes(int fd, Managed managed, Plain plain) -> decltype(plain()) {
  return Dispatch<HeldOffWhereNeeded>(fd, managed, plain);
}

// Dispatch for calls that glibc declares noexcept.
template <typename Managed, typename Plain>
inline auto DispatchUncancelled(int fd, Managed managed, Plain plain) noexcept -> decltype(plain()) {
  if (FdTable::Has(fd)) {
    const NoCancellation no_cancellation;
    return Dispatch(fd, managed, plain);
  }
  return plain();
}

// The kernel has just given out this number: whatever we still know under it was closed behind our back (by
// stdio, say).
inline int Fresh(int fd) {
  if (fd >= 0 && (FdTable::Has(fd) || EpollKnows(fd))) [[unlikely]] {
    const NoCancellation no_cancellation;
    EpollForget(fd);
    if (const SocketRef socket = FdTable::Remove(fd)) socket->Vanished(fd);
  }
  return fd;
}

// entry_points_io_uring.cc: io_uring_setup is to fail with ENOSYS. Keeps errno.
bool RingsAreDenied();

// entry_points_exec.cc: there are sockets of ours that a program may get from here, by exec or with its
// descriptors rearranged.
bool HasHeirlooms(Heirloom which);

// entry_points_stdio.cc: something else stands at this number now; where it is 0, 1 or 2, stdin, stdout or
// stderr follows. No lock of ours is held.
void FollowStandardStream(int fd);
// Before main, all three.
void ReopenStandardStreams();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_ENTRY_POINTS_H_
