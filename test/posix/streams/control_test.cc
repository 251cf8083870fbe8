// What comes beside the bytes: control messages of sendmsg and recvmsg, the error queue, MSG_ZEROCOPY.
#include <time.h>

// Behind time.h, which it needs.
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "test/posix/support.h"

namespace posix_test {
namespace {

struct Received {
  ssize_t bytes = -1;
  int error = 0;
  int flags = 0;
  std::vector<char> control;

  // The data of the first control message of this kind; empty if there is none.
  std::vector<char> Find(int level, int type) const {
    msghdr message{};
    message.msg_control = const_cast<char*>(control.data());
    message.msg_controllen = control.size();
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != level || c->cmsg_type != type) continue;
      const auto* const data = reinterpret_cast<const char*>(CMSG_DATA(c));
      return {data, data + c->cmsg_len - CMSG_LEN(0)};
    }
    return {};
  }
};

Received ReceiveMessage(int fd, int flags = 0, size_t room = 256, size_t size = 64) {
  char data[64];
  alignas(cmsghdr) char control[256];
  iovec piece{.iov_base = data, .iov_len = size};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = room;
  Received received;
  received.bytes = recvmsg(fd, &message, flags);
  received.error = errno;
  received.flags = message.msg_flags;
  if (received.bytes >= 0) received.control.assign(control, control + message.msg_controllen);
  return received;
}

template <typename T>
T As(const std::vector<char>& bytes) {
  REQUIRE(bytes.size() == sizeof(T));
  T value;
  memcpy(&value, bytes.data(), sizeof value);
  return value;
}

