// Each bit that the calls know, or do not know, alone: what comes of it is what comes of it on bare TCP.
#include <limits>

#include "test/posix/differences/differential.h"

namespace posix_test {
namespace {

std::string Hex(uint32_t bits) {
  char text[16];
  snprintf(text, sizeof text, "%#x", bits);
  return text;
}

// The same on a connection of the C library's calls and on a bare one.
void Compare(const std::string& what, const std::function<void(World&)>& prepare, const Step& step) {
  INFO(what);
  World ours(/*bare=*/false), oracle(/*bare=*/true);
  MakeConnections(ours, oracle);
  for (World* world : {&ours, &oracle}) prepare(*world);
  Player player(0, ours, oracle);
  const bool settles = player.Settles();
  INFO(player.log());
  REQUIRE(settles);
  const std::string mine = step(ours), theirs = step(oracle);
  CHECK(mine == theirs);
}

constexpr int kClientEnd = 0, kServerEnd = 1;

std::string All(World& world, int end) {
  std::string text;
  char buffer[64];
  const Stopwatch watch;
  for (;;) {
    const ssize_t n =
        world.calls.Receive(world.fds[static_cast<size_t>(end)], buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
      text.append(buffer, static_cast<size_t>(n));
    } else if (n == 0) {
      return text + " and the end";
    } else if (errno != EAGAIN || watch.ms() > kPatienceMs) {
      return text + " and " + Errno();
    }
  }
}

TEST_CASE("flag table: each of send's") {
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    const int flag = static_cast<int>(bit);
    // Of these three there are cases of their own: the byte is apart from the stream, a second connection, a
    // notice.
    if (flag == MSG_OOB || flag == MSG_FASTOPEN || flag == MSG_ZEROCOPY) continue;
    Compare(
        "send with " + Hex(bit), [](World&) {},
        [flag](World& world) {
          std::string text = Answer(world.calls.Send(world.fds[kClientEnd], "ab", 2, flag | MSG_NOSIGNAL));
          text += ", " + Answer(world.calls.Shutdown(world.fds[kClientEnd], SHUT_WR));
          return text + ": " + All(world, kServerEnd);
        });
  }
}

std::string ReceiveMessage(World& world, int flags) {
  char room[4];
  iovec piece{room, sizeof room};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_flags = -1;
  const ssize_t n = world.calls.ReceiveMessage(world.fds[kServerEnd], &message, flags);
  return Answer(n) + (n < 0 ? ""
                            : Quote(room, std::min<ssize_t>(n, 4)) + " flags " +
                                  Hex(static_cast<uint32_t>(message.msg_flags)));
}

TEST_CASE("flag table: each of recv's, with nothing to receive, with more than enough, and at the end") {
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    const int flag = static_cast<int>(bit);
    if (flag == MSG_OOB || flag == MSG_ERRQUEUE) continue;  // what is apart from the stream
    const auto receive = [flag](World& world) {
      char room[4] = {};
      // With MSG_TRUNC what is counted was not written.
      const ssize_t n = world.calls.Receive(world.fds[kServerEnd], room, sizeof room, flag | MSG_DONTWAIT);
      std::string text = Answer(n) + (n > 0 ? Quote(room, 4) : "");
      text += ", " + ReceiveMessage(world, flag | MSG_DONTWAIT);
      return text;
    };
    Compare(
        "recv of nothing with " + Hex(bit), [](World&) {}, receive);
    Compare(
        "recv with " + Hex(bit),
        [](World& world) { REQUIRE(world.calls.Send(world.fds[kClientEnd], "abcdef", 6, 0) == 6); },
        [&receive](World& world) { return receive(world) + ", left " + world.State(); });
    Compare(
        "recv at the end with " + Hex(bit),
        [](World& world) { REQUIRE(world.calls.Shutdown(world.fds[kClientEnd], SHUT_WR) == 0); }, receive);
  }
}

struct Situation {
  const char* name;
  std::function<void(World&)> make;
};

