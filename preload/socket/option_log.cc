#include "preload/socket/option_log.h"

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

#include "preload/fail.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

constexpr size_t kMostEntries = 64;
constexpr socklen_t kLongest = 256;

struct Option {
  int level;
  int name;
};
constexpr Option kListenersOwn[] = {
    {SOL_SOCKET, SO_REUSEPORT},
    {SOL_SOCKET, SO_ATTACH_FILTER},
    {SOL_SOCKET, SO_DETACH_FILTER},
    {SOL_SOCKET, SO_ATTACH_BPF},
    {SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF},
    {SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF},
    {SOL_SOCKET, SO_LOCK_FILTER},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT},
    {IPPROTO_TCP, TCP_FASTOPEN},
    {IPPROTO_TCP, TCP_FASTOPEN_KEY},
    {IPPROTO_TCP, TCP_ULP},
    {IPPROTO_TCP, TCP_CONGESTION},  // KeptOptions::InheritCongestionControl
};

// Replayed before the bind, these options would apply to another port.
bool IsForAddress(int level, int name) {
  return level == SOL_SOCKET && (name == SO_REUSEADDR || name == SO_REUSEPORT);
}

// Set once for each peer.
bool Accumulates(int level, int name) {
  return level == IPPROTO_TCP && (name == TCP_MD5SIG || name == TCP_MD5SIG_EXT);
}

}  // namespace

bool OptionLog::IsInherited(int level, int name, socklen_t length) {
  if (IsForAddress(level, name)) return true;
  if (length > kLongest) return false;
  if (level != SOL_SOCKET && level != IPPROTO_TCP && level != IPPROTO_IP && level != IPPROTO_IPV6)
    return false;
  return std::none_of(std::begin(kListenersOwn), std::end(kListenersOwn),
                      [&](const Option& own) { return own.level == level && own.name == name; });
}

void OptionLog::Record(int level, int name, const void* value, socklen_t length) {
  if (value == nullptr || IsForAddress(level, name) || !IsInherited(level, name, length)) return;
  if (!Accumulates(level, name))
    std::erase_if(entries_, [&](const Entry& e) { return e.level == level && e.name == name; });
  if (entries_.size() == kMostEntries) return;
  const auto* const bytes = static_cast<const std::byte*>(value);
  entries_.push_back({.level = level, .name = name, .value = {bytes, bytes + length}});
}

void OptionLog::Replay(int fd) const {
  const KeepErrno keep;
  for (const Entry& e : entries_)
    real.setsockopt(fd, e.level, e.name, e.value.data(), static_cast<socklen_t>(e.value.size()));
}

void CopyOption(int from, int to, int name) {
  const int value = IntOption(from, SOL_SOCKET, name).value_or(0);
  if (value != 0) real.setsockopt(to, SOL_SOCKET, name, &value, sizeof value);
}

void FollowRoute(int from, int to) {
  const KeepErrno keep;
  CopyOption(from, to, SO_MARK);
  char device[IFNAMSIZ] = {};
  socklen_t length = sizeof device;
  if (real.getsockopt(from, SOL_SOCKET, SO_BINDTODEVICE, device, &length) == 0 && length > 0) {
    real.setsockopt(to, SOL_SOCKET, SO_BINDTODEVICE, device, length);
  }
}

Address SourceTowards(int from, const Address& target) {
  const int probe = real.socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return {};
  FollowRoute(from, probe);
  const bool routed = real.connect(probe, target.get(), target.length) == 0;
  const Address source = routed ? LocalAddress(probe) : Address{};
  real.close(probe);
  return source;
}

}  // namespace sdp::preload
