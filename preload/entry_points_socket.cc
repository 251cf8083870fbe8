// Making sockets, and the calls on them that move no bytes.
#include <linux/sockios.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdarg>

#include "preload/allowed_calls.h"
#include "preload/config.h"
#include "preload/critical.h"
#include "preload/entry_points.h"
#include "preload/native_family.h"
#include "preload/spare_descriptors.h"
#include "preload/startup.h"
#include "preload/unwind.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// The kernel returns the right error.
constexpr int kNotOurs = static_cast<int>(kPassThrough);

// SOCK_NONBLOCK and SOCK_CLOEXEC are passed in the type.
constexpr int kTypeMask = 0xf;

bool IsStream(int domain, int type, int protocol) {
  return (domain == AF_INET || domain == AF_INET6) && (type & kTypeMask) == SOCK_STREAM &&
         (protocol == 0 || protocol == IPPROTO_TCP);
}

// Manages a new socket. One that cannot be managed stays what the kernel made it: TCP.
void Manage(int fd, int domain) {
  if (Confined() || ForeignCall::Active() || !OwnsProcess()) return;
  if (Critical::IsInHandler())
    return;  // the handler may have interrupted malloc, which the first socket needs
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  if (!LoadUnwinder()) return;
  try {
    RefreshConfig();
    if (NothingButTcp()) return;
    EnsureStarted();
    if (const SocketRef socket{Socket::New(domain, fd)}) FdTable::Set(fd, socket.get());
    SpareDescriptors::NoteSocket();
    FollowStandardStream(fd);
  } catch (const std::bad_alloc&) {
  }
}

bool IsNativeStream(int domain, int type, int protocol) {
  return domain == kFamilySdp && (type & kTypeMask) == SOCK_STREAM &&
         (protocol == 0 || protocol == IPPROTO_TCP) && !ForeignCall::Active() && OwnsProcess();
}

// Makes a socket that is SDP or nothing. Fails as the kernel does for an unknown family.
int MakeNative(int type) {
  if (Confined()) return Fail(EAFNOSUPPORT);
  const NoCancellation no_cancellation;
  if (!LoadUnwinder()) return Fail(ENOMEM);
  int fd = -1;
  try {
    RefreshConfig();
    if (TurnedOff()) return Fail(EAFNOSUPPORT);
    EnsureStarted();
    fd = Fresh(real.socket(AF_INET, type, IPPROTO_TCP));
    if (fd < 0) return fd;
    const SocketRef socket{Socket::New(kFamilySdp, fd)};
    FdTable::Set(fd, socket.get());
    FollowStandardStream(fd);
    return fd;
  } catch (const std::bad_alloc&) {
    if (fd >= 0) {
      FdTable::Remove(fd);
      real.close(fd);
    }
    return Fail(ENOMEM);
  }
}

int AcceptAny(Socket& socket, int fd, sockaddr* address, socklen_t* length, int flags) {
  SocketRef connection;
  const int accepted = Fresh(socket.Accept(fd, address, length, flags, &connection));
  if (connection) FdTable::Set(accepted, connection.get());
  return accepted;
}

// As in the kernel, accept closes a connection if it cannot give the peer's address to the program.
int Accept(Socket& socket, int fd, sockaddr* address, socklen_t* length, int flags) {
  const int error = address == nullptr                                                      ? 0
                    : !MayWrite(length, sizeof *length)                                     ? EFAULT
                    : static_cast<int>(*length) < 0                                         ? EINVAL
                    : !MayWrite(address, std::min<socklen_t>(*length, sizeof(sockaddr_in))) ? EFAULT
                                                                                            : 0;
  if (error == 0) [[likely]] {
    const int accepted = AcceptAny(socket, fd, address, length, flags);
    FollowStandardStream(accepted);
    return accepted;
  }
  const int accepted = AcceptAny(socket, fd, nullptr, nullptr, flags);
  if (accepted < 0) return accepted;
  SDP_ENTRY(close)(accepted);
  return Fail(error);
}

}  // namespace

int SDP_ENTRY(socket)(int domain, int type, int protocol) noexcept {
  if (IsNativeStream(domain, type, protocol)) return MakeNative(type);
  const int fd = Fresh(real.socket(domain, type, protocol));
  if (fd >= 0 && IsStream(domain, type, protocol)) Manage(fd, domain);
  return fd;
}

