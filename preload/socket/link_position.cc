#include "preload/socket/link_position.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstddef>

#include "preload/allowed_calls.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

constexpr int kAttempts = 100;
// The states (include/net/tcp_states.h) in which the peer's FIN has not come.
constexpr uint8_t kEstablished = 1, kFinWait1 = 4, kFinWait2 = 5;

int Unread(int fd) {
  int unread = -1;
  return real.ioctl(fd, FIONREAD, &unread) == 0 ? unread : -1;
}

}  // namespace

uint64_t LinkPosition(int fd) {
  if (Confined()) return kNoLinkPosition;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int unread = Unread(fd);
    tcp_info info{};
    socklen_t length = sizeof info;
    if (unread < 0 || real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) break;
    if (length < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) break;
    if (Unread(fd) != unread) continue;  // more came between the two
    // A FIN counts as received, never as unread.
    const bool ended =
        info.tcpi_state != kEstablished && info.tcpi_state != kFinWait1 && info.tcpi_state != kFinWait2;
    return info.tcpi_bytes_received - static_cast<uint64_t>(unread) - (ended ? 1 : 0);
  }
  return kNoLinkPosition;
}

}  // namespace sdp::preload
