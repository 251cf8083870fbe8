#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>

#include "tools/kernel/tcp_sockets.h"

namespace sdp::kernel {

namespace {

constexpr uint32_t kEstablishedAndClosing = (1 << 1) | (1 << 4) | (1 << 5) | (1 << 8) | (1 << 9) | (1 << 11);
constexpr int kAnswerBytes = 32 * 1024;

// Address and port; an IPv4-mapped address is the IPv4 one, since the two ends of a connection may name it
// differently.
std::string Key(const uint8_t* ip, size_t size, uint16_t port) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (size == 16 && std::memcmp(ip, kMapped, sizeof kMapped) == 0) {
    ip += 12;
    size = 4;
  }
  std::string key(reinterpret_cast<const char*>(ip), size);
  key.push_back(static_cast<char>(port >> 8));
  key.push_back(static_cast<char>(port & 0xff));
  return key;
}

std::string Key(const stats::Address& address) {
  return Key(address.ip, address.family == 4 ? 4 : 16, address.port);
}

}  // namespace

class LinkTableReader {
 public:
  explicit LinkTableReader(LinkTable* out)
      : out_(out), fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {
    const timeval patience{.tv_sec = 1, .tv_usec = 0};
    if (fd_ >= 0) setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~LinkTableReader() {
    if (fd_ >= 0) close(fd_);
  }
  LinkTableReader(const LinkTableReader&) = delete;
  LinkTableReader& operator=(const LinkTableReader&) = delete;

  void Read(uint8_t family) {
    struct {
      nlmsghdr header;
      inet_diag_req_v2 request;
    } message{};
    message.header.nlmsg_len = sizeof message;
    message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.request.sdiag_family = family;
    message.request.sdiag_protocol = IPPROTO_TCP;
    message.request.idiag_ext = 1 << (INET_DIAG_INFO - 1);
    message.request.idiag_states = kEstablishedAndClosing;
    if (fd_ < 0 || send(fd_, &message, sizeof message, 0) != sizeof message) return;
    for (bool more = true; more;) {
      alignas(nlmsghdr) char answer[kAnswerBytes];
      const ssize_t size = recv(fd_, answer, sizeof answer, 0);
      more = size > 0 && TakeAnswer(answer, static_cast<size_t>(size), family);
    }
  }

 private:
  // False at the end of the dump.
  bool TakeAnswer(const char* answer, size_t size, uint8_t family) {
    auto left = static_cast<unsigned>(size);
    for (auto* header = reinterpret_cast<const nlmsghdr*>(answer); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) return false;
      if (header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) continue;
      TakeSocket(reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(header)), header->nlmsg_len, family);
    }
    return true;
  }

  void TakeSocket(const inet_diag_msg* message, unsigned length, uint8_t family) {
    auto left = length - static_cast<unsigned>(NLMSG_LENGTH(sizeof *message));
    const auto* attribute = reinterpret_cast<const rtattr*>(message + 1);
    for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
      if (attribute->rta_type != INET_DIAG_INFO) continue;
      tcp_info info{};  // an older kernel's is shorter
      std::memcpy(&info, RTA_DATA(attribute), std::min<size_t>(RTA_PAYLOAD(attribute), sizeof info));
      const size_t size = family == AF_INET ? 4 : 16;
      const inet_diag_sockid& id = message->id;
      out_->links_[{Key(reinterpret_cast<const uint8_t*>(id.idiag_src), size, ntohs(id.idiag_sport)),
                    Key(reinterpret_cast<const uint8_t*>(id.idiag_dst), size, ntohs(id.idiag_dport))}] = {
          .rtt_us = info.tcpi_rtt,
          .rtt_variance_us = info.tcpi_rttvar,
          .retransmissions = info.tcpi_total_retrans,
          .congestion_window = info.tcpi_snd_cwnd,
          .delivery_rate = info.tcpi_delivery_rate};
    }
  }

  LinkTable* const out_;
  const int fd_;
};

LinkTable LinkTable::Read() {
  LinkTable table;
  LinkTableReader reader(&table);
  reader.Read(AF_INET);
  reader.Read(AF_INET6);
  return table;
}

const LinkFacts* LinkTable::Find(const stats::Address& local, const stats::Address& peer) const {
  const auto found = links_.find({Key(local), Key(peer)});
  return found == links_.end() ? nullptr : &found->second;
}

}  // namespace sdp::kernel
