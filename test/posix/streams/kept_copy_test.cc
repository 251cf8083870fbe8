// A large write whose reader was late: it has returned as if TCP had buffered, and its bytes are this
// process's to deliver, whatever becomes of the process and whoever shares the connection.

#include "test/posix/processes.h"

namespace posix_test {
namespace {

constexpr size_t kLarge = 300'000;

// What TCP's buffers hold is written without a reader.
Pair WithUnreadWrite(const std::string& data) {
  Pair pair = MakePair();
  auto writer = Async([&] { return SendAll(pair.client, data); });
  REQUIRE(Get(writer));
  return pair;
}

TEST_CASE("kept: a child that writes behind it, and the parent closes or stays") {
  const bool parent_stays = GENERATE(false, true);
  const size_t more = GENERATE(5u, 200'000u);
  const std::string first = Pattern(kLarge, 3), second = Pattern(more, 4);
  Pair pair = WithUnreadWrite(first);
  const pid_t pid = Fork([&] {
    pair.server.reset();
    return SendAll(pair.client, second) ? 0 : 1;
  });
  if (!parent_stays) pair.client.reset();
  const std::string got = ReceiveExactly(pair.server, first.size() + second.size());
  REQUIRE(got.size() == first.size() + second.size());
  REQUIRE(Hash(got) == Hash(first + second));
  REQUIRE(ExitedWith(Reap(pid), 0));
  pair.client.reset();
  REQUIRE(ReceiveToEnd(pair.server).empty());
}

TEST_CASE("kept: a child that writes long before anybody reads") {
  const bool nonblocking = GENERATE(false, true);
  const std::string first = Pattern(kLarge, 3);
  Pair pair = WithUnreadWrite(first);
  if (nonblocking) SetNonblocking(pair.client);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    pair.server.reset();
    if (write(out, "x", 1) != 1) return 1;
    return SendAll(pair.client, "behind") ? 0 : 2;
  });
  char c;
  REQUIRE(read(in, &c, 1) == 1);
  REQUIRE(PollOne(in, POLLIN, 2500) == 0);  // longer than the library waits for another process by itself
  const std::string got = ReceiveExactly(pair.server, kLarge + 6);
  REQUIRE(Hash(got) == Hash(first + "behind"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("kept: calls of a child that do not block, or not for long, answer at once") {
  const std::string first = Pattern(kLarge, 3);
  Pair pair = WithUnreadWrite(first);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    pair.server.reset();
    in.reset();
    const Stopwatch watch;
    if (PollOne(pair.client, POLLIN, 0) != 0) return 1;
    char c;
    if (recv(pair.client, &c, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN) return 2;
    (void)send(pair.client, "", 0, MSG_DONTWAIT);
    if (watch.ms() > 1000) return 3;
    const timeval timeout{.tv_sec = 0, .tv_usec = 100'000};
    if (setsockopt(pair.client, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0) return 4;
    const Stopwatch again;
    if (PollOne(pair.client, POLLIN, 100) != 0) return 5;
    if (recv(pair.client, &c, 1, 0) != -1 || errno != EAGAIN) return 6;
    if (again.ms() > 1000) return 7;
    if (write(out, "x", 1) != 1) return 8;
    return PollOne(pair.client, POLLIN, 10'000) == POLLIN && ReceiveExactly(pair.client, 6) == "answer" ? 0
                                                                                                        : 9;
  });
  out.reset();
  char c;
  if (read(in, &c, 1) == 1) {
    REQUIRE(Hash(ReceiveExactly(pair.server, kLarge)) == Hash(first));
    REQUIRE(SendAll(pair.server, "answer"));
  }
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("kept: a child that reads the answer") {
  const std::string first = Pattern(kLarge, 3);
  Pair pair = WithUnreadWrite(first);
  const pid_t pid = Fork([&] {
    pair.server.reset();
    return ReceiveExactly(pair.client, 6) == "answer" ? 0 : 1;
  });
  REQUIRE(Hash(ReceiveExactly(pair.server, kLarge)) == Hash(first));
  REQUIRE(SendAll(pair.server, "answer"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("kept: a child whose program writes behind it") {
  const std::string first = Pattern(kLarge, 3);
  Pair pair = WithUnreadWrite(first);
  const pid_t pid = Fork([&] {
    pair.server.reset();
    if (dup2(pair.client, STDOUT_FILENO) < 0) return 1;
    pair.client.reset();
    execl("/bin/echo", "echo", "-n", "behind", nullptr);
    return 2;
  });
  pair.client.reset();
  REQUIRE(Hash(ReceiveToEnd(pair.server)) == Hash(first + "behind"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("kept: the process exits, and the reader comes later") {
  const bool at_once = GENERATE(false, true);
  Listener listener = Listen();
  const pid_t pid = Child([&] {
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    if (!SendAll(client, Pattern(kLarge))) return 2;
    if (at_once) _exit(0);
    exit(client.release() >= 0 ? 0 : 3);
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  char c;
  REQUIRE(recv(server, &c, 1, MSG_PEEK) == 1);
  REQUIRE(PollOne(listener.fd, POLLIN, 500) == 0);
  REQUIRE(Hash(ReceiveToEnd(server)) == Hash(Pattern(kLarge)));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
