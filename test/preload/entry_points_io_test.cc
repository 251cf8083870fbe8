#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <climits>
#include <cstring>

#include "test/preload/managed_descriptor.h"
#include "test/preload/prefixed_calls.h"

namespace sdp::preload {
namespace {

constexpr size_t kMost = 0x7ffff000;

TEST_CASE("read, recv and their like become one Receive") {
  ManagedDescriptor m;
  char b[8];
  errno = 0;
  CHECK(sdp_entry_read(m.fd, b, 8) == 8);
  CHECK(sdp_entry_recv(m.fd, b, 7, MSG_PEEK) == 7);
  iovec v[2] = {{b, 3}, {b + 3, 2}};
  CHECK(sdp_entry_readv(m.fd, v, 2) == 5);
  CHECK(sdp_entry___read_chk(m.fd, b, 8, 8) == 8);
  CHECK(sdp_entry___recv_chk(m.fd, b, 8, 8, 0) == 8);
  CHECK(errno == 0);
  CHECK(m.socket->calls == Calls{"Receive 8 flags 0", "Receive 7 flags " + std::to_string(MSG_PEEK),
                                 "Receive 5 flags 0", "Receive 8 flags 0", "Receive 8 flags 0"});
}

TEST_CASE("write, send and their like become one Send") {
  ManagedDescriptor m;
  CHECK(sdp_entry_write(m.fd, "abc", 3) == 3);
  CHECK(sdp_entry_send(m.fd, "de", 2, MSG_MORE) == 2);
  char f[] = "fg";
  iovec v[2] = {{f, 1}, {f + 1, 1}};
  CHECK(sdp_entry_writev(m.fd, v, 2) == 2);
  sockaddr_in address{};
  CHECK(sdp_entry_sendto(m.fd, "h", 1, 0, reinterpret_cast<sockaddr*>(&address), sizeof address) == 1);
  CHECK(m.socket->sent == "abcdefgh");
  CHECK(m.socket->calls[1] == "Send 2 flags " + std::to_string(MSG_MORE));
}

TEST_CASE("Lengths are judged as the kernel judges them") {
  ManagedDescriptor m;
  char b[1];
  CHECK(sdp_entry_read(m.fd, b, 0) == 0);
  CHECK(sdp_entry_readv(m.fd, nullptr, 0) == 0);
  CHECK(m.socket->calls.empty());

  errno = 0;
  CHECK(sdp_entry_read(m.fd, b, SIZE_MAX) == -1);
  CHECK(errno == EINVAL);
  CHECK(sdp_entry_write(m.fd, b, size_t{SSIZE_MAX} + 1) == -1);
  iovec negative = {b, SIZE_MAX};
  CHECK(sdp_entry_writev(m.fd, &negative, 1) == -1);
  CHECK(sdp_entry_readv(m.fd, &negative, -1) == -1);
  std::vector<iovec> many(1025, iovec{b, 1});
  errno = 0;
  CHECK(sdp_entry_readv(m.fd, many.data(), 1025) == -1);
  CHECK(errno == EINVAL);
  msghdr message{};
  message.msg_iov = many.data();
  message.msg_iovlen = many.size();
  CHECK(sdp_entry_sendmsg(m.fd, &message, 0) == -1);
  CHECK(errno == EMSGSIZE);
  CHECK(m.socket->calls.empty());

  m.socket->results = {1, 1, 1};
  void* const memory = mmap(nullptr, kMost, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  iovec huge[3] = {{memory, kMost - 1}, {memory, kMost}, {memory, 5}};
  sdp_entry_writev(m.fd, huge, 3);
  sdp_entry_send(m.fd, memory, SIZE_MAX, 0);
  sdp_entry_write(m.fd, memory, SSIZE_MAX);
  munmap(memory, kMost);
  const std::string cut = "Send " + std::to_string(kMost) + " flags 0";
  CHECK(m.socket->calls == Calls{cut, cut, cut});
  CHECK(huge[1].iov_len == kMost);  // the caller's vector is not ours to change
}

TEST_CASE("A socket that has become TCP is the kernel's") {
  ManagedDescriptor m;
  m.socket->results.assign(100, kPassThrough);
  char b[16] = {};
  CHECK(sdp_entry_write(m.fd, "one", 3) == 3);
  CHECK(sdp_entry_send(m.fd, "two", 3, 0) == 3);
  CHECK(::read(m.peer, b, sizeof b) == 6);
  CHECK(std::string(b) == "onetwo");
  mmsghdr messages[2]{};
  iovec v = {b, 3};
  messages[0].msg_hdr.msg_iov = messages[1].msg_hdr.msg_iov = &v;
  messages[0].msg_hdr.msg_iovlen = messages[1].msg_hdr.msg_iovlen = 1;
  CHECK(sdp_entry_sendmmsg(m.fd, messages, 2, 0) == 2);
  CHECK(::read(m.peer, b, sizeof b) == 6);
  CHECK(sdp_entry_getsockname(m.fd, nullptr, nullptr) == -1);
  CHECK(errno == EFAULT);
}

TEST_CASE("A descriptor that is not ours is the kernel's") {
  ManagedDescriptor m;
  CHECK(sdp_entry_write(m.peer, "x", 1) == 1);
  char b[2];
  CHECK(::read(m.fd, b, 2) == 1);
  errno = 0;
  CHECK(sdp_entry_read(-1, b, 1) == -1);
  CHECK(errno == EBADF);
  CHECK(sdp_entry_sendfile(INT_MAX, 0, nullptr, 1) == -1);
  CHECK(errno == EBADF);
  CHECK(m.socket->calls.empty());
}

TEST_CASE("recvmsg and recvfrom report a stream: no sender, no control data") {
  ManagedDescriptor m;
  char b[4], name[32], control[32];
  iovec v = {b, 4};
  msghdr message{name, sizeof name, &v, 1, control, sizeof control, 0x7777};
  m.socket->out_flags = MSG_OOB;
  CHECK(sdp_entry_recvmsg(m.fd, &message, 0) == 4);
  CHECK(message.msg_namelen == 0);
  CHECK(message.msg_controllen == 0);
  CHECK(message.msg_flags == MSG_OOB);

  message = {name, sizeof name, &v, 1, control, sizeof control, 0x7777};
  m.socket->results = {-1};
  m.socket->error = EAGAIN;
  CHECK(sdp_entry_recvmsg(m.fd, &message, 0) == -1);
  CHECK(errno == EAGAIN);
  CHECK(message.msg_namelen == sizeof name);
  CHECK(message.msg_flags == 0x7777);

  socklen_t length = sizeof name;
  CHECK(sdp_entry_recvfrom(m.fd, b, 4, 0, reinterpret_cast<sockaddr*>(name), &length) == 4);
  CHECK(length == 0);
  CHECK(sdp_entry_recvfrom(m.fd, b, 4, 0, nullptr, nullptr) == 4);
  CHECK(sdp_entry_recvfrom(m.fd, b, 4, 0, reinterpret_cast<sockaddr*>(name), nullptr) == -1);
  CHECK(errno == EFAULT);
}

TEST_CASE("sendmmsg stops at the first message that does not go whole") {
  ManagedDescriptor m;
  char b[8] = {};
  iovec v = {b, 8};
  mmsghdr messages[3]{};
  for (mmsghdr& message : messages) {
    message.msg_hdr.msg_iov = &v;
    message.msg_hdr.msg_iovlen = 1;
  }
  m.socket->results = {8, 5};
  CHECK(sdp_entry_sendmmsg(m.fd, messages, 3, 0) == 2);
  CHECK(messages[0].msg_len == 8);
  CHECK(messages[1].msg_len == 5);
  m.socket->results = {8, -1};
  m.socket->error = EAGAIN;
  CHECK(sdp_entry_sendmmsg(m.fd, messages, 3, 0) == 1);
  m.socket->results = {-1};
  CHECK(sdp_entry_sendmmsg(m.fd, messages, 3, 0) == -1);
}

TEST_CASE("recvmmsg waits for one, or for a time") {
  ManagedDescriptor m;
  char b[8] = {};
  iovec v = {b, 8};
  mmsghdr messages[3]{};
  for (mmsghdr& message : messages) {
    message.msg_hdr.msg_iov = &v;
    message.msg_hdr.msg_iovlen = 1;
  }
  m.socket->results = {8, -1};
  m.socket->error = EAGAIN;
  CHECK(sdp_entry_recvmmsg(m.fd, messages, 3, MSG_WAITFORONE, nullptr) == 1);
  CHECK(m.socket->calls == Calls{"Receive 8 flags 0", "Receive 8 flags " + std::to_string(MSG_DONTWAIT)});

  timespec timeout = {0, 0};
  CHECK(sdp_entry_recvmmsg(m.fd, messages, 3, 0, &timeout) == 1);
  timeout = {1000, 0};
  CHECK(sdp_entry_recvmmsg(m.fd, messages, 3, 0, &timeout) == 3);
  CHECK((timeout.tv_sec == 999 && timeout.tv_nsec > 0));
  timeout = {LONG_MAX, 5};
  CHECK(sdp_entry_recvmmsg(m.fd, messages, 3, 0, &timeout) == 3);
  timeout = {0, 1'000'000'000};
  CHECK(sdp_entry_recvmmsg(m.fd, messages, 3, 0, &timeout) == -1);
  CHECK(errno == EINVAL);
}

TEST_CASE("MSG_FASTOPEN connects, then sends") {
  ManagedDescriptor m;
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  auto* to = reinterpret_cast<sockaddr*>(&address);
  CHECK(sdp_entry_sendto(m.fd, "ab", 2, MSG_FASTOPEN, to, sizeof address) == 2);
  CHECK(m.socket->calls == Calls{"Connect", "Send 2 flags 0"});
  m.socket->results = {-1};
  m.socket->error = EINPROGRESS;
  CHECK(sdp_entry_sendto(m.fd, "ab", 2, MSG_FASTOPEN, to, sizeof address) == -1);
  CHECK(errno == EINPROGRESS);
  CHECK(sdp_entry_sendto(m.fd, "ab", 2, 0, to, 1000) == -1);
  CHECK(errno == EINVAL);
}

TEST_CASE("A fortified program that would overflow its buffer ends") {
  ManagedDescriptor m;
  const auto call = GENERATE(0, 1, 2, 3, 4);
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    char b[8];
    pollfd p[1] = {};
    if (call == 0) sdp_entry___read_chk(m.fd, b, 9, 8);
    if (call == 1) sdp_entry___recv_chk(m.fd, b, 9, 8, 0);
    if (call == 2) sdp_entry___recvfrom_chk(m.fd, b, 9, 8, 0, nullptr, nullptr);
    if (call == 3) sdp_entry___poll_chk(p, 2, 0, sizeof p);
    if (call == 4) sdp_entry___ppoll_chk(p, 2, nullptr, nullptr, sizeof p);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
}

}  // namespace
}  // namespace sdp::preload
