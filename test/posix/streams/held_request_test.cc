// Small questions, each followed by the read of a large answer: with SDP_FORCE=transaction, as these cases
// have it (run.py), a question waits for its read. Then something else follows, and the question arrives all
// the same.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <chrono>

#include "test/posix/processes.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

constexpr size_t kAnswer = 100'000;
constexpr size_t kQuestion = 40;
constexpr int kTurns = 12;

std::string Question(int turn) { return Pattern(kQuestion, static_cast<unsigned>(turn) % 200 + 1); }
std::string Answer(int turn) { return Pattern(kAnswer, static_cast<unsigned>(turn) % 200 + 2); }

// Without looking first, as SendAll() does: who polls lets the question go.
size_t ReadInto(std::string& data, int fd) {
  size_t got = 0;
  for (ssize_t n; got < data.size() && (n = recv(fd, data.data() + got, data.size() - got, 0)) > 0;)
    got += static_cast<size_t>(n);
  return got;
}
std::string Read(int fd, size_t size) {
  std::string data(size, '\0');
  data.resize(ReadInto(data, fd));
  return data;
}
bool Send(int fd, const std::string& data) {
  return send(fd, data.data(), data.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(data.size());
}
// Nothing between the question and the read, lest that be late.
bool Ask(int fd, int turn) {
  const std::string question = Question(turn);
  std::string data(kAnswer, '\1');
  return Send(fd, question) && ReadInto(data, fd) == kAnswer && data == Answer(turn);
}
bool Serve(int fd, int first, int turns) {
  for (int turn = first; turn < first + turns; ++turn) {
    if (Read(fd, kQuestion) != Question(turn) || !SendAll(fd, Answer(turn))) return false;
  }
  return true;
}

// In a child: so many turns; then it says that one more question is there, before it answers that; then the
// end.
pid_t ServeAndTell(Listener& listener, Pipe& heard) {
  return Fork([&] {
    Fd fd(accept(listener.fd, nullptr, nullptr));
    if (!Serve(fd, 0, kTurns)) return 1;
    if (Read(fd, kQuestion) != Question(kTurns)) return 2;
    if (write(heard.out, "x", 1) != 1) return 3;
    if (!SendAll(fd, Answer(kTurns))) return 0;  // nobody may want it
    (void)Read(fd, 1);
    return 0;
  });
}

}  // namespace

