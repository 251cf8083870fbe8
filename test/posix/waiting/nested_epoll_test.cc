// Epoll sets inside epoll sets, and in poll and select: what is ready inside has to be seen outside, also
// where no byte comes that the kernel could tell of.
#include <poll.h>
#include <sys/select.h>

#include <algorithm>
#include <thread>

#include "test/posix/waiting/nested_support.h"

namespace posix_test {
namespace {

// Nothing inside, and then nothing outside. To be woken outside for nothing is allowed, as when another
// thread was quicker.
bool BecomesQuiet(int outer, int inner) {
  return Eventually([&] { return WaitOne(inner, 0) == -1 && WaitOne(outer, 0) == -1; }) &&
         WaitOne(outer, kQuietMs) == -1;
}

bool SelectReadable(int fd, int timeout_ms) {
  fd_set read;
  FD_ZERO(&read);
  FD_SET(fd, &read);
  timeval time{.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
  return select(fd + 1, &read, nullptr, nullptr, &time) == 1;
}

// Data is there, and every byte has left the kernel: one read has taken all that came and given a part of it.
void LeaveSomeUnread(Pair& pair) {
  REQUIRE(SendAll(pair.client, "first and rest"));
  char data[8];
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, data, 5, 0) == 5);
}

TEST_CASE("nested: what is unread inside is seen outside, by epoll, poll and select") {
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  Add(outer, inner, EPOLLIN);
  Add(inner, pair.server, EPOLLIN);
  REQUIRE(BecomesQuiet(outer, inner));
  LeaveSomeUnread(pair);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(WaitOne(outer) == inner);
    REQUIRE(PollOne(inner, POLLIN, 0) == POLLIN);
    REQUIRE(SelectReadable(inner, 0));
    REQUIRE(WaitOne(inner, 0) == pair.server);
  }
  REQUIRE(ReceiveExactly(pair.server, 9) == " and rest");
  REQUIRE(BecomesQuiet(outer, inner));
  REQUIRE(PollOne(outer, POLLIN, kQuietMs) == 0);
  REQUIRE(SendAll(pair.client, "more"));
  REQUIRE(WaitOne(outer) == inner);
  REQUIRE(WaitOne(inner) == pair.server);
}

TEST_CASE("nested: poll and select of a set with something unread return at once, beside a silent socket") {
  Pair pair = MakePair();
  Pair silent = MakePair();
  Fd set = Set();
  Add(set, pair.server, EPOLLIN);
  LeaveSomeUnread(pair);
  std::thread other([] {});  // from here on the process has had threads, whose work may end a sleep
  other.join();
  pollfd fds[] = {{set, POLLIN, 0}, {silent.server, POLLIN, 0}};
  const Stopwatch poll_time;
  REQUIRE(poll(fds, 2, kPatienceMs) == 1);
  REQUIRE(fds[0].revents == POLLIN);
  REQUIRE(poll_time.ms() < kPatienceMs / 2);
  fd_set read;
  FD_ZERO(&read);
  FD_SET(set, &read);
  FD_SET(silent.server, &read);
  timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
  const Stopwatch select_time;
  REQUIRE(select(std::max<int>(set, silent.server) + 1, &read, nullptr, nullptr, &patience) == 1);
  REQUIRE(FD_ISSET(set, &read));
  REQUIRE(select_time.ms() < kPatienceMs / 2);
}

TEST_CASE("nested: the socket may come first, or the nesting") {
  const bool socket_first = GENERATE(true, false);
  Pair pair = MakePair();
  LeaveSomeUnread(pair);
  Fd inner = Set();
  Fd outer = Set();
  if (socket_first) {
    Add(inner, pair.server, EPOLLIN);
    Add(outer, inner, EPOLLIN);
  } else {
    Add(outer, inner, EPOLLIN);
    Add(inner, pair.server, EPOLLIN);
  }
  REQUIRE(WaitOne(outer) == inner);
  REQUIRE(WaitOne(inner) == pair.server);
}

TEST_CASE("nested: a sleeper outside is woken by what another thread's call brings in") {
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  Add(outer, inner, EPOLLIN);
  const int how = GENERATE(0, 1, 2);
  REQUIRE(BecomesQuiet(outer, inner));
  auto sleeper = Async([&] {
    switch (how) {
      case 0:
        return WaitOne(outer) == inner;
      case 1:
        return PollOne(inner, POLLIN) == POLLIN;
      default:
        return SelectReadable(inner, kPatienceMs);
    }
  });
  REQUIRE(StillRunning(sleeper));
  // A peek takes the bytes from the link, whoever else is told of them by it.
  auto peeker = Async([&] {
    char byte;
    return recv(pair.server, &byte, 1, MSG_PEEK);
  });
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(peeker) == 1);
  REQUIRE(Get(sleeper));
  REQUIRE(WaitOne(inner) == pair.server);
}

