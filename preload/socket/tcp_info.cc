#include "preload/socket/tcp_info.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>

#include "preload/fail.h"
#include "preload/real_calls.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// linux/tcp.h has all of tcp_info. The states' names are in netinet/tcp.h, which conflicts with it.
constexpr uint8_t kSynSent = 2;

// Room for the additional fields of newer kernels.
struct Room {
  tcp_info info;
  char more[256];
};

template <typename Change>
int Get(int fd, void* value, socklen_t* length, Change change) {
  if (!MayWrite(length, sizeof *length) || static_cast<int>(*length) < 0 || !MayWrite(value, *length)) {
    return real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, value, length);
  }
  Room room{};
  socklen_t told = sizeof room;
  const int result = real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &room, &told);
  if (result != 0) return result;
  change(&room.info);
  *length = std::min(*length, told);
  std::memcpy(value, &room, *length);
  return 0;
}

}  // namespace

int GetTcpInfo(int link_fd, const StreamFacts& facts, void* value, socklen_t* length) {
  return Get(link_fd, value, length, [&](tcp_info* info) {
    int in_kernel = 0;
    const KeepErrno keep;
    real.ioctl(link_fd, TIOCOUTQ, &in_kernel);
    const uint64_t under_way = facts.alive ? static_cast<uint64_t>(std::max(in_kernel, 0)) : 0;
    info->tcpi_state = facts.tcp_state;
    info->tcpi_bytes_sent = facts.bytes_out;
    info->tcpi_bytes_acked = facts.bytes_out - std::min(facts.bytes_out, under_way);
    info->tcpi_bytes_received = facts.bytes_in;
    info->tcpi_notsent_bytes += static_cast<uint32_t>(std::min<uint64_t>(facts.unsent, UINT32_MAX / 2));
  });
}

int GetTcpInfoConnecting(int fd, void* value, socklen_t* length) {
  return Get(fd, value, length, [](tcp_info* info) { info->tcpi_state = kSynSent; });
}

int GetTcpInfoListening(int fd, uint32_t waiting, void* value, socklen_t* length) {
  return Get(fd, value, length, [&](tcp_info* info) { info->tcpi_unacked += waiting; });
}

namespace {

template <typename T>
T Ask(int link_fd, T tcp_info::*field) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return real.getsockopt(link_fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info.*field : T{};
}

}  // namespace

uint32_t PeerWindow(int link_fd) { return Ask(link_fd, &tcp_info::tcpi_snd_wnd); }

uint32_t BacklogInForce(int fd) { return Ask(fd, &tcp_info::tcpi_sacked); }

Duration RoundTrip(int link_fd) { return std::chrono::microseconds(Ask(link_fd, &tcp_info::tcpi_rtt)); }

}  // namespace sdp::preload
