// A large blocking write that ends early when the reader has had a part of it: what it says has left is what
// arrives, and the memory is the caller's again.
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

constexpr size_t kPart = 5 * kMiB / 2;

struct Sent {
  ssize_t count = 0;
  int error = 0;
};

// One write of 64 MiB, whose memory is overwritten as soon as the call returns.
Sent WriteAndOverwrite(int fd, const std::string& data) {
  const std::unique_ptr<char[]> memory(new char[data.size()]);
  std::copy(data.begin(), data.end(), memory.get());
  const ssize_t count = send(fd, memory.get(), data.size(), MSG_NOSIGNAL);
  const int error = errno;
  std::fill_n(memory.get(), data.size(), '!');
  shutdown(fd, SHUT_WR);
  return {count, error};
}

std::string ReadPart(int fd) {
  std::string part(kPart, '\0');
  const ssize_t n = recv(fd, part.data(), part.size(), MSG_WAITALL);
  part.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return part;
}

std::string ReadRest(int fd) {
  std::string rest;
  std::vector<char> buffer(kMiB);
  for (ssize_t n; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;)
    rest.append(buffer.data(), static_cast<size_t>(n));
  return rest;
}

void RequireExact(const Sent& sent, const std::string& got, const std::string& data) {
  REQUIRE(sent.count >= static_cast<ssize_t>(kPart));
  REQUIRE(sent.count < static_cast<ssize_t>(data.size()));
  REQUIRE(got.size() == static_cast<size_t>(sent.count));
  REQUIRE(Hash(got) == Hash(data.substr(0, got.size())));
}

std::atomic<int> signals_of_loans{0};

// Turns of large questions and answers, so that readers lend their memory ahead, in two processes. Returns
// the server's; of the last question a byte is missing, for which the server sleeps in a receive.
constexpr int kLentTurns = 8;
constexpr size_t kLentQuestion = 300'000;
constexpr size_t kTurnSize = 900'000;

// Without looking first: who polls is no reader that waits with its memory.
std::string ReadBlocking(int fd, size_t size) {
  std::string data(size, '\0');
  size_t got = 0;
  for (ssize_t n; got < size && (n = recv(fd, data.data() + got, size - got, 0)) > 0;)
    got += static_cast<size_t>(n);
  data.resize(got);
  return data;
}

pid_t ServeTurns(Fd* client) {
  Listener listener = Listen();
  const pid_t server = Child([&] {
    Fd connection(accept(listener.fd, nullptr, nullptr));
    const std::string question = Pattern(kLentQuestion, 6);
    const std::string answer = Pattern(kTurnSize, 5);
    for (int i = 0; i < kLentTurns; ++i) {
      if (ReadBlocking(connection, kLentQuestion) != question) return 2;
      if (!SendAll(connection, answer)) return 3;
    }
    return ReceiveToEnd(connection).empty() ? 0 : 4;
  });
  *client = TcpSocket();
  REQUIRE(connect(*client, listener.address.get(), listener.address.length) == 0);
  const std::string question = Pattern(kLentQuestion, 6);
  for (int i = 0; i + 1 < kLentTurns; ++i) {
    REQUIRE(SendAll(*client, question));
    REQUIRE(ReadBlocking(*client, kTurnSize) == Pattern(kTurnSize, 5));
  }
  REQUIRE(SendAll(*client, question.data(), kLentQuestion - 1));
  return server;
}

char LastOfQuestion() { return Pattern(kLentQuestion, 6).back(); }

bool EndsTurns(int client) {
  const char last = LastOfQuestion();
  return SendAll(client, &last, 1) && ReadBlocking(client, kTurnSize) == Pattern(kTurnSize, 5);
}

// A receive with a large buffer that a signal ends; nothing comes meanwhile.
void InterruptedReceive(int fd) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++signals_of_loans; };
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  std::atomic<pthread_t> thread{};
  std::atomic<pid_t> tid{0};
  std::atomic<bool> done{false};
  std::string room(kTurnSize, '#');
  auto receiver = Async([&] {
    thread = pthread_self();
    tid = gettid();
    const ssize_t n = recv(fd, room.data(), room.size(), 0);
    const int error = errno;
    done = true;
    return std::pair(n, error);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(Eventually([&] {
    if (!done) pthread_kill(thread, SIGUSR1);
    return done.load();
  }));
  const auto [n, error] = Get(receiver);
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  REQUIRE(n == -1);
  REQUIRE(error == EINTR);
  REQUIRE(room == std::string(kTurnSize, '#'));
}

}  // namespace

TEST_CASE("lent: a signal when the reader has had a part: the count is exact") {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++signals_of_loans; };
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  signals_of_loans = 0;
  Pair pair = MakePair();
  const std::string data = Pattern(64 * kMiB);
  std::atomic<pthread_t> thread{};
  std::atomic<pid_t> tid{0};
  std::atomic<bool> done{false};
  auto sender = Async([&] {
    thread = pthread_self();
    tid = gettid();
    const Sent sent = WriteAndOverwrite(pair.client, data);
    done = true;
    return sent;
  });
  std::string got = ReadPart(pair.server);
  REQUIRE(got.size() == kPart);
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(Eventually([&] {
    if (!done) pthread_kill(thread, SIGUSR1);
    return done.load();
  }));
  got += ReadRest(pair.server);
  const Sent sent = Get(sender);
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  REQUIRE(signals_of_loans > 0);
  RequireExact(sent, got, data);
}

