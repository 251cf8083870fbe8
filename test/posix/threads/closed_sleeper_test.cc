// The last number of a socket is closed while other threads sleep in its calls: the kernel keeps the open
// file for them until they return.
#include <atomic>

#include "test/posix/full_listener.h"
#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

// How the sleeper's number goes.
enum class Way { kClose, kDup2, kCloseRange };

void TakeAway(int fd, Way way) {
  switch (way) {
    case Way::kClose:
      REQUIRE(close(fd) == 0);
      break;
    case Way::kDup2: {
      const Fd other(open("/dev/null", O_RDWR));
      REQUIRE(dup2(other, fd) == fd);
      break;
    }
    case Way::kCloseRange:
      REQUIRE(close_range(static_cast<unsigned>(fd), static_cast<unsigned>(fd), 0) == 0);
      break;
  }
}

// A call in a thread of its own.
template <typename Call>
class Sleeper {
 public:
  explicit Sleeper(Call call)
      : result_(Async([this, call] {
          tid_ = gettid();
          const auto result = call();
          error_ = errno;
          return result;
        })) {}
  // It has gone to sleep.
  bool Sleeps() {
    return Eventually([&] { return tid_ != 0 && IsAsleep(tid_); });
  }
  bool StillSleeps() { return StillRunning(result_); }
  auto Result() { return Get(result_); }
  int error() const { return error_; }

 private:
  std::atomic<pid_t> tid_{0};
  std::atomic<int> error_{0};
  std::future<decltype(std::declval<Call>()())> result_;
};

// Nothing has come yet, nor the end.
bool IsQuiet(int fd) {
  char c;
  return PollOne(fd, POLLIN | POLLRDHUP, kQuietMs) == 0 && recv(fd, &c, 1, MSG_DONTWAIT) == -1 &&
         errno == EAGAIN;
}

}  // namespace

TEST_CASE("closed sleeper: who receives goes on until something comes, then the connection ends",
          "[closed]") {
  if (kUnderTsan) return Impossible(why::kClose);
  const Way way = GENERATE(Way::kClose, Way::kDup2, Way::kCloseRange);
  const bool timed = GENERATE(false, true);
  Pair pair = MakePair();
  if (timed) SetTimeout(pair.server, SO_RCVTIMEO, 2 * kPatienceMs);
  const int number = pair.server.release();
  char room[32];
  Sleeper sleeper([&] { return recv(number, room, sizeof room, 0); });
  REQUIRE(sleeper.Sleeps());
  TakeAway(number, way);
  if (way == Way::kDup2) {
    REQUIRE(close(number) == 0);
  }
  REQUIRE_ERRNO(fcntl(number, F_GETFD), EBADF);
  const bool sleeps = sleeper.StillSleeps();
  const bool quiet = IsQuiet(pair.client);
  SendAll(pair.client, "for the sleeper");
  REQUIRE(sleeper.Result() == 15);
  REQUIRE(std::string(room, 15) == "for the sleeper");
  REQUIRE(sleeps);
  REQUIRE(quiet);
  REQUIRE(ReceiveToEnd(pair.client).empty());
  REQUIRE(errno != ECONNRESET);
}

