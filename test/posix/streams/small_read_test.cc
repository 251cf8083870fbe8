// A reader whose room is smaller than what its peer writes at once.
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

constexpr size_t kRooms[] = {8192, 1, 100, 5000, 16384, 8192, 8192, 333};

int Readable(int fd) {
  int bytes = -1;
  REQUIRE(ioctl(fd, FIONREAD, &bytes) == 0);
  return bytes;
}

std::string ReadPiece(int fd, size_t most, int flags = 0) {
  std::string text(most, '\0');
  const ssize_t n = recv(fd, text.data(), most, flags);
  REQUIRE(n >= 0);
  text.resize(static_cast<size_t>(n));
  return text;
}

// A pair whose server does not block, with so much to be read there, of which it has read the first bytes.
Pair PairInTheMiddle(const std::string& data, size_t read) {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  REQUIRE(SendAll(pair.client, data));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(ReadPiece(pair.server, read) == data.substr(0, read));
  return pair;
}

// As wrk reads: as long as FIONREAD tells of more.
TEST_CASE("small reads: as long as FIONREAD tells of more, through an epoll set") {
  const uint32_t edges = GENERATE(0U, static_cast<uint32_t>(EPOLLET));
  const size_t write = GENERATE(size_t{20'000}, size_t{300'000}, size_t{2'000'000});
  CAPTURE(edges, write);
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  const std::string data = Pattern(12'000'000);
  auto sender = Async([&] {
    for (size_t sent = 0; sent < data.size(); sent += write) {
      if (!SendAll(pair.client, data.substr(sent, write))) return false;
    }
    return shutdown(pair.client, SHUT_WR) == 0;
  });
  const Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | edges, .data = {}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  std::string got;
  size_t turn = 0;
  for (bool ended = false; !ended;) {
    REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
    for (;;) {
      const size_t room = kRooms[turn++ % std::size(kRooms)];
      std::string piece(room, '\0');
      const ssize_t n = recv(pair.server, piece.data(), room, 0);
      if (n < 0) REQUIRE(errno == EAGAIN);
      ended = n == 0;
      if (n <= 0) break;
      got.append(piece, 0, static_cast<size_t>(n));
      if (Readable(pair.server) == 0 && edges == 0) break;
    }
  }
  REQUIRE(Get(sender));
  REQUIRE(Hash(got) == Hash(data));
}

