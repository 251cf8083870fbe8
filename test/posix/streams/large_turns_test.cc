// Large blocks in turns, above the Bcopy threshold that run.py sets, and what may come between.
#include <fcntl.h>
#include <sys/wait.h>

#include <atomic>

#include "test/posix/processes.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

constexpr size_t kBlock = 200'000;
constexpr int kLargeTurns = 30;

// Without looking first: who polls is no reader that waits with its memory.
std::string ReadAll(int fd, size_t size, int flags = 0) {
  std::string data(size, '\0');
  size_t got = 0;
  for (ssize_t n; got < size && (n = recv(fd, data.data() + got, size - got, flags)) != 0;) {
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      if (!WaitFor(fd, POLLIN)) break;
    } else if (errno != EINTR) {
      break;
    }
  }
  data.resize(got);
  return data;
}

std::string Block(int turn, size_t size) { return Pattern(size, static_cast<unsigned>(turn) % 200 + 1); }

// One turn of the end that asks, and of the other. Also in a child: no assertion.
bool Ask(int fd, int turn, size_t question, size_t answer, int flags = 0) {
  return SendAll(fd, Block(turn, question)) && ReadAll(fd, answer, flags) == Block(turn + 1, answer);
}
bool Answer(int fd, int turn, size_t question, size_t answer, int flags = 0) {
  return ReadAll(fd, question, flags) == Block(turn, question) && SendAll(fd, Block(turn + 1, answer));
}

struct TurnSizes {
  size_t question, answer;
};
TurnSizes AnySizes() { return GENERATE(TurnSizes{kBlock, kBlock}, TurnSizes{10, kBlock}); }

pid_t Serve(Listener& listener, TurnSizes sizes, int turns) {
  return Fork([&listener, sizes, turns] {
    Fd fd(accept(listener.fd, nullptr, nullptr));
    for (int turn = 0; turn < turns; ++turn) {
      if (!Answer(fd, turn, sizes.question, sizes.answer)) return 1;
    }
    return ReadAll(fd, 1).empty() ? 0 : 2;
  });
}

}  // namespace

TEST_CASE("turns: blocks in turns, with readers that want all, or with small turns between") {
  const TurnSizes sizes = AnySizes();
  const int flags = GENERATE(0, MSG_WAITALL);
  const int small = GENERATE(0, 3, 30);  // so many turns before one of a byte
  Pair pair = MakePair();
  auto server = Async([&] {
    for (int turn = 0; turn < kLargeTurns; ++turn) {
      if (!Answer(pair.server, turn, sizes.question, sizes.answer, flags)) return false;
      if (small != 0 && turn % small == 0 && !Answer(pair.server, turn, 1, 1)) return false;
    }
    return ReadAll(pair.server, 1).empty();
  });
  for (int turn = 0; turn < kLargeTurns; ++turn) {
    REQUIRE(Ask(pair.client, turn, sizes.question, sizes.answer, flags));
    if (small != 0 && turn % small == 0) REQUIRE(Ask(pair.client, turn, 1, 1));
  }
  pair.client.reset();
  REQUIRE(Get(server));
}

TEST_CASE("turns: an end that does not block") {
  const TurnSizes sizes = AnySizes();
  const bool at_server = GENERATE(false, true);
  Pair pair = MakePair();
  const int fd = at_server ? pair.server : pair.client;
  REQUIRE(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
  auto server = Async([&] {
    for (int turn = 0; turn < kLargeTurns; ++turn) {
      if (!Answer(pair.server, turn, sizes.question, sizes.answer)) return false;
    }
    return true;
  });
  for (int turn = 0; turn < kLargeTurns; ++turn)
    REQUIRE(Ask(pair.client, turn, sizes.question, sizes.answer));
  REQUIRE(Get(server));
}

TEST_CASE("turns: children of fork ask in turn with their parent") {
  const TurnSizes sizes = AnySizes();
  Listener listener = Listen();
  const pid_t server = Serve(listener, sizes, kLargeTurns);
  Fd client = Connected(listener);
  int turn = 0;
  while (turn < kLargeTurns) {
    if (turn % 25 == 24) {
      const pid_t child = Fork([&] {
        for (int i = 0; i < 5; ++i) {
          if (!Ask(client, turn + i, sizes.question, sizes.answer)) return 1;
        }
        return 0;
      });
      REQUIRE(ExitedWith(Reap(child), 0));
      turn += 5;
    } else {
      REQUIRE(Ask(client, turn, sizes.question, sizes.answer));
      ++turn;
    }
  }
  client.reset();
  REQUIRE(ExitedWith(Reap(server), 0));
}

TEST_CASE("turns: a half close at any turn") {
  const TurnSizes sizes = AnySizes();
  const int turns = GENERATE(2, 17, 20, 29, 36, 45, 60);
  Listener listener = Listen();
  const pid_t server = Serve(listener, sizes, turns);
  Fd client = Connected(listener);
  for (int turn = 0; turn + 1 < turns; ++turn) REQUIRE(Ask(client, turn, sizes.question, sizes.answer));
  REQUIRE(SendAll(client, Block(turns - 1, sizes.question)));
  REQUIRE(shutdown(client, SHUT_WR) == 0);
  REQUIRE(ReadAll(client, sizes.answer + 1) == Block(turns, sizes.answer));
  REQUIRE(ExitedWith(Reap(server), 0));
}

TEST_CASE("turns: a stream behind the turns") {
  const TurnSizes sizes = AnySizes();
  const int turns = GENERATE(20, 33, 45);
  Pair pair = MakePair();
  auto server = Async([&] {
    for (int turn = 0; turn < turns; ++turn) {
      if (!Answer(pair.server, turn, sizes.question, sizes.answer)) return false;
    }
    for (int i = 0; i < 40; ++i) {
      if (!SendAll(pair.server, Block(i, kBlock))) return false;
    }
    return true;
  });
  for (int turn = 0; turn < turns; ++turn) REQUIRE(Ask(pair.client, turn, sizes.question, sizes.answer));
  for (int i = 0; i < 40; ++i) REQUIRE(ReadAll(pair.client, kBlock) == Block(i, kBlock));
  REQUIRE(Get(server));
}

}  // namespace posix_test
