#include "verbs/softiwarp/bell.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "verbs/descriptor_calls.h"
#include "verbs/softiwarp/local/abstract_name.h"
#include "verbs/softiwarp/local/random.h"

namespace sdp::iwarp {
namespace {

struct KeepErrno {
  const int saved = errno;
  ~KeepErrno() { errno = saved; }
};

// The process rings all bells with one socket. It is never closed.
constinit std::atomic<int> ringer{-1};
constinit std::atomic_flag making_ringer;

// A program may interpose the C library's functions of these names.
int Socket() { return static_cast<int>(::syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

AbstractName AddressOf(const verbs::BellName& name) {
  return {"sdp-bell-", std::as_bytes(std::span(name.words))};
}

// Out of the program's way. The number stays: a thread that sleeps in a call on it may have that call
// restarted, and the number must not be another file's by then.
int Hidden(int fd) { return fd < 0 ? -1 : verbs::descriptor_calls().hide(fd); }

bool Send(int fd, const verbs::BellName& name, uint64_t cookie) {
  const AbstractName to = AddressOf(name);
  return ::syscall(SYS_sendto, fd, &cookie, sizeof cookie, MSG_DONTWAIT | MSG_NOSIGNAL, &to.address,
                   to.length) == sizeof cookie;
}

// Returns -1 if there is none, or another thread makes it just now.
int Ringer() {
  if (const int fd = ringer.load(std::memory_order_relaxed); fd >= 0) [[likely]]
    return fd;
  if (making_ringer.test_and_set()) return -1;
  if (ringer.load() < 0) ringer = Hidden(Socket());
  making_ringer.clear();
  return ringer.load(std::memory_order_relaxed);
}

}  // namespace

bool Bell::Open() {
  if (fd() >= 0) return true;
  const KeepErrno keep;
  FillRandom(std::as_writable_bytes(std::span(name_.words)));
  const AbstractName name = AddressOf(name_);
  const int fd = Socket();
  if (fd < 0) return false;
  if (::syscall(SYS_bind, fd, &name.address, name.length) == 0) {
    fd_ = Hidden(fd);
    return true;
  }
  verbs::CloseUnseen(fd);
  return false;
}

void Bell::Close() {
  const int fd = fd_.exchange(-1, std::memory_order_relaxed);
  if (fd < 0) return;
  verbs::descriptor_calls().reveal(fd);
  verbs::CloseUnseen(fd);
}

size_t Bell::Take(std::span<uint64_t, kMostAtOnce> cookies) {
  const KeepErrno keep;
  std::array<mmsghdr, kMostAtOnce> messages{};
  std::array<iovec, kMostAtOnce> parts;
  for (size_t i = 0; i < kMostAtOnce; ++i) {
    parts[i] = {.iov_base = &(cookies[i] = 0), .iov_len = sizeof(uint64_t)};
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const long count = ::syscall(SYS_recvmmsg, fd(), messages.data(), kMostAtOnce, MSG_DONTWAIT, nullptr);
  return count > 0 ? static_cast<size_t>(count) : 0;
}

bool RingBell(const verbs::BellName& name, uint64_t cookie) {
  const KeepErrno keep;
  const int fd = Ringer();
  return fd >= 0 && Send(fd, name, cookie);
}

}  // namespace sdp::iwarp
