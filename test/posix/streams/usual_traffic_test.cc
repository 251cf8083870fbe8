// Something rare in the middle of usual traffic: small messages to and fro, that nothing disturbs. A library
// may have stopped to ask for rare states by then.
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

// More than enough for any habit to form.
constexpr int kTurns = 50;

void Settle(Pair& pair) {
  for (int i = 0; i < kTurns; ++i) {
    REQUIRE(send(pair.client, "question", 8, MSG_NOSIGNAL) == 8);
    REQUIRE(ReceiveExactly(pair.server, 8) == "question");
    REQUIRE(send(pair.server, "answer", 6, MSG_NOSIGNAL) == 6);
    REQUIRE(ReceiveExactly(pair.client, 6) == "answer");
  }
}

Pair SettledPair(bool nonblocking = false) {
  Pair pair = MakePair();
  SetNonblocking(pair.client, nonblocking);
  SetNonblocking(pair.server, nonblocking);
  Settle(pair);
  return pair;
}

int Unread(int fd) {
  int there = -1;
  REQUIRE(ioctl(fd, FIONREAD, &there) == 0);
  return there;
}

std::string Peek(int fd) {
  char bytes[16];
  const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 ? strerror(errno) : std::string(bytes, static_cast<size_t>(n));
}

TEST_CASE("usual traffic: the peer ends its direction behind a message") {
  const bool nonblocking = GENERATE(false, true);
  Pair pair = SettledPair(nonblocking);
  REQUIRE(SendAll(pair.server, "last"));
  REQUIRE(shutdown(pair.server, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.client, POLLRDHUP));
  CHECK(PollOne(pair.client, POLLIN | POLLOUT | POLLRDHUP, 0) == (POLLIN | POLLOUT | POLLRDHUP));
  CHECK(ReceiveExactly(pair.client, 4) == "last");
  char c;
  CHECK(recv(pair.client, &c, 1, 0) == 0);
  REQUIRE(SendAll(pair.client, "still"));
  CHECK(ReceiveExactly(pair.server, 5) == "still");
}

TEST_CASE("usual traffic: a peer that closes is found out by the next sends, though nothing else looks") {
  const bool nonblocking = GENERATE(false, true);
  Pair pair = SettledPair(nonblocking);
  pair.server.reset();
  // The first one is answered with a reset.
  int sends = 0;
  while (sends < 100 && send(pair.client, "to nobody", 9, MSG_NOSIGNAL) == 9) ++sends;
  CHECK((errno == EPIPE || errno == ECONNRESET));
  CHECK(sends <= 4);
}

TEST_CASE("usual traffic: a peer that is killed is found out by the sends of who reads what it has left") {
  constexpr int kLeft = 14;
  Listener listener = Listen();
  const pid_t pid = Fork([&] {
    const Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    for (int i = 0; i < kTurns; ++i) {
      if (!SendAll(client, "question") || ReceiveExactly(client, 6) != "answer") return 2;
    }
    for (int i = 0; i < kLeft; ++i) {
      if (!SendAll(client, "question")) return 3;
    }
    return raise(SIGKILL);
  });
  Fd server(accept(listener.fd, nullptr, nullptr));
  for (int i = 0; i < kTurns; ++i) {
    REQUIRE(ReceiveExactly(server, 8) == "question");
    REQUIRE(SendAll(server, "answer"));
  }
  const int status = Reap(pid);
  REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  poll(nullptr, 0, 50);  // A sender may go by an earlier look at the link, but not for so long.
  int sends = 0;
  while (sends < kLeft && ReceiveExactly(server, 8) == "question") {
    poll(nullptr, 0, 4);  // the program's work
    if (send(server, "answer", 6, MSG_NOSIGNAL) < 0) break;
    ++sends;
  }
  CHECK(sends <= 5);  // TCP: one, which is answered with a reset
}

TEST_CASE("usual traffic: a peer that resets is found out by a receive that does not wait", "[abort]") {
  Pair pair = SettledPair(/*nonblocking=*/true);
  char c;
  REQUIRE_ERRNO(recv(pair.client, &c, 1, 0), EAGAIN);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  pair.server.reset();
  REQUIRE(WaitFor(pair.client, POLLERR));
  REQUIRE_ERRNO(recv(pair.client, &c, 1, 0), ECONNRESET);
}