int SDP_ENTRY(socketpair)(int domain, int type, int protocol, int fds[2]) noexcept {
  const int result = real.socketpair(domain, type, protocol, fds);
  if (result == 0) {
    Fresh(fds[0]);
    Fresh(fds[1]);
  }
  return result;
}

int SDP_ENTRY(bind)(int fd, const sockaddr* address, socklen_t length) noexcept {
  const bool is_beyond = IsBeyond(address);
  return DispatchUncancelled(
      fd,
      [&](Socket& socket) {
        return is_beyond || !MayRead(address, length) ? kNotOurs : socket.Bind(fd, address, length);
      },
      [&] { return real.bind(fd, address, length); });
}

int SDP_ENTRY(listen)(int fd, int backlog) noexcept {
  return DispatchUncancelled(
      fd, [&](Socket& socket) { return socket.Listen(fd, backlog); },
      [&] { return real.listen(fd, backlog); });
}

int SDP_ENTRY(accept)(int fd, sockaddr* address, socklen_t* length) {
  return Dispatch(
      fd, [&](Socket& socket) { return Accept(socket, fd, address, length, 0); },
      [&] { return Fresh(real.accept(fd, address, length)); });
}

int SDP_ENTRY(accept4)(int fd, sockaddr* address, socklen_t* length, int flags) {
  if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) return Fail(EINVAL);
  return Dispatch(
      fd, [&](Socket& socket) { return Accept(socket, fd, address, length, flags); },
      [&] { return Fresh(real.accept4(fd, address, length, flags)); });
}

int SDP_ENTRY(connect)(int fd, const sockaddr* address, socklen_t length) {
  const bool is_too_long = IsBeyond(address) || length > sizeof(sockaddr_storage);
  return Dispatch(
      fd,
      [&](Socket& socket) {
        return is_too_long || !MayRead(address, length) ? kNotOurs : socket.Connect(fd, address, length);
      },
      [&] { return real.connect(fd, address, length); });
}

int SDP_ENTRY(shutdown)(int fd, int how) noexcept {
  return DispatchUncancelled(
      fd, [&](Socket& socket) { return socket.Shutdown(fd, how); }, [&] { return real.shutdown(fd, how); });
}

int SDP_ENTRY(getsockname)(int fd, sockaddr* address, socklen_t* length) noexcept {
  return DispatchUncancelled(
      fd, [&](Socket& socket) { return socket.GetSockName(fd, address, length); },
      [&] { return real.getsockname(fd, address, length); });
}

int SDP_ENTRY(getpeername)(int fd, sockaddr* address, socklen_t* length) noexcept {
  return DispatchUncancelled(
      fd, [&](Socket& socket) { return socket.GetPeerName(fd, address, length); },
      [&] { return real.getpeername(fd, address, length); });
}

int SDP_ENTRY(getsockopt)(int fd, int level, int name, void* value, socklen_t* length) noexcept {
  return DispatchUncancelled(
      fd, [&](Socket& socket) { return socket.GetSockOpt(fd, level, name, value, length); },
      [&] { return real.getsockopt(fd, level, name, value, length); });
}

int SDP_ENTRY(setsockopt)(int fd, int level, int name, const void* value, socklen_t length) noexcept {
  return DispatchUncancelled(
      fd, [&](Socket& socket) { return socket.SetSockOpt(fd, level, name, value, length); },
      [&] { return real.setsockopt(fd, level, name, value, length); });
}

int SDP_ENTRY(sockatmark)(int fd) noexcept {
  int at_mark = 0;
  return DispatchUncancelled(
      fd,
      [&](Socket& socket) {
        const int result = socket.Ioctl(fd, SIOCATMARK, &at_mark);
        return result == 0 ? at_mark : result;
      },
      [&] { return real.sockatmark(fd); });
}

int SDP_ENTRY(ioctl)(int fd, unsigned long request, ...) noexcept {
  va_list variable;
  va_start(variable, request);
  void* argument = va_arg(variable, void*);
  va_end(variable);
  return DispatchUncancelled(
      fd, [&](Socket& socket) { return socket.Ioctl(fd, request, argument); },
      [&] { return real.ioctl(fd, request, argument); });
}

SDP_ENTRY_ALIAS(__connect, connect);

}  // namespace sdp::preload