TEST_CASE("closed sleeper: its number may be another file's by then", "[closed]") {
  Pair pair = MakePair();
  Pair other = MakePair();
  const int number = pair.server.release();
  char room[4];
  Sleeper sleeper([&] { return recv(number, room, sizeof room, MSG_WAITALL); });
  REQUIRE(sleeper.Sleeps());
  REQUIRE(SendAll(pair.client, "a"));
  REQUIRE(Eventually([&] { return PollOne(number, POLLIN, 0) == 0; }));
  const Fd again(dup2(other.server, number));
  REQUIRE(again == number);
  REQUIRE(SendAll(other.client, "other"));
  REQUIRE(SendAll(pair.client, "b"));
  const bool sleeps = sleeper.StillSleeps();
  SendAll(pair.client, "cd");
  REQUIRE(sleeper.Result() == 4);
  REQUIRE(std::string(room, 4) == "abcd");
  REQUIRE(sleeps);
  REQUIRE(ReceiveExactly(again, 5) == "other");
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("closed sleeper: what a blocked write has still to send is sent", "[closed]") {
  constexpr size_t kSize = 24 << 20;
  Pair pair = MakePair();
  const int number = pair.client.release();
  const std::string data = Pattern(kSize);
  Sleeper sleeper([&] { return send(number, data.data(), data.size(), MSG_NOSIGNAL); });
  REQUIRE(sleeper.Sleeps());
  REQUIRE(close(number) == 0);
  const bool sleeps = sleeper.StillSleeps();
  const std::string got = ReceiveToEnd(pair.server);
  REQUIRE(sleeper.Result() == static_cast<ssize_t>(kSize));
  REQUIRE(sleeps);
  REQUIRE(got == data);
}

TEST_CASE("closed sleeper: of several the last one ends it", "[closed]") {
  if (kUnderTsan) return Impossible(why::kClose);
  constexpr size_t kSize = 24 << 20;
  Pair pair = MakePair();
  const int number = pair.client.release();
  const std::string data = Pattern(kSize);
  char room[8];
  Sleeper reader([&] { return recv(number, room, sizeof room, 0); });
  REQUIRE(reader.Sleeps());
  Sleeper writer([&] { return send(number, data.data(), data.size(), MSG_NOSIGNAL); });
  REQUIRE(writer.Sleeps());
  REQUIRE(close(number) == 0);
  const bool both = reader.StillSleeps() && writer.StillSleeps();
  const std::string got = ReceiveExactly(pair.server, kSize);
  const ssize_t sent = writer.Result();
  const bool reads = reader.StillSleeps() && IsQuiet(pair.server);
  SendAll(pair.server, "x");
  REQUIRE(reader.Result() == 1);
  REQUIRE(both);
  REQUIRE(sent == static_cast<ssize_t>(kSize));
  REQUIRE(got == data);
  REQUIRE(reads);
  REQUIRE(ReceiveToEnd(pair.server).empty());
}

TEST_CASE("closed sleeper: a receive's time passes", "[closed]") {
  Pair pair = MakePair();
  SetTimeout(pair.server, SO_RCVTIMEO, 700);
  const int number = pair.server.release();
  char c;
  Sleeper sleeper([&] { return recv(number, &c, 1, 0); });
  REQUIRE(sleeper.Sleeps());
  REQUIRE(close(number) == 0);
  REQUIRE(sleeper.Result() == -1);
  REQUIRE(sleeper.error() == EAGAIN);
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("closed sleeper: the peer's end ends it, too", "[closed]") {
  if (kUnderTsan) return Impossible(why::kClose);
  Pair pair = MakePair();
  const int number = pair.server.release();
  char c;
  Sleeper sleeper([&] { return recv(number, &c, 1, 0); });
  REQUIRE(sleeper.Sleeps());
  REQUIRE(close(number) == 0);
  const bool sleeps = sleeper.StillSleeps();
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(sleeper.Result() == 0);
  REQUIRE(sleeps);
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("closed sleeper: with its thread the connection goes", "[closed]") {
  if (kUnderAsan) return Impossible(why::kCancelled);
  if (kUnderTsan) return Impossible(why::kClose);
  Pair pair = MakePair();
  const int number = pair.server.release();
  std::atomic<pid_t> tid{0};
  struct Call {
    int number;
    std::atomic<pid_t>* tid;
  } call{number, &tid};
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, nullptr,
              [](void* argument) -> void* {
                auto* const c = static_cast<Call*>(argument);
                *c->tid = gettid();
                char byte;
                (void)!recv(c->number, &byte, 1, 0);
                return nullptr;
              },
              &call) == 0);
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(close(number) == 0);
  const bool quiet = IsQuiet(pair.client);
  REQUIRE(pthread_cancel(thread) == 0);
  void* result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  REQUIRE(result == PTHREAD_CANCELED);
  REQUIRE(quiet);
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("closed sleeper: who waits for a connect hears that its socket is closed", "[closed][mixed]") {
  if (kUnderTsan) return Impossible(why::kClose);
  const bool polls = GENERATE(true, false);
  CAPTURE(polls);
  FullListener full;
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  REQUIRE_ERRNO(full.Connect(client), EINPROGRESS);
  if (!polls) SetNonblocking(client, false);
  const int number = client.release();
  Sleeper sleeper([&]() -> ssize_t {
    pollfd connected{.fd = number, .events = POLLOUT, .revents = 0};
    return polls ? poll(&connected, 1, kPatienceMs) : send(number, "x", 1, MSG_NOSIGNAL);
  });
  REQUIRE(sleeper.Sleeps());
  const Stopwatch time;
  REQUIRE(close(number) == 0);
  full.listener.fd.reset();  // a kernel's connect ends by that
  const ssize_t result = sleeper.Result();
  REQUIRE(time.ms() < kPatienceMs / 2);
  REQUIRE(result == (polls ? 1 : -1));
}

}  // namespace posix_test