TEST_CASE("usual traffic: many messages are one read") {
  const bool nonblocking = GENERATE(false, true);
  Pair pair = SettledPair(nonblocking);
  SetOption(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
  // A kernel may still be delivering some of the messages when the reader comes.
  int whole = 0;
  for (int round = 0; round < 2000 && whole < 10; ++round) {
    for (int i = 0; i < 60; ++i) REQUIRE(send(pair.client, "x", 1, 0) == 1);
    char bytes[4096];
    const ssize_t n = recv(pair.server, bytes, sizeof bytes, 0);
    if (n == 60) ++whole;
    if (n < 60)
      REQUIRE(ReceiveExactly(pair.server, static_cast<size_t>(60 - std::max<ssize_t>(n, 0))).size() > 0);
    REQUIRE(send(pair.server, "ok", 2, 0) == 2);
    REQUIRE(ReceiveExactly(pair.client, 2) == "ok");
  }
  CHECK(whole == 10);
}

TEST_CASE("usual traffic: no event is of a message that another thread has read") {
  const auto kind = GENERATE(static_cast<uint32_t>(EPOLLONESHOT), static_cast<uint32_t>(EPOLLET));
  constexpr int kPairs = 24, kThreads = 3;
  constexpr auto kTime = std::chrono::milliseconds(400);
  std::vector<Pair> pairs;
  const Fd set(epoll_create1(0));
  for (int i = 0; i < kPairs; ++i) {
    pairs.push_back(SettledPair(/*nonblocking=*/true));
    epoll_event event{.events = EPOLLIN | kind, .data = {.u32 = static_cast<uint32_t>(i)}};
    REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pairs.back().server, &event) == 0);
  }
  std::atomic<int> empty = 0, read = 0;
  std::atomic<bool> over = false;
  std::vector<std::future<void>> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.push_back(Async([&] {
      std::vector<char> bytes(1 << 16);
      while (!over) {
        epoll_event events[4];
        const int count = epoll_wait(set, events, 4, 10);
        for (int i = 0; i < count; ++i) {
          const uint32_t which = events[i].data.u32;
          const ssize_t n = recv(pairs[which].server, bytes.data(), bytes.size(), 0);
          n > 0 ? read += static_cast<int>(n) : ++empty;
          epoll_event event{.events = EPOLLIN | kind, .data = {.u32 = which}};
          if (kind == EPOLLONESHOT) epoll_ctl(set, EPOLL_CTL_MOD, pairs[which].server, &event);
        }
      }
    }));
  }
  const Stopwatch watch;
  int sent = 0;
  // A message is sent when the one before has been read: so an empty event is a stale one. FIONREAD does not
  // count what comes while a reader is in its call, which may be much if the reader has lost its processor.
  for (size_t i = 0; watch.ms() < kTime.count(); i = (i + 1) % pairs.size()) {
    if (Unread(pairs[i].server) != 0) continue;
    if (send(pairs[i].client, "x", 1, 0) == 1) ++sent;
  }
  CHECK(Eventually([&] { return read == sent; }));
  CAPTURE(kind, sent, read.load(), empty.load());
  for (const Pair& pair : pairs) CHECK(Unread(pair.server) == 0);
  over = true;
  for (auto& thread : threads) Get(thread);
  CHECK(empty == 0);
}

TEST_CASE("usual traffic: a reader that asks for less, or looks, or counts") {
  Pair pair = SettledPair();
  REQUIRE(send(pair.client, "abcdef", 6, 0) == 6);
  REQUIRE(WaitFor(pair.server, POLLIN));
  CHECK(Peek(pair.server) == "abcdef");
  CHECK(ReceiveExactly(pair.server, 2) == "ab");
  CHECK(Unread(pair.server) == 4);
  CHECK(Peek(pair.server) == "cdef");
  REQUIRE(send(pair.client, "gh", 2, 0) == 2);
  CHECK(ReceiveExactly(pair.server, 6) == "cdefgh");
  CHECK(Peek(pair.server) == strerror(EAGAIN));
  Settle(pair);
}

TEST_CASE("usual traffic: what waits for more leaves ahead of what does not") {
  Pair pair = SettledPair();
  REQUIRE(send(pair.client, "ab", 2, MSG_MORE) == 2);
  REQUIRE(send(pair.client, "cd", 2, 0) == 2);
  CHECK(ReceiveExactly(pair.server, 4) == "abcd");
  Settle(pair);
}

TEST_CASE("usual traffic: urgent data, and its mark") {
  Pair pair = SettledPair(/*nonblocking=*/true);
  REQUIRE(send(pair.client, "ab!", 3, MSG_OOB) == 3);
  REQUIRE(send(pair.client, "cd", 2, 0) == 2);
  REQUIRE(WaitFor(pair.server, POLLPRI));
  char bytes[8];
  CHECK(recv(pair.server, bytes, sizeof bytes, 0) == 2);  // stops at the mark
  CHECK(recv(pair.server, bytes, 1, MSG_OOB) == 1);
  CHECK(bytes[0] == '!');
  CHECK(ReceiveExactly(pair.server, 2) == "cd");
  Settle(pair);
}