TEST_CASE("lent: the time runs out when the reader has had a part: the count is exact") {
  const std::string data = Pattern(64 * kMiB);
  for (int ms = 500;; ms *= 2) {
    Pair pair = MakePair();
    SetTimeout(pair.client, SO_SNDTIMEO, ms);
    auto sender = Async([&] { return WriteAndOverwrite(pair.client, data); });
    std::string got = ReadPart(pair.server);
    const bool in_time = got.size() == kPart;  // or the machine was busy elsewhere until the time was over
    const Sent sent = Get(sender);
    got += ReadRest(pair.server);
    if (!in_time && ms < 8000) continue;
    RequireExact(sent, got, data);
    return;
  }
}

TEST_CASE("lent: a receive that a signal ends in the middle of regular turns loses nothing") {
  Fd client;
  const pid_t server = ServeTurns(&client);
  InterruptedReceive(client);
  REQUIRE(EndsTurns(client));
  client.reset();
  REQUIRE(ExitedWith(Reap(server), 0));
}

// The last answer comes as small pieces, the first of them before the reader is there.
TEST_CASE("lent: MSG_WAITALL in regular turns gets all of an answer that comes in pieces") {
  Pair pair = MakePair();
  const std::string question = Pattern(kLentQuestion, 6);
  const std::string answer = Pattern(kTurnSize, 5);
  auto server = Async([&] {
    for (int i = 0; i < kLentTurns; ++i) {
      if (ReadBlocking(pair.server, kLentQuestion) != question) return false;
      if (i + 1 == kLentTurns) break;
      if (!SendAll(pair.server, answer)) return false;
    }
    for (size_t at = 0, n; at < kTurnSize; at += n) {
      n = std::min<size_t>(at % 7 == 0 ? 5'000 : 50'001, kTurnSize - at);
      if (!SendAll(pair.server, answer.data() + at, n)) return false;
    }
    return true;
  });
  for (int i = 0; i < kLentTurns; ++i) {
    REQUIRE(SendAll(pair.client, question));
    if (i + 1 < kLentTurns) REQUIRE(ReadBlocking(pair.client, kTurnSize) == answer);
  }
  std::string got(kTurnSize, '\0');
  REQUIRE(recv(pair.client, got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(kTurnSize));
  REQUIRE(got == answer);
  REQUIRE(Get(server));
}

TEST_CASE("lent: a child of fork reads the answer that its parent's receive gave up") {
  Fd client;
  const pid_t server = ServeTurns(&client);
  InterruptedReceive(client);
  const pid_t child = Child([&] { return EndsTurns(client) ? 0 : 1; });
  REQUIRE(ExitedWith(Reap(child), 0));
  client.reset();
  REQUIRE(ExitedWith(Reap(server), 0));
}

// The peer waits for the end of its question, and the reader for the answer.
TEST_CASE("lent: a child of fork says what the peer waits for while its parent's reader lends its memory") {
  Fd client;
  const pid_t server = ServeTurns(&client);
  std::atomic<pid_t> tid{0};
  auto reader = Async([&] {
    tid = gettid();
    return ReadBlocking(client, kTurnSize);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  const char last = LastOfQuestion();
  const pid_t child = Child([&] { return SendAll(client, &last, 1) ? 0 : 1; });
  const int status = Reap(child);
  if (!ExitedWith(status, 0))
    SendAll(client, &last, 1);  // a reader left asleep would keep the whole case from its end
  REQUIRE(ExitedWith(status, 0));
  REQUIRE(Hash(Get(reader)) == Hash(Pattern(kTurnSize, 5)));
  client.reset();
  REQUIRE(ExitedWith(Reap(server), 0));
}

TEST_CASE("lent: forks at any moment of regular turns lose nothing") {
  if (kUnderAsan)
    return Impossible(
        "other threads allocate all the time, and ASan's allocator does not let go of its locks for a fork");
  constexpr int kForks = 8, kTurnsBetween = 10;
  Pair pair = MakePair();
  const std::string question = Pattern(kLentQuestion, 6), answer = Pattern(kTurnSize, 5);
  std::atomic<int> turns{0};
  auto server = Async([&] {
    for (int i = 0; i < kForks * kTurnsBetween; ++i) {
      if (ReadBlocking(pair.server, kLentQuestion) != question || !SendAll(pair.server, answer)) return false;
    }
    return true;
  });
  auto client = Async([&] {
    for (int i = 0; i < kForks * kTurnsBetween; ++i) {
      if (!SendAll(pair.client, question) || ReadBlocking(pair.client, kTurnSize) != answer) return false;
      ++turns;
    }
    return true;
  });
  for (int i = 0; i < kForks; ++i) {
    REQUIRE(Eventually([&] { return turns >= i * kTurnsBetween + kTurnsBetween / 2; }));
    REQUIRE(ExitedWith(Reap(Child([] { return 0; })), 0));
  }
  REQUIRE(Get(client));
  REQUIRE(Get(server));
}

}  // namespace posix_test
