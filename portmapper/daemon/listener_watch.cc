#include "portmapper/daemon/listener_watch.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

namespace sdp::pm {
namespace {

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

uint64_t CookieOf(const inet_diag_sockid& id) {
  return uint64_t{id.idiag_cookie[1]} << 32 | id.idiag_cookie[0];
}

bool IsListener(const nlmsghdr* header, uint64_t cookie) {
  if (header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) return false;
  inet_diag_msg message;
  std::memcpy(&message, NLMSG_DATA(header), sizeof message);
  return message.idiag_state == TCP_LISTEN && CookieOf(message.id) == cookie;
}

int ErrorOf(const nlmsghdr* header) {
  if (header->nlmsg_len < NLMSG_LENGTH(sizeof(nlmsgerr))) return EPROTO;
  nlmsgerr error;
  std::memcpy(&error, NLMSG_DATA(header), sizeof error);
  return -error.error;
}

}  // namespace

bool ListenerWatch::StillListening(const ListenerFacts& listener) {
  std::optional<bool> listening = AskExact(listener);
  // The kernel looks up by address and may meet another member of an SO_REUSEPORT group.
  if (listening == false) listening = AskAll(listener);
  return listening ? *listening : ListensAccordingToProc(listener);
}

std::optional<bool> ListenerWatch::AskExact(const ListenerFacts& listener) {
  if (!Send(listener, 0)) return std::nullopt;
  alignas(nlmsghdr) std::array<char, 4096> buffer;
  const ssize_t received = recv(netlink_.get(), buffer.data(), buffer.size(), 0);
  const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data());
  if (received < 0 || !NLMSG_OK(header, static_cast<size_t>(received)) || header->nlmsg_seq != sequence_) {
    netlink_.Reset();  // out of step: the next question starts afresh
    return std::nullopt;
  }
  if (header->nlmsg_type == SOCK_DIAG_BY_FAMILY) return IsListener(header, listener.cookie);
  const int error = header->nlmsg_type == NLMSG_ERROR ? ErrorOf(header) : EPROTO;
  if (error != ENOENT && error != ESTALE) return std::nullopt;
  return false;
}

std::optional<bool> ListenerWatch::AskAll(const ListenerFacts& listener) {
  if (!Send(listener, NLM_F_DUMP)) return std::nullopt;
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  bool found = false;
  while (true) {
    const ssize_t received = recv(netlink_.get(), buffer.data(), buffer.size(), 0);
    if (received <= 0) {
      netlink_.Reset();
      return std::nullopt;
    }
    auto left = static_cast<size_t>(received);
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_seq != sequence_ || header->nlmsg_type == NLMSG_ERROR) {
        netlink_.Reset();
        return std::nullopt;
      }
      if (header->nlmsg_type == NLMSG_DONE) return found;
      found = found || IsListener(header, listener.cookie);
    }
  }
}

bool ListenerWatch::Send(const ListenerFacts& listener, uint16_t flags) {
  if (!netlink_) {
    netlink_.Reset(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    const timeval limit{1, 0};
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    if (!netlink_ || setsockopt(netlink_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        connect(netlink_.get(), reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) != 0) {
      netlink_.Reset();
      return false;
    }
  }
  Request request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  request.header.nlmsg_seq = ++sequence_;
  request.body.sdiag_family = static_cast<uint8_t>(listener.family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = 1u << TCP_LISTEN;
  inet_diag_sockid& id = request.body.id;
  id.idiag_sport = htons(listener.address.port);
  std::memcpy(id.idiag_src, listener.address.address.data(), sizeof id.idiag_src);
  id.idiag_if =
      static_cast<uint32_t>(listener.device != 0 ? listener.device : static_cast<int>(listener.scope_id));
  id.idiag_cookie[0] = static_cast<uint32_t>(listener.cookie);
  id.idiag_cookie[1] = static_cast<uint32_t>(listener.cookie >> 32);
  // The kernel takes the IPv4 path only if both ends are v4-mapped.
  if (listener.family == AF_INET6 && NormalizeMapped(listener.address).version == IpVersion::kV4) {
    id.idiag_dst[2] = htonl(0xffff);
  }
  return send(netlink_.get(), &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request);
}

bool ListensAccordingToProc(const ListenerFacts& listener) {
  const char* path = listener.family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6";
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), std::fclose);
  if (!file) return false;
  std::array<char, 512> line;
  while (std::fgets(line.data(), static_cast<int>(line.size()), file.get()) != nullptr) {
    unsigned port = 0;
    unsigned state = 0;
    uint64_t inode = 0;
    // sl local_address:port rem_address:port st queues timer retransmits uid timeout inode
    if (std::sscanf(line.data(), " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %" SCNu64,
                    &port, &state, &inode) != 3) {
      continue;
    }
    if (state == TCP_LISTEN && port == listener.address.port && inode == listener.inode) return true;
  }
  return false;
}

}  // namespace sdp::pm
