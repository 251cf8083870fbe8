// Bytes that wait for more: MSG_MORE and TCP_CORK.
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <chrono>
#include <future>

#include "test/posix/support.h"

namespace posix_test {
namespace {

// Nothing of what was sent since `watch` comes within a time that is well below TCP's 200 ms. Where the
// machine was busy elsewhere for about as long, what came says nothing.
bool StaysAway(int fd, const Stopwatch& watch) {
  return PollOne(fd, POLLIN, kQuietMs) == 0 || watch.ms() > 150;
}

struct Way {
  const char* name;
  bool cork;
  int flags;
};

void Begin(int fd, const Way& way) {
  if (way.cork) SetOption(fd, IPPROTO_TCP, TCP_CORK, 1);
}

#define EACH_WAY \
  GENERATE(values<Way>({{"cork", true, 0}, {"more", false, MSG_MORE}, {"both", true, MSG_MORE}}))

TEST_CASE("cork: a small piece waits for the next") {
  const Way way = EACH_WAY;
  INFO(way.name);
  const bool no_delay = GENERATE(false, true);
  Pair pair = MakePair();
  if (no_delay) SetOption(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
  Begin(pair.client, way);
  const Stopwatch watch;
  REQUIRE(send(pair.client, "head", 4, way.flags) == 4);
  REQUIRE(StaysAway(pair.server, watch));
  if (way.cork) SetOption(pair.client, IPPROTO_TCP, TCP_CORK, 0);
  REQUIRE(send(pair.client, "body", 4, 0) == 4);
  REQUIRE(ReceiveExactly(pair.server, 8) == "headbody");
}

TEST_CASE("cork: what waits is in order with what follows, whatever the sizes") {
  const Way way = EACH_WAY;
  INFO(way.name);
  const size_t first = GENERATE(1, 4000, 20'000, 32'700, 32'800, 70'000);
  const size_t second = GENERATE(1, 12'768, 33'000, 1'000'000);
  Pair pair = MakePair();
  const std::string data = Pattern(first + second);
  auto receiver = Async([&] { return ReceiveExactly(pair.server, data.size()); });
  Begin(pair.client, way);
  REQUIRE(send(pair.client, data.data(), first, way.flags) == static_cast<ssize_t>(first));
  std::vector<iovec> pieces;
  for (size_t at = 0; at < second;) {
    const size_t n = std::min(second - at, second / 90 + 1);
    pieces.push_back({const_cast<char*>(data.data()) + first + at, n});
    at += n;
  }
  REQUIRE(writev(pair.client, pieces.data(), static_cast<int>(pieces.size())) ==
          static_cast<ssize_t>(second));
  if (way.cork) SetOption(pair.client, IPPROTO_TCP, TCP_CORK, 0);
  REQUIRE(Hash(Get(receiver)) == Hash(data));
}

TEST_CASE("cork: nothing waits for ever") {
  const Way way = EACH_WAY;
  INFO(way.name);
  Pair pair = MakePair();
  Begin(pair.client, way);
  REQUIRE(send(pair.client, "alone", 5, way.flags) == 5);
  REQUIRE(ReceiveExactly(pair.server, 5) == "alone");
  // Nor does the next one.
  REQUIRE(send(pair.client, "again", 5, way.flags) == 5);
  REQUIRE(ReceiveExactly(pair.server, 5) == "again");
}

TEST_CASE("cork: what waits leaves although its sender sleeps in a receive") {
  const Way way = EACH_WAY;
  INFO(way.name);
  Pair pair = MakePair();
  Begin(pair.client, way);
  REQUIRE(send(pair.client, "question", 8, way.flags) == 8);
  auto answer = Async([&] { return ReceiveExactly(pair.client, 6); });
  REQUIRE(ReceiveExactly(pair.server, 8) == "question");
  REQUIRE(SendAll(pair.server, "answer"));
  REQUIRE(Get(answer) == "answer");
}

TEST_CASE("cork: setting TCP_NODELAY pushes what waits, but the cork stays") {
  Pair pair = MakePair();
  SetOption(pair.client, IPPROTO_TCP, TCP_CORK, 1);
  const Stopwatch pushed;
  REQUIRE(SendAll(pair.client, "pushed"));
  REQUIRE(StaysAway(pair.server, pushed));
  SetOption(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
  REQUIRE(ReceiveExactly(pair.server, 6) == "pushed");
  const Stopwatch corked;
  REQUIRE(SendAll(pair.client, "corked"));
  REQUIRE(StaysAway(pair.server, corked));
  SetOption(pair.client, IPPROTO_TCP, TCP_CORK, 0);
  REQUIRE(ReceiveExactly(pair.server, 6) == "corked");
}

TEST_CASE("cork: SIOCOUTQ counts what waits") {
  Pair pair = MakePair();
  const Stopwatch watch;
  REQUIRE(send(pair.client, "waits", 5, MSG_MORE) == 5);
  int queued = 0;
  REQUIRE(ioctl(pair.client, TIOCOUTQ, &queued) == 0);
  REQUIRE((queued == 5 || watch.ms() > 150));  // or it has left by then
}

TEST_CASE("cork: the end pushes what waits") {
  const Way way = EACH_WAY;
  INFO(way.name);
  const bool by_close = GENERATE(true, false);
  Pair pair = MakePair();
  Begin(pair.client, way);
  REQUIRE(send(pair.client, "last words", 10, way.flags) == 10);
  if (by_close) {
    pair.client.reset();
  } else {
    REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  }
  REQUIRE(ReceiveToEnd(pair.server) == "last words");
}

TEST_CASE("cork: the process's end pushes what waits") {
  const bool at_once = GENERATE(true, false);
  Listener listener = Listen();
  const pid_t child = Child([&] {
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    if (send(client, "last words", 10, MSG_MORE) != 10) return 2;
    client.release();
    if (!at_once) exit(0);
    return 0;
  });
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(ReceiveToEnd(server) == "last words");
  REQUIRE(ExitedWith(Reap(child), 0));
}

TEST_CASE("cork: a full peer pushes back as ever") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  SetOption(pair.client, IPPROTO_TCP, TCP_CORK, 1);
  const size_t sent = Fill(pair.client);
  REQUIRE(sent > 0);
  pair.client.reset();
  REQUIRE(ReceiveToEnd(pair.server).size() == sent);
}

// What comes behind many small writes.
enum class Behind { kNothing, kReceive, kPoll, kLargeWrite, kMore, kNoDelay, kShutdown, kClose, kExit };

TEST_CASE("stream of small writes: all arrives, in order, whatever comes behind it") {
  const Behind behind =
      GENERATE(Behind::kNothing, Behind::kReceive, Behind::kPoll, Behind::kLargeWrite, Behind::kMore,
               Behind::kNoDelay, Behind::kShutdown, Behind::kClose, Behind::kExit);
  INFO(static_cast<int>(behind));
  constexpr size_t kLarge = 1'000'000;
  const size_t size = GENERATE(1, 100, 5000);
  const std::string data = Pattern(size * 301);
  const std::string_view all = data, last = all.substr(size * 300);
  const auto write = [&](int fd) {
    for (size_t at = 0; at < size * 300; at += size) {
      if (!SendAll(fd, all.data() + at, size)) return false;
    }
    return true;
  };
  if (behind == Behind::kExit) {
    Listener listener = Listen();
    const pid_t child = Child([&] {
      Fd client = TcpSocket();
      if (connect(client, listener.address.get(), listener.address.length) != 0 || !write(client)) return 1;
      client.release();
      return 0;
    });
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(server >= 0);
    REQUIRE(Hash(ReceiveToEnd(server)) == Hash(data.substr(0, size * 300)));
    REQUIRE(ExitedWith(Reap(child), 0));
    return;
  }
  Pair pair = MakePair();
  std::promise<void> came;
  auto receiver = Async([&] {
    std::string got = ReceiveExactly(pair.server, size * 300);
    came.set_value();
    if (behind == Behind::kReceive || behind == Behind::kPoll) SendAll(pair.server, "answer");
    got += ReceiveExactly(pair.server, size);
    if (behind == Behind::kLargeWrite) got += ReceiveExactly(pair.server, kLarge);
    return got;
  });
  REQUIRE(write(pair.client));
  switch (behind) {
    case Behind::kNothing:
      REQUIRE(came.get_future().wait_for(std::chrono::milliseconds(kPatienceMs)) ==
              std::future_status::ready);
      break;
    case Behind::kReceive:
      REQUIRE(ReceiveExactly(pair.client, 6) == "answer");
      break;
    case Behind::kPoll:
      REQUIRE(PollOne(pair.client, POLLIN, kPatienceMs) == POLLIN);
      break;
    case Behind::kMore:
      REQUIRE(send(pair.client, last.data(), size, MSG_MORE) == static_cast<ssize_t>(size));
      break;
    case Behind::kNoDelay:
      SetOption(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
      break;
    case Behind::kLargeWrite:
    case Behind::kShutdown:
    case Behind::kClose:
    case Behind::kExit:
      break;
  }
  if (behind != Behind::kMore) REQUIRE(SendAll(pair.client, last.data(), size));
  if (behind == Behind::kLargeWrite) REQUIRE(SendAll(pair.client, Pattern(kLarge)));
  if (behind == Behind::kShutdown) REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  if (behind == Behind::kClose) pair.client.reset();
  REQUIRE(Hash(Get(receiver)) == Hash(data + (behind == Behind::kLargeWrite ? Pattern(kLarge) : "")));
}

}  // namespace
}  // namespace posix_test