TEST_CASE("nested: writable again") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  SetNonblocking(pair.server);
  Fill(pair.client);
  Fd inner = Set();
  Fd outer = Set();
  Add(inner, pair.client, EPOLLOUT);
  Add(outer, inner, EPOLLIN);
  REQUIRE(BecomesQuiet(outer, inner));
  auto sleeper = Async([&] {
    int found = -1;
    while (found == -1 && WaitOne(outer) == inner) found = WaitOne(inner, 0);
    return found == pair.client;
  });
  // What is on its way may come after a look that found nothing more.
  REQUIRE(Eventually([&] {
    Drain(pair.server);
    return sleeper.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }));
  REQUIRE(Get(sleeper));
}

TEST_CASE("nested: edge-triggered outside") {
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  Add(outer, inner, EPOLLIN | EPOLLET);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(SendAll(pair.client, "ping"));
    REQUIRE(WaitOne(outer) == inner);
    REQUIRE(WaitOne(inner) == pair.server);
    REQUIRE(ReceiveExactly(pair.server, 4) == "ping");
    REQUIRE(BecomesQuiet(outer, inner));
  }
}

TEST_CASE("nested: three sets deep, with a pipe and a listener beside") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Fd out(ends[0]), in(ends[1]);
  Fd inner = Set();
  Fd middle = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  Add(inner, out, EPOLLIN);
  Add(middle, inner, EPOLLIN);
  Add(middle, listener.fd, EPOLLIN);
  Add(outer, middle, EPOLLIN);
  LeaveSomeUnread(pair);
  REQUIRE(WaitOne(outer) == middle);
  REQUIRE(WaitOne(middle) == inner);
  REQUIRE(WaitOne(inner) == pair.server);
  REQUIRE(ReceiveExactly(pair.server, 9) == " and rest");
  REQUIRE(write(in, "x", 1) == 1);
  REQUIRE(Eventually([&] { return WaitOne(inner) == out; }));
  REQUIRE(WaitOne(outer) == middle);
  char byte;
  REQUIRE(read(out, &byte, 1) == 1);
  REQUIRE(Eventually([&] { return WaitOne(inner, 0) == -1 && WaitOne(middle, 0) == -1; }));
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(WaitOne(outer) == middle);
  REQUIRE(WaitOne(middle) == listener.fd);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
}

TEST_CASE("nested: one socket in many sets, each with its own mind") {
  Pair pair = MakePair();
  std::vector<Fd> level;
  std::vector<Fd> edge;
  for (int i = 0; i < 10; ++i) {
    level.push_back(Set());
    Add(level.back(), pair.server, EPOLLIN);
    edge.push_back(Set());
    Add(edge.back(), pair.server, EPOLLIN | EPOLLET);
  }
  LeaveSomeUnread(pair);
  for (int i = 0; i < 10; ++i) {
    REQUIRE(WaitOne(level[i]) == pair.server);
    REQUIRE(WaitOne(edge[i]) == pair.server);
  }
  for (int i = 0; i < 10; ++i) {
    REQUIRE(WaitOne(level[i], 0) == pair.server);
    REQUIRE(WaitOne(edge[i], 0) == -1);
  }
  REQUIRE(ReceiveExactly(pair.server, 9) == " and rest");
  for (int i = 0; i < 10; ++i) REQUIRE(WaitOne(level[i], 0) == -1);
}

TEST_CASE("nested: sets in a circle are refused as ever") {
  Pair pair = MakePair();
  Fd one = Set();
  Fd two = Set();
  Add(one, pair.server, EPOLLIN);
  Add(two, one, EPOLLIN);
  epoll_event event{.events = EPOLLIN, .data = {.fd = two}};
  REQUIRE_ERRNO(epoll_ctl(one, EPOLL_CTL_ADD, two, &event), ELOOP);
  REQUIRE_ERRNO(epoll_ctl(one, EPOLL_CTL_ADD, one, &event), EINVAL);
  REQUIRE_ERRNO(epoll_ctl(two, EPOLL_CTL_ADD, one, &event), EEXIST);
}

}  // namespace
}  // namespace posix_test
