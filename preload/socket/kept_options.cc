#include "preload/socket/kept_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>

#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

Duration ToDuration(const timeval& tv) { return std::chrono::seconds(tv.tv_sec) + std::chrono::microseconds(tv.tv_usec); }

}  // namespace

int* KeptOptions::IntSlot(int level, int name) {
  if (level == SOL_SOCKET) {
    if (name == SO_RCVLOWAT) return &receive_low_water_;
    if (name == SO_OOBINLINE) return &oob_inline_;
  } else if (level == IPPROTO_TCP) {
    if (name == TCP_NODELAY) return &no_delay_;
    if (name == TCP_CORK) return &cork_;
    if (name == TCP_FASTOPEN_CONNECT) return &fast_open_connect_;
  }
  return nullptr;
}

KeptOptions::Answer KeptOptions::Set(int level, int name, const void* value, socklen_t length) {
  if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
    if (length >= sizeof(timeval) && value != nullptr) {
      timeval tv;
      std::memcpy(&tv, value, sizeof tv);
      if (tv.tv_usec >= 0 && tv.tv_usec < 1'000'000) {
        (name == SO_RCVTIMEO ? receive_timeout_ : send_timeout_) = tv.tv_sec < 0 ? Duration::zero() : ToDuration(tv);
      }
    }
    return Answer::kKernel;
  }
  if (level == SOL_SOCKET && name == SO_LINGER) {
    if (length < sizeof linger_ || value == nullptr) return Answer::kInvalid;
    std::memcpy(&linger_, value, sizeof linger_);
    linger_set_ = true;
    return Answer::kKept;
  }
  int* slot = IntSlot(level, name);
  if (slot == nullptr) return Answer::kKernel;
  if (length < sizeof(int) || value == nullptr) return Answer::kInvalid;
  std::memcpy(slot, value, sizeof(int));
  if (slot == &receive_low_water_) {
    *slot = *slot < 0 ? 0x7fffffff : std::max(*slot, 1);
  } else {
    *slot = *slot != 0 ? 1 : 0;
  }
  return Answer::kKept;
}

KeptOptions::Answer KeptOptions::Get(int level, int name, void* value, socklen_t* length) const {
  const void* source = const_cast<KeptOptions*>(this)->IntSlot(level, name);
  size_t size = sizeof(int);
  if (level == SOL_SOCKET && name == SO_LINGER) {
    source = &linger_;
    size = sizeof linger_;
  }
  if (source == nullptr) return Answer::kKernel;
  if (value == nullptr || length == nullptr) return Answer::kInvalid;
  *length = std::min<socklen_t>(*length, size);
  std::memcpy(value, source, *length);
  return Answer::kKept;
}

void KeptOptions::Apply(int fd) const {
  if (linger_set_) real.setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger_, sizeof linger_);
  if (receive_low_water_ != 1) real.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &receive_low_water_, sizeof(int));
  if (oob_inline_ != 0) real.setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &oob_inline_, sizeof(int));
  real.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay_, sizeof(int));
  if (cork_ != 0) real.setsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork_, sizeof(int));
}

}  // namespace sdp::preload