TEST_CASE("control: TCP_INQ tells what is left") {
  Pair pair = MakePair();
  SetOption(pair.server, IPPROTO_TCP, TCP_INQ, 1);
  REQUIRE(GetOption(pair.server, IPPROTO_TCP, TCP_INQ) == 1);
  REQUIRE(SendAll(pair.client, "0123456789"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  Received got = ReceiveMessage(pair.server, 0, 256, 4);
  REQUIRE(got.bytes == 4);
  REQUIRE(As<int>(got.Find(SOL_TCP, TCP_CM_INQ)) == 6);
  got = ReceiveMessage(pair.server);
  REQUIRE(got.bytes == 6);
  REQUIRE(As<int>(got.Find(SOL_TCP, TCP_CM_INQ)) == 0);
  REQUIRE(SendAll(pair.client, "0123"));
  REQUIRE(SendAll(pair.client, "456"));
  got = ReceiveMessage(pair.server, 0, 256, 4);
  REQUIRE(got.bytes == 4);
  REQUIRE(As<int>(got.Find(SOL_TCP, TCP_CM_INQ)) == 3);
  REQUIRE(ReceiveMessage(pair.server).bytes == 3);
  REQUIRE(SendAll(pair.client, "end"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  got = ReceiveMessage(pair.server);
  REQUIRE(got.bytes == 3);
  REQUIRE(As<int>(got.Find(SOL_TCP, TCP_CM_INQ)) == 1);  // the end is worth a call
}

TEST_CASE("control: no room for a message cuts it and says so") {
  Pair pair = MakePair();
  SetOption(pair.server, IPPROTO_TCP, TCP_INQ, 1);
  REQUIRE(SendAll(pair.client, "abc"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  Received got = ReceiveMessage(pair.server, 0, 4, 1);
  REQUIRE((got.flags & MSG_CTRUNC) != 0);
  REQUIRE(got.control.empty());
  got = ReceiveMessage(pair.server, 0, sizeof(cmsghdr) + 2, 1);
  REQUIRE((got.flags & MSG_CTRUNC) != 0);
  REQUIRE(got.control.size() == sizeof(cmsghdr) + 2);
  got = ReceiveMessage(pair.server, 0, CMSG_SPACE(sizeof(int)), 1);
  REQUIRE((got.flags & MSG_CTRUNC) == 0);
}

TEST_CASE("control: when the bytes came") {
  Pair pair = MakePair();
  timespec before;
  clock_gettime(CLOCK_REALTIME, &before);
  SetOption(pair.server, SOL_SOCKET, SO_TIMESTAMPNS, 1);
  REQUIRE(SendAll(pair.client, "stamped"));
  // The kernel begins to note times a moment after the option is set.
  Received got = ReceiveMessage(pair.server);
  REQUIRE(got.bytes == 7);
  REQUIRE(SendAll(pair.client, "stamped"));
  got = ReceiveMessage(pair.server);
  if (!got.Find(SOL_SOCKET, SCM_TIMESTAMPNS).empty()) {
    const auto when = As<timespec>(got.Find(SOL_SOCKET, SCM_TIMESTAMPNS));
    REQUIRE(when.tv_sec >= before.tv_sec);
    REQUIRE(when.tv_sec <= before.tv_sec + 30);
  }
  SetOption(pair.server, SOL_SOCKET, SO_TIMESTAMPNS, 0);
  REQUIRE(SendAll(pair.client, "plain"));
  REQUIRE(ReceiveMessage(pair.server).Find(SOL_SOCKET, SCM_TIMESTAMPNS).empty());
  SetOption(pair.server, SOL_SOCKET, SO_TIMESTAMP, 1);
  REQUIRE(SendAll(pair.client, "microseconds"));
  got = ReceiveMessage(pair.server);
  if (!got.Find(SOL_SOCKET, SCM_TIMESTAMP).empty()) {
    const auto when = As<timeval>(got.Find(SOL_SOCKET, SCM_TIMESTAMP));
    REQUIRE(when.tv_sec >= before.tv_sec);
    REQUIRE(when.tv_usec < 1'000'000);
  }
}

// sendmsg of three bytes with one control message.
int SendWithControl(int fd, int level, int type, const void* data, size_t size, size_t length_told) {
  char bytes[3] = {'a', 'b', 'c'};
  alignas(cmsghdr) char control[128] = {};
  iovec piece{.iov_base = bytes, .iov_len = sizeof bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(size);
  cmsghdr* const c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = length_told;
  memcpy(CMSG_DATA(c), data, size);
  errno = 0;
  const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
  return sent == 3 ? 0 : errno;
}

TEST_CASE("control: messages with data that is sent") {
  Pair pair = MakePair();
  const int zero = 0;
  const int rights = STDIN_FILENO;
  const size_t whole = CMSG_LEN(sizeof(int));
  REQUIRE(SendWithControl(pair.client, SOL_SOCKET, SCM_RIGHTS, &rights, sizeof rights, whole) == 0);
  REQUIRE(SendWithControl(pair.client, IPPROTO_IP, IP_TTL, &zero, sizeof zero, whole) == 0);
  REQUIRE(SendWithControl(pair.client, SOL_SOCKET, SO_TIMESTAMPING, &zero, sizeof zero, whole) == 0);
  REQUIRE(SendWithControl(pair.client, SOL_SOCKET, SO_TIMESTAMPING, &zero, sizeof zero, CMSG_LEN(2)) ==
          EINVAL);
  REQUIRE(SendWithControl(pair.client, SOL_SOCKET, 9999, &zero, sizeof zero, whole) == EINVAL);
  REQUIRE(SendWithControl(pair.client, SOL_SOCKET, SCM_RIGHTS, &rights, sizeof rights, 3) == EINVAL);
  REQUIRE(SendWithControl(pair.client, SOL_SOCKET, SCM_RIGHTS, &rights, sizeof rights, 4096) == EINVAL);
  REQUIRE(ReceiveExactly(pair.server, 9) == "abcabcabc");
  char byte;
  REQUIRE_ERRNO(recv(pair.server, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

TEST_CASE("control: an error queue that is empty") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "data is no error"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  char byte;
  REQUIRE_ERRNO(recv(pair.server, &byte, 1, MSG_ERRQUEUE), EAGAIN);
  const Received got = ReceiveMessage(pair.server, MSG_ERRQUEUE);
  REQUIRE(got.bytes == -1);
  REQUIRE(got.error == EAGAIN);
  REQUIRE(ReceiveExactly(pair.server, 16) == "data is no error");
}

TEST_CASE("control: MSG_ZEROCOPY without the option is an ordinary send") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "plain", 5, MSG_ZEROCOPY) == 5);
  REQUIRE(ReceiveExactly(pair.server, 5) == "plain");
  char byte;
  REQUIRE_ERRNO(recv(pair.client, &byte, 1, MSG_ERRQUEUE), EAGAIN);
  REQUIRE_ERRNO(recv(pair.client, nullptr, 0, MSG_ERRQUEUE), EAGAIN);  // never waits
}

// Reads notices until `count` sends are told of. Each has to go on where the last one ended.
void ExpectNotices(int fd, int family, uint32_t first, uint32_t count) {
  const uint32_t end = first + count;
  while (first != end) {
    REQUIRE(WaitFor(fd, POLLERR));
    const Received got = ReceiveMessage(fd, MSG_ERRQUEUE);
    REQUIRE(got.bytes == 0);
    REQUIRE((got.flags & MSG_ERRQUEUE) != 0);
    const bool six = family == AF_INET6;
    const std::vector<char> notice = got.Find(six ? SOL_IPV6 : SOL_IP, six ? IPV6_RECVERR : IP_RECVERR);
    REQUIRE(notice.size() == sizeof(sock_extended_err) + (six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)));
    sock_extended_err error;
    memcpy(&error, notice.data(), sizeof error);
    REQUIRE(error.ee_errno == 0);
    REQUIRE(error.ee_origin == SO_EE_ORIGIN_ZEROCOPY);
    REQUIRE((error.ee_code & ~SO_EE_CODE_ZEROCOPY_COPIED) == 0);
    REQUIRE(error.ee_info == first);
    REQUIRE(error.ee_data - first < count);
    first = error.ee_data + 1;
  }
}

TEST_CASE("control: MSG_ZEROCOPY tells on the error queue when the memory is free") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Pair pair = MakePair(family);
  SetOption(pair.client, SOL_SOCKET, SO_ZEROCOPY, 1);
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_ZEROCOPY) == 1);
  const std::string data = Pattern(40'000);
  REQUIRE(send(pair.client, data.data(), data.size(), MSG_ZEROCOPY) == static_cast<ssize_t>(data.size()));
  REQUIRE(ReceiveExactly(pair.server, data.size()) == data);
  ExpectNotices(pair.client, family, 0, 1);
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_ERROR) == 0);
  REQUIRE((PollOne(pair.client, POLLOUT, 0) & POLLERR) == 0);
  for (int i = 0; i < 5; ++i) {
    const iovec piece{.iov_base = const_cast<char*>(data.data()), .iov_len = data.size()};
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(&piece);
    message.msg_iovlen = 1;
    REQUIRE(sendmsg(pair.client, &message, MSG_ZEROCOPY) == static_cast<ssize_t>(data.size()));
    REQUIRE(ReceiveExactly(pair.server, data.size()) == data);
  }
  ExpectNotices(pair.client, family, 1, 5);
  REQUIRE(send(pair.client, data.data(), 100, 0) == 100);  // one that is not counted
  REQUIRE(send(pair.client, data.data(), 100, MSG_ZEROCOPY) == 100);
  REQUIRE(ReceiveExactly(pair.server, 200).size() == 200);
  ExpectNotices(pair.client, family, 6, 1);
}

TEST_CASE("control: epoll hears of a notice, and recv does not take it for data") {
  Pair pair = MakePair();
  SetOption(pair.client, SOL_SOCKET, SO_ZEROCOPY, 1);
  Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLET, .data = {.fd = pair.client}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.client, &event) == 0);
  REQUIRE(epoll_wait(set, &event, 1, 0) == 0);
  const std::string data = Pattern(10'000);
  REQUIRE(send(pair.client, data.data(), data.size(), MSG_ZEROCOPY) == static_cast<ssize_t>(data.size()));
  REQUIRE(ReceiveExactly(pair.server, data.size()) == data);
  REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
  REQUIRE((event.events & EPOLLERR) != 0);
  char byte;
  REQUIRE_ERRNO(recv(pair.client, &byte, 1, MSG_DONTWAIT), EAGAIN);
  REQUIRE(recv(pair.client, &byte, 1, MSG_ERRQUEUE) == 0);
  REQUIRE_ERRNO(recv(pair.client, &byte, 1, MSG_ERRQUEUE), EAGAIN);
}

TEST_CASE("control: MSG_TRUNC drops what it counts") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "dropped|kept"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, nullptr, 8, MSG_TRUNC) == 8);
  const Received got = ReceiveMessage(pair.server);
  REQUIRE(got.bytes == 4);
  REQUIRE((got.flags & MSG_TRUNC) == 0);
}

}  // namespace
}  // namespace posix_test
