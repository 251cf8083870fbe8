#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <climits>

#include "preload/config.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "test/preload/managed_descriptor.h"
#include "test/preload/prefixed_calls.h"

namespace sdp::preload {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }
bool IsSocket(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}
int OpenNull() { return open("/dev/null", O_RDWR); }
bool Contains(const Calls& calls, const std::string& call) {
  return std::find(calls.begin(), calls.end(), call) != calls.end();
}

TEST_CASE("socket() manages TCP streams and nothing else") {
  const auto [domain, type, protocol, managed] = GENERATE(table<int, int, int, bool>({
      {AF_INET, SOCK_STREAM, 0, true},
      {AF_INET6, SOCK_STREAM, 0, true},
      {AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP, true},
      {AF_INET, SOCK_DGRAM, 0, false},
      {AF_UNIX, SOCK_STREAM, 0, false},
      {AF_UNIX, SOCK_SEQPACKET, 0, false},
  }));
  const int fd = sdp_entry_socket(domain, type, protocol);
  REQUIRE(fd >= 0);
  CHECK(FdTable::Has(fd) == managed);
  CHECK(((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) == ((type & SOCK_CLOEXEC) != 0));
  CHECK(((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) == ((type & SOCK_NONBLOCK) != 0));
  CHECK(sdp_entry_close(fd) == 0);
  CHECK_FALSE(FdTable::Has(fd));
  CHECK_FALSE(IsOpen(fd));
}

TEST_CASE("A socket made by a foreign library is its own") {
  const ForeignCall foreign;
  const int fd = sdp_entry_socket(AF_INET, SOCK_STREAM, 0);
  CHECK_FALSE(FdTable::Has(fd));
  close(fd);
}

TEST_CASE("A number closed behind our back is not mistaken for its next owner") {
  const int fd = sdp_entry_socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(FdTable::Has(fd));
  close(fd);
  int pair[2];
  REQUIRE(sdp_entry_socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  REQUIRE(pair[0] == fd);
  CHECK_FALSE(FdTable::Has(fd));
  close(pair[0]);
  close(pair[1]);
}

TEST_CASE("close takes the number out of everything first, and only once") {
  ManagedDescriptor m;
  CHECK(sdp_entry_close(m.fd) == 0);
  CHECK(m.socket->calls == Calls{"Close " + std::to_string(m.fd)});
  CHECK(fake_readiness().calls == Calls{"Forget " + std::to_string(m.fd)});
  CHECK(sdp_entry_close(m.fd) == -1);
  CHECK(errno == EBADF);
  CHECK(m.socket->calls.size() == 1);
}

TEST_CASE("dup and F_DUPFD make a second number for the socket") {
  ManagedDescriptor m;
  const int way = GENERATE(0, 1, 2, 3);
  int copy = -1;
  if (way == 0) copy = sdp_entry_dup(m.fd);
  if (way == 1) copy = sdp_entry_fcntl(m.fd, F_DUPFD, 60);
  if (way == 2) copy = sdp_entry_fcntl(m.fd, F_DUPFD_CLOEXEC, 60);
  if (way == 3) copy = sdp_entry_dup3(m.fd, 61, O_CLOEXEC);
  REQUIRE(copy >= 0);
  CHECK(FdTable::Get(copy).get() == m.socket);
  CHECK(fcntl(copy, F_GETFD) == (way >= 2 ? FD_CLOEXEC : 0));
  CHECK(m.socket->calls == Calls{"AddDescriptor " + std::to_string(copy)});
  CHECK(Contains(fake_readiness().calls, "Duplicate " + std::to_string(m.fd) + " " + std::to_string(copy)));
  CHECK(sdp_entry_close(copy) == 0);
  CHECK(FdTable::Has(m.fd));
}

TEST_CASE("dup2 over a socket replaces it in one step") {
  ManagedDescriptor m;
  const int null = OpenNull();
  SECTION("which moves to a stand-in and is closed there") {
    CHECK(sdp_entry_dup2(null, m.fd) == m.fd);
    REQUIRE(m.socket->calls.size() == 2);
    CHECK(m.socket->calls[0] == "MoveDescriptor " + std::to_string(m.fd));
    CHECK(m.socket->calls[1].starts_with("Close "));
    CHECK(m.socket->calls[1] != "Close " + std::to_string(m.fd));
    char byte;
    CHECK(read(m.peer, &byte, 1) == 0);  // nobody holds the kernel's socket any more
  }
  SECTION("or is closed before, if it cannot move") {
    m.socket->moves = false;
    CHECK(sdp_entry_dup2(null, m.fd) == m.fd);
    CHECK(m.socket->calls.back() == "Close " + std::to_string(m.fd));
  }
  CHECK_FALSE(FdTable::Has(m.fd));
  CHECK_FALSE(IsSocket(m.fd));
  CHECK(fake_readiness().calls[0] == "Forget " + std::to_string(m.fd));
  close(null);
}

TEST_CASE("dup2 and dup3 that fail change nothing") {
  ManagedDescriptor m;
  errno = 0;
  CHECK(sdp_entry_dup2(-1, m.fd) == -1);
  CHECK(errno == EBADF);
  CHECK(sdp_entry_dup2(m.fd, -1) == -1);
  CHECK(sdp_entry_dup2(m.fd, INT_MAX) == -1);
  CHECK(errno == EBADF);
  CHECK(sdp_entry_dup3(m.fd, m.fd, 0) == -1);
  CHECK(errno == EINVAL);
  CHECK(sdp_entry_dup3(m.peer, m.fd, 0x40000000) == -1);
  CHECK(errno == EINVAL);
  CHECK(sdp_entry_dup2(m.fd, m.fd) == m.fd);
  CHECK(FdTable::Has(m.fd));
  CHECK(m.socket->calls.empty());
}

TEST_CASE("The application cannot see, close or overwrite what the library keeps") {
  ManagedDescriptor m;
  std::atomic<int> slot{-1};
  const int hidden = HiddenFds::HideTracked(OpenNull(), &slot);
  errno = 0;
  CHECK(sdp_entry_close(hidden) == -1);
  CHECK(errno == EBADF);
  CHECK(sdp_entry_dup(hidden) == -1);
  CHECK(sdp_entry_dup2(hidden, 60) == -1);
  CHECK(sdp_entry_fcntl(hidden, F_GETFD) == -1);
  CHECK(errno == EBADF);
  CHECK(IsOpen(hidden));

  CHECK(sdp_entry_dup2(m.fd, hidden) == hidden);
  CHECK(IsSocket(hidden));
  CHECK(slot != hidden);
  CHECK(IsOpen(slot));
  CHECK_FALSE(IsSocket(slot));
  CHECK(sdp_entry_close(hidden) == 0);
  HiddenFds::Close(slot);

  const int untracked = HiddenFds::Hide(OpenNull());
  CHECK(sdp_entry_dup2(m.fd, untracked) == -1);
  CHECK(errno == EBADF);
  HiddenFds::Close(untracked);
}

// In a child, so that everything may be closed.
template <typename Body>
int ResultInChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("Closing all descriptors spares the library's own") {
  ManagedDescriptor m;
  const int way = GENERATE(0, 1);
  CHECK(ResultInChild([&] {
          const int low = HiddenFds::Hide(OpenNull());
          const int high = HiddenFds::Hide(OpenNull());
          const int between = fcntl(m.peer, F_DUPFD, low + 2);
          const int above = fcntl(m.peer, F_DUPFD, high + 5);
          if (way == 0) sdp_entry_closefrom(3);
          if (way == 1 && sdp_entry_close_range(3, ~0U, 0) != 0) return 1;
          if (!IsOpen(low) || !IsOpen(high)) return 2;
          if (IsOpen(between) || IsOpen(above) || IsOpen(m.peer) || IsOpen(m.fd)) return 3;
          if (m.socket->calls != Calls{"Close " + std::to_string(m.fd)}) return 4;
          if (FdTable::Has(m.fd)) return 5;
          // The borders of a range may be hidden numbers, and the range may be nothing else.
          if (sdp_entry_close_range(low, high, 0) != 0 || sdp_entry_close_range(low, low, 0) != 0) return 6;
          if (!IsOpen(low) || !IsOpen(high)) return 7;
          return Contains(fake_readiness().calls, "Forget " + std::to_string(m.peer)) ? 0 : 8;
        }) == 0);
}

TEST_CASE("close_range takes what the kernel takes") {
  ManagedDescriptor m;
  CHECK(sdp_entry_close_range(5, 4, 0) == -1);
  CHECK(errno == EINVAL);
  CHECK(sdp_entry_close_range(5, 6, 0x4000) == -1);
  CHECK(errno == EINVAL);
  CHECK(sdp_entry_close_range(static_cast<unsigned>(m.fd), static_cast<unsigned>(m.fd), 4 /*CLOEXEC*/) == 0);
  CHECK(fcntl(m.fd, F_GETFD) == FD_CLOEXEC);
  CHECK(sdp_entry_close_range(1U << 31, ~0U, 0) == 0);
  CHECK(m.socket->calls.empty());
}

TEST_CASE("A child of vfork closes its own descriptors, not the parent's sockets") {
  ManagedDescriptor m;
  const int hidden = HiddenFds::Hide(OpenNull());
  volatile int copy = -1;
  const pid_t child = vfork();
  if (child == 0) {
    copy = sdp_entry_dup(m.fd);
    sdp_entry_dup2(m.fd, m.peer);
    sdp_entry_close(m.fd);
    sdp_entry_closefrom(3);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  CHECK(m.socket->calls.empty());
  CHECK(fake_readiness().calls.empty());
  CHECK(FdTable::Has(m.fd));
  CHECK_FALSE(FdTable::Has(copy));
  CHECK(IsOpen(m.fd));
  CHECK(HiddenFds::Contains(hidden));
  HiddenFds::Close(hidden);
}

TEST_CASE("A child of fork manages sockets of its own") {
  ManagedDescriptor m;
  CHECK(ResultInChild([] {
          const int fd = sdp_entry_socket(AF_INET, SOCK_STREAM, 0);
          return FdTable::Has(fd) && sdp_entry_close(fd) == 0 && !FdTable::Has(fd) ? 0 : 1;
        }) == 0);
}

TEST_CASE("Status flags are the kernel's, as the socket wants them seen and set") {
  ManagedDescriptor m;
  CHECK((sdp_entry_fcntl(m.fd, F_GETFL) & O_NONBLOCK) != 0);
  CHECK((fcntl(m.fd, F_GETFL) & O_NONBLOCK) == 0);
  CHECK(sdp_entry_fcntl(m.fd, F_SETFL, O_NONBLOCK | O_APPEND) == 0);
  CHECK((fcntl(m.fd, F_GETFL) & (O_NONBLOCK | O_APPEND)) == O_APPEND);
  CHECK(sdp_entry_fcntl(m.fd, F_SETFD, FD_CLOEXEC) == 0);
  CHECK(fcntl(m.fd, F_GETFD) == FD_CLOEXEC);
}

TEST_CASE("The calls on a socket reach the socket") {
  ManagedDescriptor m;
  int value = 0;
  socklen_t length = sizeof value;
  CHECK(sdp_entry_bind(m.fd, nullptr, 0) == 0);
  CHECK(sdp_entry_listen(m.fd, 5) == 0);
  CHECK(sdp_entry_accept(m.fd, nullptr, nullptr) == 0);
  CHECK(sdp_entry_accept4(m.fd, nullptr, nullptr, SOCK_CLOEXEC) == 0);
  CHECK(sdp_entry_connect(m.fd, nullptr, 0) == 0);
  CHECK(sdp_entry_shutdown(m.fd, SHUT_WR) == 0);
  CHECK(sdp_entry_getsockname(m.fd, nullptr, &length) == 0);
  CHECK(sdp_entry_getpeername(m.fd, nullptr, &length) == 0);
  CHECK(sdp_entry_getsockopt(m.fd, 0, 0, &value, &length) == 0);
  CHECK(sdp_entry_setsockopt(m.fd, 0, 0, &value, length) == 0);
  CHECK(sdp_entry_ioctl(m.fd, FIONREAD, &value) == 0);
  CHECK(value == 1);
  CHECK(sdp_entry_sockatmark(m.fd) == 1);
  CHECK(m.socket->calls == Calls{"Bind", "Listen", "Accept flags 0",
                                 "Accept flags " + std::to_string(SOCK_CLOEXEC), "Connect", "Shutdown",
                                 "GetSockName", "GetPeerName", "GetSockOpt", "SetSockOpt", "Ioctl", "Ioctl"});
  CHECK(sdp_entry_accept4(m.fd, nullptr, nullptr, 1) == -1);
  CHECK(errno == EINVAL);
}

TEST_CASE("Time-outs arrive in the readiness room as what is left to wait") {
  ManagedDescriptor m;
  fake_readiness().concerns_us = true;
  pollfd p = {m.fd, POLLIN, 0};
  fd_set set;
  FD_ZERO(&set);
  epoll_event event{};
  timespec time = {3, 4};
  timeval value = {1, 2'500'000};
  CHECK(sdp_entry_poll(&p, 1, -1) == 0);
  CHECK(sdp_entry_poll(&p, 1, 1500) == 0);
  CHECK(sdp_entry_ppoll(&p, 1, &time, nullptr) == 0);
  CHECK(sdp_entry___poll_chk(&p, 1, 0, sizeof p) == 0);
  CHECK(sdp_entry_select(m.fd + 1, &set, nullptr, nullptr, &value) == 0);
  CHECK((value.tv_sec == 1 && value.tv_usec == 2));  // what the room said remained
  CHECK(sdp_entry_select(m.fd + 1, &set, nullptr, nullptr, nullptr) == 0);
  CHECK(sdp_entry_pselect(m.fd + 1, &set, nullptr, nullptr, &time, nullptr) == 0);
  CHECK(sdp_entry_epoll_wait(9, &event, 1, 20) == 0);
  CHECK(sdp_entry_epoll_pwait(9, &event, 1, -1, nullptr) == 0);
  CHECK(sdp_entry_epoll_pwait2(9, &event, 1, &time, nullptr) == 0);
  CHECK(sdp_entry_epoll_ctl(9, EPOLL_CTL_ADD, m.fd, &event) == 0);
  CHECK(fake_readiness().calls == Calls{"Poll forever", "Poll 1s500000000", "Poll 3s4", "Poll 0s0",
                                        "Select 3s500000000", "Select forever", "Select 3s4",
                                        "EpollWait 0s20000000", "EpollWait forever", "EpollWait 3s4",
                                        "EpollCtl " + std::to_string(m.fd)});
  time = {0, -1};
  value = {-1, 0};
  errno = 0;
  CHECK(sdp_entry_ppoll(&p, 1, &time, nullptr) == -1);
  CHECK(errno == EINVAL);
  CHECK(sdp_entry_pselect(m.fd + 1, &set, nullptr, nullptr, &time, nullptr) == -1);
  CHECK(sdp_entry_select(m.fd + 1, &set, nullptr, nullptr, &value) == -1);
  CHECK(errno == EINVAL);
}

}  // namespace
}  // namespace sdp::preload
