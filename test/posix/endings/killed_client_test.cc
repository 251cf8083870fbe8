// A client that connects, sends and is killed right behind that, while nobody has accepted it yet: the server
// gets the connection all the same, what was sent, and then an end or a reset.
#include <unistd.h>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

enum class How { kAcceptAsleep, kPoll, kLate };

pid_t KilledBehindSend(Listener& listener, size_t size) {
  return Fork([&] {
    listener.fd.reset();  // a stranger to the server
    const Fd fd = TcpSocket();
    if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
    const std::string data = Pattern(size);
    if (send(fd, data.data(), data.size(), 0) != static_cast<ssize_t>(data.size())) return 2;
    kill(getpid(), SIGKILL);
    return 3;
  });
}

TEST_CASE("killed: a client right behind its first send is accepted, and what it has sent is there") {
  const How how = GENERATE(How::kAcceptAsleep, How::kPoll, How::kLate);
  const size_t size = GENERATE(size_t{1}, size_t{5000});
  Listener listener = Listen();
  for (int round = 0; round < 10; ++round) {
    const auto accept_one = [&] { return accept(listener.fd, nullptr, nullptr); };
    std::future<int> sleeper;
    if (how == How::kAcceptAsleep) sleeper = Async(accept_one);
    const int status = Reap(KilledBehindSend(listener, size));
    REQUIRE(WIFSIGNALED(status));
    if (how == How::kPoll) REQUIRE(WaitFor(listener.fd, POLLIN));
    if (how == How::kLate) SetTimeout(listener.fd, SO_RCVTIMEO, kPatienceMs);
    Fd server(how == How::kAcceptAsleep ? Get(sleeper) : accept_one());
    REQUIRE(server >= 0);
    REQUIRE(ReceiveExactly(server, size) == Pattern(size));
    char c;
    const ssize_t end = recv(server, &c, 1, 0);
    REQUIRE((end == 0 || (end == -1 && errno == ECONNRESET)));
  }
}

}  // namespace
}  // namespace posix_test