TEST_CASE("usual traffic: a low-water mark comes, and goes") {
  Pair pair = SettledPair(/*nonblocking=*/true);
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 4);
  REQUIRE(SendAll(pair.client, "abc"));
  CHECK(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE(SendAll(pair.client, "d"));
  CHECK(WaitFor(pair.server, POLLIN));
  CHECK(ReceiveExactly(pair.server, 4) == "abcd");
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 1);
  Settle(pair);
}

TEST_CASE("usual traffic: a message that is not read whole stays readable, level and edge") {
  const auto edge = GENERATE(0u, static_cast<uint32_t>(EPOLLET));
  Pair pair = SettledPair(/*nonblocking=*/true);
  const Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLIN | edge, .data = {.fd = 7}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  for (int i = 0; i < kTurns; ++i) {
    REQUIRE(SendAll(pair.client, "abcd"));
    REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
    REQUIRE(event.events == EPOLLIN);
    REQUIRE(ReceiveExactly(pair.server, 1) == "a");
    REQUIRE(epoll_wait(set, &event, 1, 0) == (edge != 0 ? 0 : 1));
    REQUIRE(ReceiveExactly(pair.server, 3) == "bcd");
    REQUIRE(epoll_wait(set, &event, 1, 0) == 0);
  }
}

TEST_CASE("usual traffic: a large message is read in pieces, whatever comes between them") {
  constexpr size_t kMessage = 60'000;
  constexpr size_t kPiece = 700;
  const bool nonblocking = GENERATE(false, true);
  Pair pair = SettledPair(nonblocking);
  std::string whole = Pattern(kMessage, 5);
  REQUIRE(SendAll(pair.client, whole));
  while (Unread(pair.server) < static_cast<int>(kMessage)) REQUIRE(WaitFor(pair.server, POLLIN));
  size_t at = 0;
  const auto read_some = [&] {
    for (int i = 0; i < 6; ++i, at += kPiece) {
      std::string piece(kPiece, '\0');
      REQUIRE(recv(pair.server, piece.data(), kPiece, 0) == static_cast<ssize_t>(kPiece));
      REQUIRE(piece == whole.substr(at, kPiece));
    }
  };
  const auto between = [&](const char* what, const std::function<void()>& rare) {
    INFO(what);
    read_some();
    rare();
  };
  between("counting", [&] { CHECK(Unread(pair.server) == static_cast<int>(kMessage - at)); });
  between("peeking", [&] { CHECK(Peek(pair.server) == whole.substr(at, 16)); });
  between("memory that is not there", [&] {
    REQUIRE_ERRNO(recv(pair.server, reinterpret_cast<char*>(8), 4, 0), EFAULT);
    CHECK(recv(pair.server, nullptr, 0, 0) == 0);
  });
  between("dropping", [&] {
    REQUIRE(recv(pair.server, nullptr, 10, MSG_TRUNC) == 10);
    at += 10;
  });
  between("an answer", [&] {
    REQUIRE(SendAll(pair.server, "go on"));
    REQUIRE(ReceiveExactly(pair.client, 5) == "go on");
  });
  between("more", [&] {
    REQUIRE(SendAll(pair.client, "more"));
    whole += "more";
    while (Unread(pair.server) < static_cast<int>(whole.size() - at)) REQUIRE(WaitFor(pair.server, POLLIN));
  });
  between("a low-water mark", [&] {
    SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 100'000);
    CHECK(PollOne(pair.server, POLLIN, 0) == 0);
    SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 1);
    CHECK(PollOne(pair.server, POLLIN, 0) == POLLIN);
  });
  between("a duplicate", [&] { pair.server = Fd(dup(pair.server)); });
  between("a child", [&] {
    const pid_t child =
        Child([&] { return ReceiveExactly(pair.server, kPiece) == whole.substr(at, kPiece) ? 0 : 1; });
    CHECK(ExitedWith(Reap(child), 0));
    at += kPiece;
  });
  between("urgent data", [&] {
    REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
    REQUIRE(WaitFor(pair.server, POLLPRI));
    char byte = 0;
    CHECK(recv(pair.server, &byte, 1, MSG_OOB) == 1);
    CHECK(byte == '!');
  });
  between("the peer's end", [&] {
    pair.client.reset();
    REQUIRE(WaitFor(pair.server, POLLRDHUP));
  });
  read_some();
  CHECK(ReceiveExactly(pair.server, whole.size() - at) == whole.substr(at));
  char byte;
  CHECK(recv(pair.server, &byte, 1, 0) == 0);
}