const Situation kSituations[] = {
    {"new connection", [](World&) {}},
    {"data", [](World& w) { w.calls.Send(w.fds[kServerEnd], "x", 1, 0); }},
    {"urgent data", [](World& w) { w.calls.Send(w.fds[kServerEnd], "xy", 2, MSG_OOB); }},
    {"the peer's end", [](World& w) { w.calls.Shutdown(w.fds[kServerEnd], SHUT_WR); }},
    {"its own end", [](World& w) { w.calls.Shutdown(w.fds[kClientEnd], SHUT_WR); }},
    {"both ends",
     [](World& w) {
       w.calls.Shutdown(w.fds[kServerEnd], SHUT_WR), w.calls.Shutdown(w.fds[kClientEnd], SHUT_WR);
     }},
    {"a reset",
     [](World& w) {
       const linger reset{.l_onoff = 1, .l_linger = 0};
       w.calls.Set(w.fds[kServerEnd], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
       w.calls.Close(std::exchange(w.fds[kServerEnd], -1));
     }},
};

std::string PollEach(World& world) {
  std::string text;
  for (uint32_t bits = 1; bits <= 0x10000; bits <<= 1) {
    pollfd one{.fd = world.fds[kClientEnd],
               .events = static_cast<short>(bits == 0x10000 ? 0xffff : bits),
               .revents = 0};
    text += " " + Answer(world.calls.Poll(&one, 1)) + ":" + Hex(static_cast<uint16_t>(one.revents));
  }
  return text;
}

// Each alone, and those that are events together.
std::string EpollEach(World& world) {
  std::string text;
  const auto look = [&](uint32_t bits) {
    const Fd set(epoll_create1(0));
    epoll_event event{.events = bits, .data = {.u32 = 7}};
    text += " " + Answer(world.calls.EpollControl(set, EPOLL_CTL_ADD, world.fds[kClientEnd], &event));
    for (int round = 0; round < 2; ++round) {
      event = {};
      const int n = world.calls.EpollWait(set, &event, 1);
      text += ":" + Answer(n) + ":" + Hex(event.events);
    }
  };
  for (uint32_t bit = 1; bit != 0; bit <<= 1) look(bit);
  look(~static_cast<uint32_t>(EPOLLEXCLUSIVE | EPOLLWAKEUP | EPOLLET | EPOLLONESHOT));
  return text;
}

TEST_CASE("flag table: each bit of poll's and of epoll's, whatever a connection has come to") {
  for (const Situation& situation : kSituations) {
    Compare(std::string("poll, ") + situation.name, situation.make, PollEach);
    Compare(std::string("epoll, ") + situation.name, situation.make, EpollEach);
  }
}

TEST_CASE(
    "flag table: each bit of poll's and of epoll's, of a new socket and a listener, with and without a "
    "client") {
  for (const bool by_epoll : {false, true}) {
    World ours(/*bare=*/false), oracle(/*bare=*/true);
    const auto look = [&](const char* what) {
      CAPTURE(what, by_epoll);
      CHECK((by_epoll ? EpollEach : PollEach)(ours) == (by_epoll ? EpollEach : PollEach)(oracle));
    };
    ours.fds = {TcpSocket().release()};
    oracle.fds = {BareSocket(AF_INET).release()};
    look("new");
    Address here = Loopback(AF_INET), there = Loopback(AF_INET);
    REQUIRE(bind(ours.fds[0], here.get(), here.length) == 0);
    REQUIRE(syscall(SYS_bind, oracle.fds[0], there.get(), there.length) == 0);
    REQUIRE(listen(ours.fds[0], 8) == 0);
    REQUIRE(syscall(SYS_listen, oracle.fds[0], 8) == 0);
    look("listener");
    REQUIRE(syscall(SYS_getsockname, oracle.fds[0], there.get(), &there.length) == 0);
    here = LocalOf(ours.fds[0]);
    Fd client = TcpSocket();
    const BareFd bare_client = BareSocket(AF_INET);
    REQUIRE(connect(client, here.get(), here.length) == 0);
    REQUIRE(syscall(SYS_connect, bare_client.get(), there.get(), there.length) == 0);
    REQUIRE(WaitFor(ours.fds[0], POLLIN));
    look("listener with a client");
    // Who sleeps for the one word hears of it, too.
    const Fd accepted(accept(ours.fds[0], nullptr, nullptr));
    auto sleeper = Async([fd = ours.fds[0]] { return PollOne(fd, POLLRDNORM); });
    REQUIRE(StillRunning(sleeper));
    Fd another = TcpSocket();
    REQUIRE(connect(another, here.get(), here.length) == 0);
    REQUIRE(Get(sleeper) == POLLRDNORM);
  }
}

TEST_CASE("flag table: lengths and counts that are too large") {
  Pair pair = MakePair();
  const Fd set(epoll_create1(0));
  // Not on the stack: behind that may be less room than the kernel checks for.
  static epoll_event event;
  event = {.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  // The compiler knows how much room there is.
  volatile int most = std::numeric_limits<int>::max() / static_cast<int>(sizeof event);
  REQUIRE(epoll_wait(set, &event, most, 0) == 1);
  most = most + 1;
  REQUIRE_ERRNO(epoll_wait(set, &event, most, 0), EINVAL);
  const Listener listener = Listen();
  sockaddr_storage room[2] = {};
  memcpy(room, &listener.address.storage, sizeof listener.address.storage);
  const Fd client = TcpSocket();
  REQUIRE_ERRNO(connect(client, reinterpret_cast<sockaddr*>(room), sizeof room[0] + 1), EINVAL);
  REQUIRE(connect(client, reinterpret_cast<sockaddr*>(room), sizeof room[0]) == 0);
}

}  // namespace
}  // namespace posix_test
