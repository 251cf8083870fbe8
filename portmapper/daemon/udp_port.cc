#include "portmapper/daemon/udp_port.h"

#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "portmapper/daemon/port_holder.h"

namespace sdp::pm {
namespace {

constexpr int kBatchSize = 64;
constexpr int kBatchesPerWakeup = 8;  // then the other descriptors have their turn

union PacketInfo {
  in_pktinfo v4;
  in6_pktinfo v6;
};

absl::Status SetOption(int fd, int level, int name) {
  const int on = 1;
  if (setsockopt(fd, level, name, &on, sizeof on) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "setsockopt");
}

// A socket bound to one address answers from it anyway.
absl::Status Prepare(int fd, const Endpoint& address) {
  if (address.version == IpVersion::kV4) {
    return address.IsWildcard() ? SetOption(fd, IPPROTO_IP, IP_PKTINFO) : absl::OkStatus();
  }
  absl::Status status = SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY);
  if (address.IsWildcard()) status.Update(SetOption(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO));
  return status;
}

// Lets through what has a message's length, version 0, IPV 4 or 6, and is a PMReq or a PMAck, or, where
// wanted, is an announcement: a flood of anything else does not fill the queue. What is let through is parsed
// all the same.
absl::Status AttachFilter(int fd, Announcements announcements) {
  constexpr uint32_t kMessage = 0x04;      // Ver 0, MT 0 or 2, IPV 4 or 6
  constexpr uint32_t kMessageMask = 0xdd;  // all but the higher bit of MT and the one that tells 4 from 6
  constexpr uint32_t kAnnounce = 0x44;     // Ver 1, MT 0, IPV 4 or 6
  constexpr uint32_t kAnnounceMask = 0xfd;
  const uint32_t second = announcements == Announcements::kHeard ? kAnnounce : kMessage;
  std::array<sock_filter, 9> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(udphdr) + kPmMessageSize, 0, 5),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, sizeof(udphdr)),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kAnnounceMask | kMessageMask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 3, 0),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kMessageMask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMessage, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
  }};
  const sock_fprog filter{program.size(), program.data()};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "SO_ATTACH_FILTER");
}

int MakeSocket(const Endpoint& address) {
  return socket(address.version == IpVersion::kV4 ? AF_INET : AF_INET6,
                SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

absl::Status SharePort(int fd, int on) {
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "SO_REUSEPORT");
}

absl::Status Fail(const Endpoint& address) {
  if (errno == EADDRNOTAVAIL) {
    return absl::UnavailableError(absl::StrCat(
        "UDP ", address.ToString(), ": this host has no such address; `ip address` lists its own"));
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("UDP ", address.ToString()));
}

// Of one of this host's networks. Such an address can be bound, but nobody is answered from it.
bool IsDirectedBroadcast(const Endpoint& address) {
  if (address.version != IpVersion::kV4 || address.IsWildcard()) return false;
  const UniqueFd probe(MakeSocket(address));
  Endpoint target = address;
  target.port = kPmUdpPort;
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(target, &name);
  // The kernel lets nobody send to one who has not asked for SO_BROADCAST.
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0 && errno == EACCES;
}

std::string WhyTaken(const Endpoint& address) {
  const std::string holder = HolderOfUdpPort(address.port);
  return absl::StrCat("UDP port ", address.port, " is taken on ", address.ToString(), " by ",
                      holder.empty() ? "a process that is gone by now" : holder,
                      ". Clients believe its answers: stop it, or choose another port with --listen and tell "
                      "the clients by SDP_PM_PORT");
}

}  // namespace

struct UdpPort::Batch {
  // A byte more than a message: a longer datagram is seen to be longer.
  std::array<std::array<std::byte, kPmMessageSize + 1>, kBatchSize> received;
  std::array<Datagram, kBatchSize> answers;
  std::array<sockaddr_storage, kBatchSize> peers;
  struct alignas(cmsghdr) Control {
    char bytes[CMSG_SPACE(sizeof(PacketInfo))];
  };
  std::array<Control, kBatchSize> control;
  std::array<iovec, kBatchSize> receive_data;
  std::array<iovec, kBatchSize> send_data;
  std::array<mmsghdr, kBatchSize> in;
  std::array<mmsghdr, kBatchSize> out;
  // Of `in`, how many recvmmsg has written to (they have to be made anew), and for which kind of socket they
  // are made.
  int used = kBatchSize;
  bool with_control = false;

  void Prepare(bool wants_control);
};

void UdpPort::Batch::Prepare(bool wants_control) {
  if (with_control != wants_control) used = kBatchSize;
  with_control = wants_control;
  for (int i = 0; i < used; ++i) {
    receive_data[i] = {received[i].data(), received[i].size()};
    msghdr& header = in[i].msg_hdr;
    header = {};
    header.msg_name = &peers[i];
    header.msg_namelen = sizeof peers[i];
    header.msg_iov = &receive_data[i];
    header.msg_iovlen = 1;
    if (!with_control) continue;
    header.msg_control = control[i].bytes;
    header.msg_controllen = sizeof control[i].bytes;
  }
  used = 0;
}

UdpPort::UdpPort(UniqueFd fd, const Endpoint& local) : fd_(std::move(fd)), local_(local) {}