TEST_CASE("usual traffic: each arrival is an edge, though an earlier one is unread") {
  Pair pair = SettledPair(/*nonblocking=*/true);
  const Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = 7}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  for (int i = 0; i < kTurns; ++i) {
    for (const char* text : {"ab", "cd", "ef"}) {
      REQUIRE(SendAll(pair.client, text));
      REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
      REQUIRE(epoll_wait(set, &event, 1, 0) == 0);
    }
    REQUIRE(ReceiveExactly(pair.server, 6) == "abcdef");
  }
}

TEST_CASE("usual traffic: removed from a set and added again, each time") {
  Pair pair = SettledPair(/*nonblocking=*/true);
  const Fd set(epoll_create1(0));
  for (int i = 0; i < kTurns; ++i) {
    // Half of them come before the registration.
    if (i % 2 == 0) REQUIRE(SendAll(pair.client, "ab"));
    epoll_event event{.events = EPOLLIN, .data = {.fd = i}};
    REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
    if (i % 2 != 0) REQUIRE(SendAll(pair.client, "ab"));
    event = {};
    REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
    REQUIRE(event.data.fd == i);
    REQUIRE(ReceiveExactly(pair.server, 2) == "ab");
    REQUIRE(epoll_ctl(set, EPOLL_CTL_DEL, pair.server, nullptr) == 0);
    REQUIRE(epoll_wait(set, &event, 1, 0) == 0);
  }
}

TEST_CASE("usual traffic: one thread sleeps for what another's calls do not take") {
  Pair pair = SettledPair();
  auto reader = Async([&] { return ReceiveExactly(pair.server, 6); });
  for (const char* text : {"ab", "cd", "ef"}) {
    // The server's other direction is in use meanwhile.
    REQUIRE(send(pair.server, "xy", 2, 0) == 2);
    REQUIRE(ReceiveExactly(pair.client, 2) == "xy");
    REQUIRE(send(pair.client, text, 2, 0) == 2);
  }
  CHECK(Get(reader) == "abcdef");
  Settle(pair);
}

TEST_CASE("usual traffic: many small messages fill the link, and none is lost") {
  Pair pair = SettledPair(/*nonblocking=*/true);
  const std::string message = Pattern(100);
  std::string sent;
  for (;;) {
    const ssize_t n = send(pair.client, message.data(), message.size(), 0);
    if (n < 0) break;
    sent.append(message, 0, static_cast<size_t>(n));
  }
  REQUIRE(errno == EAGAIN);
  CHECK(PollOne(pair.client, POLLOUT, 0) == 0);
  std::string received;
  while (received.size() < sent.size()) {
    char bytes[7000];
    REQUIRE(WaitFor(pair.server, POLLIN));
    const ssize_t n = recv(pair.server, bytes, sizeof bytes, 0);
    REQUIRE(n > 0);
    received.append(bytes, static_cast<size_t>(n));
  }
  CHECK(Hash(received) == Hash(sent));
  CHECK(WaitFor(pair.client, POLLOUT));
  Settle(pair);
}

TEST_CASE("usual traffic: goes on in a child, and in the parent again") {
  Pair pair = SettledPair();
  const pid_t child = Child([&] {
    for (int i = 0; i < kTurns; ++i) {
      if (ReceiveExactly(pair.server, 2) != "to" || !SendAll(pair.server, "fro")) return 1;
    }
    return 0;
  });
  for (int i = 0; i < kTurns; ++i) {
    REQUIRE(SendAll(pair.client, "to"));
    REQUIRE(ReceiveExactly(pair.client, 3) == "fro");
  }
  CHECK(ExitedWith(Reap(child), 0));
  Settle(pair);
}

TEST_CASE("usual traffic: memory that is not there") {
  Pair pair = SettledPair();
  auto* const nowhere = reinterpret_cast<char*>(8);
  REQUIRE_ERRNO(send(pair.client, nowhere, 4, 0), EFAULT);
  REQUIRE(send(pair.client, "ab", 2, 0) == 2);
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE_ERRNO(recv(pair.server, nowhere, 4, 0), EFAULT);
  CHECK(ReceiveExactly(pair.server, 2) == "ab");
  Settle(pair);
}

}  // namespace
}  // namespace posix_test
