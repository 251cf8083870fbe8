#include "verbs/ibv/tcp_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "verbs/descriptor_calls.h"

namespace sdp::ibv {

uint16_t PortOf(const sockaddr& address) {
  // Both families' addresses have the port at this offset.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetPort(sockaddr_storage* address, uint16_t port) {
  reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
}

uint16_t FreeTcpPort(const sockaddr_storage& address) {
  sockaddr_storage local = address;
  SetPort(&local, 0);
  socklen_t length = local.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  // System calls by number, because a preloaded process has other functions under the plain names.
  const long fd = ::syscall(SYS_socket, local.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  const bool bound =
      ::syscall(SYS_bind, fd, &local, length) == 0 && ::syscall(SYS_getsockname, fd, &local, &length) == 0;
  verbs::CloseUnseen(fd);
  return bound ? PortOf(reinterpret_cast<const sockaddr&>(local)) : uint16_t{0};
}

}  // namespace sdp::ibv