absl::StatusOr<UdpPort> UdpPort::Open(const Endpoint& address) {
  UniqueFd fd(MakeSocket(address));
  if (!fd && errno == EAFNOSUPPORT) return absl::UnavailableError("this host has no such address family");
  if (!fd) return Fail(address);
  if (IsDirectedBroadcast(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", address.ToString(),
                     ": a broadcast address; name an address of this host, or none to serve them all"));
  }
  absl::StatusOr<UdpPort> port = Bind(std::move(fd), address);
  if (port.ok()) port->batch_ = std::make_shared<Batch>();
  return port;
}

absl::StatusOr<UdpPort> UdpPort::OpenBeside(const Endpoint& address) const {
  UniqueFd fd(MakeSocket(address));
  if (!fd) return Fail(address);
  // Only sockets that both want to share a port, of one user, do.
  const int theirs = fd.get();
  absl::Status status = SharePort(fd_.get(), 1);
  status.Update(SharePort(theirs, 1));
  if (!status.ok()) return status;
  absl::StatusOr<UdpPort> port = Bind(std::move(fd), address);
  status.Update(SharePort(fd_.get(), 0));
  if (!port.ok()) return port;
  status.Update(SharePort(theirs, 0));
  if (!status.ok()) return status;
  port->batch_ = batch_;
  return port;
}

absl::StatusOr<UdpPort> UdpPort::Bind(UniqueFd fd, const Endpoint& address) {
  if (const absl::Status status = Prepare(fd.get(), address); !status.ok()) return status;
  if (const absl::Status status = AttachFilter(fd.get(), Announcements::kDropped); !status.ok())
    return status;
  // A burst of clients is absorbed rather than dropped; the kernel may grant less.
  const int receive_buffer = 4 << 20;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &receive_buffer, sizeof receive_buffer) != 0) {
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }

  sockaddr_storage name;
  socklen_t length = ToSockaddr(address, &name);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    return errno == EADDRINUSE ? absl::AlreadyExistsError(WhyTaken(address)) : Fail(address);
  }
  length = sizeof name;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &length);
  return UdpPort(std::move(fd), FromSockaddr(name).value_or(address));
}

namespace {

// The address the question was sent to, if it was sent to this host alone: the control message that came with
// the question becomes the one that goes with the answer.
bool AnswerFromAddressAsked(msghdr* header) {
  cmsghdr* control = CMSG_FIRSTHDR(header);
  if (control == nullptr || (header->msg_flags & MSG_CTRUNC) != 0) return false;
  if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_PKTINFO) {
    in_pktinfo info;
    std::memcpy(&info, CMSG_DATA(control), sizeof info);
    if (info.ipi_addr.s_addr != info.ipi_spec_dst.s_addr) return false;
    info.ipi_ifindex = 0;  // the way back is the routing table's choice
    std::memcpy(CMSG_DATA(control), &info, sizeof info);
    return true;
  }
  if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_PKTINFO) {
    in6_pktinfo info;
    std::memcpy(&info, CMSG_DATA(control), sizeof info);
    if (IN6_IS_ADDR_MULTICAST(&info.ipi6_addr)) return false;
    if (!IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) info.ipi6_ifindex = 0;
    std::memcpy(CMSG_DATA(control), &info, sizeof info);
    return true;
  }
  return false;
}

}  // namespace

absl::Status UdpPort::SetFilter(Announcements announcements) const {
  return AttachFilter(fd_.get(), announcements);
}

uint32_t UdpPort::dropped_by_kernel() const {
  std::array<uint32_t, SK_MEMINFO_VARS> info{};
  socklen_t length = sizeof info;
  getsockopt(fd_.get(), SOL_SOCKET, SO_MEMINFO, info.data(), &length);
  return info[SK_MEMINFO_DROPS];
}

bool UdpPort::Answerable(msghdr* question) {
  // Bound to one address, which is not a multicast one: nothing else arrives.
  return local_.IsWildcard() ? AnswerFromAddressAsked(question) : true;
}

void UdpPort::HandleReadable(Serve serve) {
  for (int round = 0; round < kBatchesPerWakeup; ++round) {
    const int received = ReceiveBatch();
    int answers = 0;
    for (int i = 0; i < received; ++i) {
      msghdr& question = batch_->in[i].msg_hdr;
      const auto source = FromSockaddr(batch_->peers[i]);
      if (!source || !Answerable(&question)) {
        ++not_unicast_;
        continue;
      }
      const auto answer = serve(Bytes(batch_->received[i]).first(batch_->in[i].msg_len), *source);
      if (!answer) continue;
      batch_->answers[answers] = *answer;
      batch_->send_data[answers] = {batch_->answers[answers].data(), kPmMessageSize};
      msghdr& reply = batch_->out[answers].msg_hdr;
      reply = question;
      reply.msg_flags = 0;
      reply.msg_iov = &batch_->send_data[answers];
      reply.msg_iovlen = 1;
      ++answers;
    }
    SendAnswers(answers);
    // While these were answered others came, if many ask: to look is cheaper than to be told by epoll.
    if (received == 0) return;
  }
}

int UdpPort::ReceiveBatch() {
  batch_->Prepare(local_.IsWildcard());
  batch_->used = std::max(recvmmsg(fd_.get(), batch_->in.data(), kBatchSize, MSG_DONTWAIT, nullptr), 0);
  return batch_->used;
}

void UdpPort::SendAnswers(int count) {
  for (int sent = 0; sent < count;) {
    const int n =
        sendmmsg(fd_.get(), batch_->out.data() + sent, static_cast<unsigned>(count - sent), MSG_DONTWAIT);
    if (n > 0) {
      sent += n;
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      ++unsent_;  // this one cannot be sent; its client asks again
      ++sent;
    }
  }
}

}  // namespace sdp::pm
