// Programs that look before they read: FIONREAD, MSG_PEEK and SO_RCVLOWAT see what comes while nobody reads,
// also what a large write brings.
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>

#include <algorithm>

#include "test/posix/support.h"

namespace posix_test {
namespace {

// TCP's first receive window is 64 KiB: so much comes although nobody reads.
constexpr size_t kEnough = 50'000;

int Waiting(int fd) {
  int count = -1;
  REQUIRE(ioctl(fd, FIONREAD, &count) == 0);
  return count;
}

// A thread that writes `size` bytes at once and then closes its direction.
std::future<bool> Write(Pair& pair, const std::string& data) {
  return Async([&] {
    const bool sent = SendAll(pair.client, data);
    shutdown(pair.client, SHUT_WR);
    return sent;
  });
}

TEST_CASE("looking: FIONREAD grows with what comes") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, Pattern(10)));
  REQUIRE(Eventually([&] { return Waiting(pair.server) == 10; }));
  REQUIRE(SendAll(pair.client, Pattern(90)));
  REQUIRE(Eventually([&] { return Waiting(pair.server) == 100; }));
}

TEST_CASE("looking: FIONREAD counts up to an urgent byte out of line, and past one in line") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "abc"));
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE(SendAll(pair.client, "defg"));
  char room[8];
  REQUIRE(Eventually(
      [&] { return recv(pair.server, room, 1, MSG_OOB | MSG_PEEK) == 1 && Waiting(pair.server) == 3; }));
  REQUIRE(recv(pair.server, room, sizeof room, 0) == 3);
  REQUIRE(Waiting(pair.server) == 0);  // at the mark
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 1);
  REQUIRE(Eventually([&] { return Waiting(pair.server) == 5; }));
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 0);
  REQUIRE(Waiting(pair.server) == 0);
}

TEST_CASE("looking: FIONREAD sees a large write") {
  Pair pair = MakePair();
  const std::string data = Pattern(1'000'000);
  auto sender = Write(pair, data);
  REQUIRE(Eventually([&] { return Waiting(pair.server) >= static_cast<int>(kEnough); }));
  REQUIRE(Hash(ReceiveToEnd(pair.server)) == Hash(data));
  REQUIRE(Get(sender));
}

TEST_CASE("looking: MSG_PEEK grows with what comes") {
  const int flags = GENERATE(0, MSG_DONTWAIT);
  Pair pair = MakePair();
  char buffer[200];
  REQUIRE(SendAll(pair.client, Pattern(10)));
  REQUIRE(Eventually([&] { return recv(pair.server, buffer, sizeof buffer, MSG_PEEK | flags) == 10; }));
  REQUIRE(SendAll(pair.client, Pattern(90, 2)));
  REQUIRE(Eventually([&] { return recv(pair.server, buffer, sizeof buffer, MSG_PEEK | flags) == 100; }));
  REQUIRE(ReceiveExactly(pair.server, 100) == Pattern(10) + Pattern(90, 2));
}

TEST_CASE("looking: MSG_PEEK sees a large write") {
  const int flags = GENERATE(0, MSG_DONTWAIT, MSG_WAITALL);
  Pair pair = MakePair();
  const std::string data = Pattern(1'000'000);
  auto sender = Write(pair, data);
  std::string head(kEnough, '\0');
  const auto looked = [&] { return recv(pair.server, head.data(), head.size(), MSG_PEEK | flags); };
  if (flags == MSG_WAITALL) {
    auto peeker = Async(looked);
    REQUIRE(Get(peeker) == static_cast<ssize_t>(kEnough));
  } else {
    REQUIRE(Eventually([&] { return looked() == static_cast<ssize_t>(kEnough); }));
  }
  REQUIRE(head == data.substr(0, kEnough));
  REQUIRE(Hash(ReceiveToEnd(pair.server)) == Hash(data));
  REQUIRE(Get(sender));
}

TEST_CASE("looking: SO_RCVLOWAT of much, and poll and select and epoll") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, kEnough);
  Fd ep(epoll_create1(0));
  epoll_event event{EPOLLIN, {}};
  const std::string data = Pattern(1'000'000);
  std::future<bool> sender;
  switch (GENERATE(0, 1, 2)) {
    case 0:
      sender = Write(pair, data);
      REQUIRE(WaitFor(pair.server, POLLIN));
      break;
    case 1: {
      sender = Write(pair, data);
      fd_set read;
      FD_ZERO(&read);
      FD_SET(pair.server, &read);
      timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
      REQUIRE(select(pair.server + 1, &read, nullptr, nullptr, &patience) == 1);
      break;
    }
    default:
      REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
      sender = Write(pair, data);
      REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  }
  REQUIRE(Waiting(pair.server) >= static_cast<int>(kEnough));
  REQUIRE(Hash(ReceiveToEnd(pair.server)) == Hash(data));
  REQUIRE(Get(sender));
}

TEST_CASE("looking: SO_RCVLOWAT of much, and a blocking receive of little room") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, kEnough);
  const std::string data = Pattern(1'000'000);
  auto sender = Write(pair, data);
  std::string all;
  char buffer[1000];
  for (;;) {
    const ssize_t n = recv(pair.server, buffer, sizeof buffer, 0);
    REQUIRE(n >= 0);
    if (n == 0) break;
    all.append(buffer, static_cast<size_t>(n));
  }
  REQUIRE(Hash(all) == Hash(data));
  REQUIRE(Get(sender));
}

TEST_CASE("looking: SIOCOUTQ counts what the reader has not got, and ends at nothing") {
  Pair pair = MakePair();
  const auto queued = [&] {
    int count = -1;
    REQUIRE(ioctl(pair.client, TIOCOUTQ, &count) == 0);
    return count;
  };
  const std::string data = Pattern(500'000);
  auto sender = Async([&] { return SendAll(pair.client, data); });
  REQUIRE(Get(sender));
  REQUIRE(queued() > 0);
  REQUIRE(ReceiveExactly(pair.server, data.size()) == data);
  REQUIRE(Eventually([&] { return queued() == 0; }));
}

TEST_CASE("looking: a receive takes what has come since the look before it") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  char room[64];
  const std::function<void()> looks[] = {
      [&] { REQUIRE(PollOne(pair.server, POLLIN) == POLLIN); },
      [&] { REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1); },
      [&] { REQUIRE(Eventually([&] { return Waiting(pair.server) == 5; })); },
      [&] { REQUIRE(Eventually([&] { return recv(pair.server, room, sizeof room, MSG_PEEK) == 5; })); },
      [&] { REQUIRE(Eventually([&] { return recv(pair.server, room, 1, 0) == 1; })); },
  };
  for (const auto& look : looks) {
    REQUIRE(SendAll(pair.client, "first"));
    look();
    REQUIRE(SendAll(pair.client, "second"));
    poll(nullptr, 0, kQuietMs);  // whoever waited for it would look
    const ssize_t got = recv(pair.server, room, sizeof room, 0);
    REQUIRE(got == (&look == &looks[4] ? 10 : 11));
  }
}

}  // namespace
}  // namespace posix_test
