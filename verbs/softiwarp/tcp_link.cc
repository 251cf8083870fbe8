#include "verbs/softiwarp/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "core/base/check.h"
#include "verbs/softiwarp/link_calls.h"

namespace sdp::iwarp {
namespace {

LinkResult Judge(ssize_t n) {
  if (n > 0) return {.kind = LinkResult::Kind::kOk, .bytes = static_cast<size_t>(n)};
  if (n == 0) return {.kind = LinkResult::Kind::kEof};
  // A signal can interrupt TCP's send while it waits for memory; the kernel took nothing then.
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
    return {.kind = LinkResult::Kind::kWouldBlock};
  return {.kind = LinkResult::Kind::kError, .error = errno};
}

}  // namespace

LinkResult TcpLink::Read(std::span<const MutableBytes> parts) const {
  const LinkCalls& calls = link_calls();
  if (parts.size() == 1 && calls.recv != nullptr)
    return Judge(calls.recv(fd_, parts[0].data(), parts[0].size(), MSG_DONTWAIT));
  SDP_CHECK(parts.size() <= kMaxParts);
  std::array<iovec, kMaxParts> ranges;
  for (size_t i = 0; i < parts.size(); ++i) ranges[i] = {parts[i].data(), parts[i].size()};
  msghdr message{};
  message.msg_iov = ranges.data();
  message.msg_iovlen = parts.size();
  return Judge(calls.recvmsg(fd_, &message, MSG_DONTWAIT));
}

LinkResult TcpLink::Peek(std::byte* first) const {
  iovec part{.iov_base = first, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return Judge(link_calls().recvmsg(fd_, &message, MSG_PEEK | MSG_DONTWAIT));
}

LinkResult TcpLink::Write(std::span<const iovec> parts, bool more) const {
  const LinkCalls& calls = link_calls();
  const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0);
  if (parts.size() == 1 && calls.send != nullptr)
    return Judge(calls.send(fd_, parts[0].iov_base, parts[0].iov_len, flags));
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return Judge(calls.sendmsg(fd_, &message, flags));
}

LinkResult TcpLink::WriteFile(int file, off64_t offset, size_t size) const {
  return Judge(link_calls().sendfile(fd_, file, &offset, size));
}

void TcpLink::AcknowledgeAtOnce() const {
  const int one = 1;
  link_calls().setsockopt(fd_, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
}

void TcpLink::Cork(bool on) const {
  const int value = on ? 1 : 0;
  link_calls().setsockopt(fd_, IPPROTO_TCP, TCP_CORK, &value, sizeof value);
}

void TcpLink::ShutdownWrite() const { link_calls().shutdown(fd_, SHUT_WR); }

void TcpLink::Abort() const {
  const LinkCalls& calls = link_calls();
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  if (calls.connect != nullptr && calls.connect(fd_, &nobody, sizeof nobody) == 0) return;
  // A filter forbids this connect, or the kernel (Linux 6.4 to 6.6) refuses it while a thread waits for the
  // link. SHUT_RD sends nothing: a FIN would look like an orderly end to the peer.
  const linger reset{.l_onoff = 1, .l_linger = 0};
  calls.setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  calls.shutdown(fd_, SHUT_RD);
}

uint8_t TcpLink::State() const {
  const int error = errno;
  uint8_t state = 0;  // tcp_info's first member
  socklen_t length = sizeof state;
  const bool known = link_calls().getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &state, &length) == 0;
  errno = error;
  return known ? state : 0;
}

bool TcpLink::PeerEnded() const {
  const uint8_t state = State();
  return state != TCP_ESTABLISHED && state != TCP_FIN_WAIT1 && state != TCP_FIN_WAIT2;
}

bool TcpLink::Over() const { return State() == TCP_CLOSE; }

uint32_t TcpLink::SegmentSize() const {
  int size = 0;
  socklen_t length = sizeof size;
  if (link_calls().getsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &size, &length) != 0 || size < 0) return 0;
  return static_cast<uint32_t>(size);
}

}  // namespace sdp::iwarp
