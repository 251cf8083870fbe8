// What the entry points share. Each entry point is thin. If the descriptor is not managed, it makes the real
// call and nothing else. If it is, it gives Socket the arguments in the shape that Socket takes. If the
// socket turns out to be plain TCP, it makes the real call after all.
#ifndef SDP_PRELOAD_ENTRY_POINTS_H_
#define SDP_PRELOAD_ENTRY_POINTS_H_

#include <pthread.h>

#include <new>

#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/inheritance.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"

// The names under which the entry points are compiled. libsdp.so uses the C library's names; tests use a
// prefix, so that they can call both.
#ifdef SDP_PREFIXED_ENTRY_POINTS
#define SDP_ENTRY(name) sdp_entry_##name
#define SDP_ENTRY_ALIAS(alias_name, name) static_assert(true)
#else
#define SDP_ENTRY(name) name
#define SDP_ENTRY_ALIAS(alias_name, name) \
  extern "C" decltype(name) alias_name __attribute__((alias(#name), visibility("default")))
#endif

// The name of an entry point, or of what stands beside it, for assembly.
#define SDP_QUOTED(text) #text
#define SDP_EXPANDED(text) SDP_QUOTED(text)
#define SDP_SYMBOL(name) SDP_EXPANDED(SDP_ENTRY(name))

// Types of the kernel, liburing and the C library; only their addresses are passed on.
struct io_uring;
struct io_uring_params;
struct aiocb;
struct aiocb64;

// Ends the process because a buffer is smaller than the length passed with it, as a fortified program expects
// of its __*_chk calls.
extern "C" [[noreturn]] void __chk_fail();

namespace sdp::preload {

// The entry points' definitions have C linkage, too, which their first declarations give them.
#define SDP_CALL(result, name, parameters, exception)                      \
  extern "C" __attribute__((visibility("default"))) result SDP_ENTRY(name) \
  parameters exception;
#define SDP_DERIVED(result, name, parameters, exception) SDP_CALL(result, name, parameters, exception)
#include "preload/calls.inc"

// Returns `managed(socket)`, or fails with ENOMEM if memory runs out: the program must not end for that.
template <typename Managed>
inline auto OrNoMemory(Socket& socket, int fd, Managed managed) -> decltype(managed(socket)) {
  try {
    return managed(socket);
  } catch (const std::bad_alloc&) {
    socket.RanOutOfMemory(fd);
    return Fail(ENOMEM);
  }
}

// Returns `managed(Socket&)` if `fd` has a Socket and it does not answer kPassThrough, else `plain()`. A
// successful call leaves errno alone. A cancellation point: a pending cancellation ends the thread before
// anything has happened, a later one only where the call sleeps.
template <typename Cancellation = CancelledInSleepsOnly, typename Managed, typename Plain>
inline auto Dispatch(int fd, Managed managed, Plain plain) -> decltype(plain()) {
  if (SocketRef socket = FdTable::Get(fd)) {
    pthread_testcancel();
    [[maybe_unused]] const Cancellation whole{};
    const int error = errno;
    const auto result = OrNoMemory(*socket.get(), fd, managed);
    if (result >= 0) errno = error;
    if (result != kPassThrough) return result;
  }
  return plain();
}

// Dispatch for calls that move bytes. Between their sleeps they hold off cancellation themselves, where they
// make a system call that is a cancellation point. So a byte that is there already costs nothing extra.
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

// The kernel has just handed out this number. What the library still knows under it was closed without the
// library's knowledge, by stdio for example.
inline int Fresh(int fd) {
  if (fd >= 0 && (FdTable::Has(fd) || EpollKnows(fd))) [[unlikely]] {
    const NoCancellation no_cancellation;
    EpollForget(fd);
    if (const SocketRef socket = FdTable::Remove(fd)) socket->Vanished(fd);
  }
  return fd;
}

// entry_points_io_uring.cc: returns whether io_uring_setup is to fail with ENOSYS. Keeps errno.
bool RingsAreDenied();

// entry_points_exec.cc: returns whether a program may get managed sockets from here, by exec or with its
// descriptors rearranged.
bool HasHeirlooms(Heirloom which);

// entry_points_stdio.cc: another file stands at this number now. If the number is 0, 1 or 2, stdin, stdout or
// stderr follows. The caller holds no lock of the library's.
void FollowStandardStream(int fd);
// Does so for all three, before main.
void ReopenStandardStreams();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_ENTRY_POINTS_H_
