#include "preload/socket/lingering.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "preload/confinement.h"
#include "preload/link_calls.h"

namespace sdp::preload {
namespace {

constinit std::atomic<int> count{0};
constexpr int kAlways = 2;
constexpr rlim_t kMostLingering = 4096;

}  // namespace

bool Lingering::Any() { return count.load(std::memory_order_relaxed) != 0; }

bool Lingering::TooMany() {
  const int now = count.load(std::memory_order_relaxed);
  if (now < kAlways || Confined()) return false;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  return static_cast<rlim_t>(now) >= std::min(limit.rlim_cur / 8, kMostLingering);
}

Duration Lingering::FinWait(int fd) {
  int seconds = 0;
  socklen_t length = sizeof seconds;
  return LinkGetOption(fd, IPPROTO_TCP, TCP_LINGER2, &seconds, &length) == 0 ? std::chrono::seconds(seconds)
                                                                             : kFinWait;
}

void Lingering::Begin(int fd) {
  fd_ = fd;
  if (fd >= 0) count.fetch_add(1, std::memory_order_relaxed);
}

int Lingering::End() {
  if (fd_ >= 0) count.fetch_sub(1, std::memory_order_relaxed);
  return std::exchange(fd_, -1);
}

void Lingering::BoundFinWait(Time now) {
  if (std::exchange(bounded_, true)) return;
  until_ = now + std::max(FinWait(fd_), Duration::zero());
}

}  // namespace sdp::preload