TEST_CASE("small reads: what FIONREAD counts, and a peek sees, is all that has come") {
  const std::string data = Pattern(60'000);
  Pair pair = PairInTheMiddle(data, 1000);
  REQUIRE(Readable(pair.server) == 59'000);
  REQUIRE(SendAll(pair.client, "behind it"));
  REQUIRE(Eventually([&] { return Readable(pair.server) == 59'009; }));
  REQUIRE(ReadPiece(pair.server, 2000) == data.substr(1000, 2000));
  REQUIRE(ReadPiece(pair.server, 100'000, MSG_PEEK) == data.substr(3000) + "behind it");
  REQUIRE(ReceiveExactly(pair.server, 57'009) == data.substr(3000) + "behind it");
  REQUIRE(Readable(pair.server) == 0);
  REQUIRE(PollOne(pair.server, POLLIN, 0) == 0);
}

TEST_CASE("small reads: a receive goes on where one message ends and the next is larger than its room") {
  const std::string first = Pattern(40'000), next = Pattern(60'000, 2);
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, first));
  REQUIRE(ReadPiece(pair.server, 1000) == first.substr(0, 1000));
  REQUIRE(SendAll(pair.client, next));
  REQUIRE(Eventually([&] { return Readable(pair.server) == 99'000; }));
  SECTION("MSG_WAITALL") {
    auto all = Async([&] {
      std::string text(39'100, '\0');
      return recv(pair.server, text.data(), text.size(), MSG_WAITALL) == 39'100 ? text : std::string();
    });
    REQUIRE(Get(all) == first.substr(1000) + next.substr(0, 100));
    REQUIRE(ReceiveExactly(pair.server, 59'900) == next.substr(100));
  }
  SECTION("what a reader has room for comes at once") {
    REQUIRE(ReadPiece(pair.server, 38'000) == first.substr(1000, 38'000));
    REQUIRE(ReadPiece(pair.server, 8192) == first.substr(39'000) + next.substr(0, 7192));
    REQUIRE(ReceiveExactly(pair.server, 60'000 - 7192) == next.substr(7192));
  }
}

TEST_CASE("small reads: who is told by edges, and reads until its room is not filled, hears of all") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  const Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  std::string got, sent;
  for (uint32_t i = 0; i < 200; ++i) {
    // Another message comes when the end of the last one is still to be read.
    const std::string message = Pattern(9000 + 311 * i, i);
    REQUIRE(SendAll(pair.client, message));
    sent += message;
    if (i % 2 == 0) {
      REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
      got += ReadPiece(pair.server, 8000);
      continue;
    }
    while (got.size() < sent.size()) {
      REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
      for (size_t n = 8192; n == 8192;) {
        const std::string piece = ReadPiece(pair.server, 8192);
        n = piece.size();
        got += piece;
        if (got.size() == sent.size()) break;
      }
    }
  }
  REQUIRE(Hash(got) == Hash(sent));
}

TEST_CASE("small reads: the end that comes behind the rest is told, and the rest is read") {
  const std::string data = Pattern(60'000);
  Pair pair = PairInTheMiddle(data, 1000);
  const bool by_epoll = GENERATE(false, true);
  const Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {}};
  if (by_epoll) REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  pair.client.reset();
  REQUIRE(Eventually([&] {
    if (!by_epoll) return (PollOne(pair.server, POLLIN | POLLRDHUP) & POLLRDHUP) != 0;
    return epoll_wait(set, &event, 1, kPatienceMs) == 1 && (event.events & EPOLLRDHUP) != 0;
  }));
  REQUIRE(ReadPiece(pair.server, 5000) == data.substr(1000, 5000));
  REQUIRE(ReceiveToEnd(pair.server) == data.substr(6000));
}

TEST_CASE("small reads: urgent data behind the rest") {
  const std::string data = Pattern(60'000);
  Pair pair = PairInTheMiddle(data, 1000);
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE(WaitFor(pair.server, POLLPRI));
  char urgent = 0;
  REQUIRE(recv(pair.server, &urgent, 1, MSG_OOB) == 1);
  REQUIRE(urgent == '!');
  REQUIRE(ReceiveExactly(pair.server, 59'000) == data.substr(1000));
}

TEST_CASE("small reads: a child reads on in the middle of a message, and then its parent") {
  const std::string data = Pattern(60'000);
  Pair pair = PairInTheMiddle(data, 1000);
  const pid_t pid =
      Fork([&] { return ReceiveExactly(pair.server, 2000) == data.substr(1000, 2000) ? 0 : 1; });
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(SendAll(pair.client, "behind it"));
  REQUIRE(ReceiveExactly(pair.server, 57'009) == data.substr(3000) + "behind it");
}

TEST_CASE("small reads: both write much while a rest is unread") {
  const std::string data = Pattern(60'000);
  Pair pair = PairInTheMiddle(data, 1000);
  SetNonblocking(pair.client);
  // What the client's end says of what it has read comes behind what it writes.
  const std::string much = Pattern(3'000'000, 2);
  auto reader = Async([&] { return ReceiveExactly(pair.client, much.size()); });
  SetNonblocking(pair.server, false);
  REQUIRE(SendAll(pair.server, much));
  REQUIRE(Hash(Get(reader)) == Hash(much));
  REQUIRE(ReceiveExactly(pair.server, 59'000) == data.substr(1000));
}

TEST_CASE("small reads: who closes with a rest unread resets") {
  Pair pair = PairInTheMiddle(Pattern(60'000), 1000);
  pair.server.reset();
  REQUIRE(WaitFor(pair.client, POLLERR));
  char byte;
  REQUIRE_ERRNO(recv(pair.client, &byte, 1, 0), ECONNRESET);
}

}  // namespace
}  // namespace posix_test