TEST_CASE("transaction: a question behind which no read comes arrives") {
  Listener listener = Listen();
  Pipe heard;
  const pid_t server = ServeAndTell(listener, heard);
  Fd client = Connected(listener);
  for (int turn = 0; turn < kTurns; ++turn) REQUIRE(Ask(client, turn));
  REQUIRE(Send(client, Question(kTurns)));
  enum class Then {
    kNothing,
    kPoll,
    kDuplicate,
    kHalfClose,
    kClose,
    kChildReads,
    kThreadReads,
    kPeek,
    kNonblocking,
    kUnsent
  };
  const auto then =
      GENERATE(Then::kNothing, Then::kPoll, Then::kDuplicate, Then::kHalfClose, Then::kClose,
               Then::kChildReads, Then::kThreadReads, Then::kPeek, Then::kNonblocking, Then::kUnsent);
  bool reads = true;
  switch (then) {
    case Then::kNothing:
      break;
    case Then::kPoll:
      REQUIRE(WaitFor(client, POLLIN));
      break;
    case Then::kDuplicate:
      client = Fd(dup(client));
      break;
    case Then::kHalfClose:
      REQUIRE(shutdown(client, SHUT_WR) == 0);
      break;
    case Then::kClose:
      client.reset();
      reads = false;
      break;
    case Then::kChildReads:
      REQUIRE(ExitedWith(Reap(Fork([&] { return Read(client, kAnswer) == Answer(kTurns) ? 0 : 1; })), 0));
      reads = false;
      break;
    case Then::kThreadReads: {
      auto reader = Async([&] { return Read(client, kAnswer) == Answer(kTurns); });
      REQUIRE(Get(reader));
      reads = false;
      break;
    }
    case Then::kPeek: {
      char byte;
      REQUIRE(recv(client, &byte, 1, MSG_PEEK) == 1);
      break;
    }
    case Then::kNonblocking: {
      char byte;
      const ssize_t n = recv(client, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
      REQUIRE((n == 1 || (n == -1 && errno == EAGAIN)));
      break;
    }
    case Then::kUnsent: {
      int unsent = -1;
      REQUIRE(ioctl(client, TIOCOUTQ, &unsent) == 0);
      REQUIRE(unsent >= 0);
      break;
    }
  }
  REQUIRE(WaitFor(heard.in, POLLIN));
  if (reads) REQUIRE(Read(client, kAnswer) == Answer(kTurns));
  client.reset();
  REQUIRE(ExitedWith(Reap(server), 0));
}

TEST_CASE("transaction: questions to two servers, and then both answers") {
  Pair first = MakePair();
  Pair second = MakePair();
  auto one = Async([&] { return Serve(first.server, 0, 3 * kTurns); });
  auto two = Async([&] { return Serve(second.server, 0, 3 * kTurns); });
  // Each by itself at first, so that each question may wait.
  for (int turn = 0; turn < 2 * kTurns; ++turn) {
    REQUIRE(Ask(first.client, turn));
    REQUIRE(Ask(second.client, turn));
  }
  for (int turn = 2 * kTurns; turn < 3 * kTurns; ++turn) {
    REQUIRE(Send(first.client, Question(turn)));
    REQUIRE(Send(second.client, Question(turn)));
    REQUIRE(Read(first.client, kAnswer) == Answer(turn));
    REQUIRE(Read(second.client, kAnswer) == Answer(turn));
  }
  REQUIRE(Get(one));
  REQUIRE(Get(two));
}

TEST_CASE("transaction: a question in pieces, and two questions at once") {
  Pair pair = MakePair();
  auto server = Async([&] { return Serve(pair.server, 0, kTurns + 60); });
  for (int turn = 0; turn < kTurns; ++turn) REQUIRE(Ask(pair.client, turn));
  for (int turn = kTurns; turn < kTurns + 60; turn += 2) {
    const std::string question = Question(turn);
    REQUIRE(Send(pair.client, question.substr(0, 1)));
    REQUIRE(Send(pair.client, question.substr(1)));
    if (turn % 4 == 0) REQUIRE(Read(pair.client, kAnswer) == Answer(turn));
    REQUIRE(Send(pair.client, Question(turn + 1)));
    if (turn % 4 != 0) REQUIRE(Read(pair.client, kAnswer) == Answer(turn));
    REQUIRE(Read(pair.client, kAnswer) == Answer(turn + 1));
  }
  REQUIRE(Get(server));
}

TEST_CASE("transaction: a question whose first piece was kept back for the next leaves with that") {
  constexpr int kMore = 10;
  // Not 200 ms each, for which a piece may be kept back that nothing follows. On a busy machine a turn may
  // take long, but not always.
  constexpr auto kLong = kMore * std::chrono::milliseconds(100);
  std::chrono::nanoseconds taken = kLong;
  for (int attempt = 0; attempt < 5 && taken >= kLong; ++attempt) {
    Pair pair = MakePair();
    auto server = Async([&] { return Serve(pair.server, 0, kTurns + kMore); });
    for (int turn = 0; turn < kTurns; ++turn) REQUIRE(Ask(pair.client, turn));
    const auto begun = std::chrono::steady_clock::now();
    for (int turn = kTurns; turn < kTurns + kMore; ++turn) {
      const std::string question = Question(turn);
      std::string data(kAnswer, '\1');
      REQUIRE(send(pair.client, question.data(), 10, MSG_NOSIGNAL | MSG_MORE) == 10);
      REQUIRE(Send(pair.client, question.substr(10)));
      REQUIRE(ReadInto(data, pair.client) == kAnswer);
      REQUIRE(data == Answer(turn));
    }
    taken = std::chrono::steady_clock::now() - begun;
    REQUIRE(Get(server));
  }
  REQUIRE(taken < kLong);
}

TEST_CASE("transaction: a process that ends behind a question has asked it") {
  Listener listener = Listen();
  Pipe heard;
  const pid_t server = ServeAndTell(listener, heard);
  const pid_t client = Fork([&] {
    Fd fd = TcpSocket();
    if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!Ask(fd, turn)) return 2;
    }
    return Send(fd, Question(kTurns)) ? 0 : 3;
  });
  REQUIRE(ExitedWith(Reap(client), 0));
  REQUIRE(WaitFor(heard.in, POLLIN));
  REQUIRE(ExitedWith(Reap(server), 0));
}

}  // namespace posix_test
