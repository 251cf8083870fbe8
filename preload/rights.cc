#include "preload/rights.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "preload/bridge.h"
#include "preload/entry_points.h"
#include "preload/inheritance.h"
#include "preload/startup.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

bool HasRights(const msghdr& message) {
  return message.msg_control != nullptr && message.msg_controllen >= CMSG_LEN(sizeof(int));
}

// Calls `f(descriptor)` for each descriptor in `message`, and puts the result in the descriptor's place.
template <typename F>
void ForEachRight(const msghdr& message, F f) {
  auto* const header = const_cast<msghdr*>(&message);
  for (cmsghdr* c = CMSG_FIRSTHDR(header); c != nullptr; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0)) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      unsigned char* const at = CMSG_DATA(c) + i * sizeof fd;
      if (at + sizeof fd > static_cast<unsigned char*>(header->msg_control) + header->msg_controllen) return;
      std::memcpy(&fd, at, sizeof fd);
      const int other = f(fd);
      if (other != fd) std::memcpy(at, &other, sizeof other);
    }
  }
}

// Returns whether the process maps a file of that name.
bool Maps(pid_t process, std::string_view name) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/maps", static_cast<int>(process));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::array<char, 8192> text;
  size_t kept = 0;
  bool found = false;
  ssize_t got;
  while (!found && (got = real.read(fd, text.data() + kept, text.size() - kept)) > 0) {
    const std::string_view seen(text.data(), kept + static_cast<size_t>(got));
    found = seen.find(name) != std::string_view::npos;
    kept = std::min(seen.size(), name.size());
    std::memmove(text.data(), seen.data() + seen.size() - kept, kept);
  }
  real.close(fd);
  return found;
}

// The receiver at the other end of a Unix socket, as far as this process can tell.
struct Peer {
  bool trusts = false;    // has the library and trusts what this process packs
  bool relative = false;  // has the library and the memory that connections are shared in
};

// Returns whether neither end has a name: both were then made as a pair.
bool IsOfPair(int fd) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_length = sizeof own;
  socklen_t other_length = sizeof other;
  return real.getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         own.ss_family == AF_UNIX &&
         real.getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_length) == 0 &&
         own_length == sizeof(sa_family_t) && other_length == sizeof(sa_family_t);
}

// Returns whether a sandboxed process (no /proc) sends to a likely sibling. Such a process cannot examine
// others, and the child for a bridge could not have the connection. The other end of a pair is most likely
// with its parent or a sibling. The alternative is certain loss of the connection.
bool MayBeSibling(int fd) { return RelativesShare() && access("/proc/self/fd", F_OK) != 0 && IsOfPair(fd); }

Peer PeerOf(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (real.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return {};
  const bool trusted_user = geteuid() == 0 || peer.uid == geteuid();
  // A pair's peer is the process that made the pair; then a relative has the other end.
  if (peer.pid == getpid()) return {.trusts = trusted_user, .relative = RelativesShare()};
  if (MayBeSibling(fd)) return {.relative = true};
  if (peer.pid <= 0) return {};  // the peer is in an outer PID namespace
  Dl_info info{};
  if (!trusted_user || dladdr(reinterpret_cast<const void*>(&TakeIncomingRights), &info) == 0 ||
      info.dli_fname == nullptr)
    return {};
  const std::string_view path = info.dli_fname;
  return {.trusts = Maps(peer.pid, path.substr(path.rfind('/') + 1))};
}

}  // namespace

// The kernel refuses memory that is not there.
bool OutgoingRights::MayConcern(const msghdr* message) {
  if (!Started() || !MayRead(message, sizeof *message) || !HasRights(*message) || !OwnsProcess())
    return false;
  if (!MayRead(message->msg_control, message->msg_controllen)) return false;
  bool concerns = false;
  ForEachRight(*message, [&](int fd) {
    concerns = concerns || FdTable::Has(fd);
    return fd;
  });
  return concerns;
}

OutgoingRights::OutgoingRights(int fd, const msghdr& message) : message_(message) {
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  const auto* const control = static_cast<const std::byte*>(message.msg_control);
  control_.assign(control, control + message.msg_controllen);
  message_.msg_control = control_.data();
  std::vector<int> sockets;
  ForEachRight(message_, [&](int passed) {
    if (FdTable::Has(passed)) sockets.push_back(passed);
    return passed;
  });
  if (!SettleConnects(sockets)) {
    failed_ = true;
    return;
  }
  const Peer peer = PeerOf(fd);
  substitutes_.reserve(sockets.size());
  ForEachRight(message_, [&](int passed) {
    const SocketRef socket = FdTable::Get(passed);
    if (!socket) return passed;
    const bool is_connection = IsConnection(*socket.get());
    const bool can_open = peer.trusts || (peer.relative && is_connection);
    int substitute =
        can_open ? SealSocket(passed, peer.relative ? Receiver::kRelative : Receiver::kAnybody) : -1;
    if (substitute < 0 && is_connection) substitute = Bridge::Build(passed);
    failed_ = failed_ || (substitute < 0 && is_connection);
    if (substitute < 0) return passed;
    substitutes_.push_back(substitute);
    return substitute;
  });
}

OutgoingRights::~OutgoingRights() {
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  for (const int fd : substitutes_) real.close(fd);
}

void TakeIncomingRights(const msghdr& message, int flags) {
  if (!HasRights(message) || !OwnsProcess()) return;
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  ForEachRight(message, [&](int fd) {
    Fresh(fd);
    // A message that is only peeked at will come again.
    if ((flags & MSG_PEEK) == 0 && IsSealedSocket(fd)) {
      EnsureStarted();
      AdoptSocket(fd);
      FollowStandardStream(fd);
    }
    return fd;
  });
}

}  // namespace sdp::preload
