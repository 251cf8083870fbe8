// What the two ends of a connection are asked, in whatever order (differential.h).
#include "test/posix/differences/differential.h"

#include <map>

namespace posix_test {
namespace {

// --- Calls on a connection's two ends

Call SendCall(Random& random, size_t side) {
  std::string data;
  for (size_t n = random.Of({size_t{0}, size_t{1}, size_t{2}, size_t{7}, kMost}); n > 0; --n)
    data += static_cast<char>('a' + random.Below(26));
  const std::string end = side == 0 ? "client" : "server";
  const std::string said = end + " '" + data + "'";
  switch (random.Below(3)) {
    case 0:
      return {"write " + said,
              [=](World& w) { return Answer(w.calls.Write(w.fds[side], data.data(), data.size())); }};
    case 1:
      return {"writev " + said, [=](World& w) {
                const iovec iov[3] = {
                    {const_cast<char*>(data.data()), data.size() / 2},
                    {nullptr, 0},
                    {const_cast<char*>(data.data()) + data.size() / 2, data.size() - data.size() / 2}};
                return Answer(w.calls.Writev(w.fds[side], iov, 3));
              }};
    default:
      return {"send " + said, [=](World& w) {
                return Answer(w.calls.Send(w.fds[side], data.data(), data.size(), MSG_NOSIGNAL));
              }};
  }
}

Call ReceiveCall(Random& random, size_t side) {
  const size_t size = random.Of({size_t{0}, size_t{1}, size_t{2}, size_t{5}, size_t{50}, size_t{200}});
  const std::string end = side == 0 ? "client " : "server ";
  const std::string said = end + std::to_string(size);
  switch (random.Below(4)) {
    case 0:
      return {"read " + said, [=](World& w) {
                char room[200];
                const ssize_t n = w.calls.Read(w.fds[side], room, size);
                return Answer(n) + Quote(room, n);
              }};
    case 1:
      return {"readv " + said, [=](World& w) {
                char room[200];
                const iovec iov[2] = {{room, size / 3}, {room + size / 3, size - size / 3}};
                const ssize_t n = w.calls.Readv(w.fds[side], iov, 2);
                return Answer(n) + Quote(room, n);
              }};
    default:
      break;
  }
  const int flags =
      random.Of<int>({0, 0, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_PEEK | MSG_WAITALL, MSG_PEEK | MSG_TRUNC});
  if (random.Chance(3)) {
    return {"recvmsg" + FlagNames(flags) + " " + said, [=](World& w) {
              char room[200];
              iovec iov{room, size};
              msghdr message{};
              message.msg_iov = &iov;
              message.msg_iovlen = 1;
              const ssize_t n = w.calls.ReceiveMessage(w.fds[side], &message, flags | MSG_DONTWAIT);
              const bool counted_only = (flags & MSG_TRUNC) != 0;
              return Answer(n) + (counted_only ? "" : Quote(room, n)) +
                     (n >= 0 ? " flags " + std::to_string(message.msg_flags) : "");
            }};
  }
  return {"recv" + FlagNames(flags) + " " + said, [=](World& w) {
            char room[200];
            const ssize_t n = w.calls.Receive(w.fds[side], room, size, flags | MSG_DONTWAIT);
            const bool counted_only = (flags & MSG_TRUNC) != 0;
            return Answer(n) + (counted_only ? "" : Quote(room, n));
          }};
}

std::string WaitForEvents(World& w) {
  epoll_event events[4];
  const int n = w.calls.EpollWait(w.epoll, events, 4);
  if (n < 0) return Errno();
  std::map<uint64_t, std::string> sorted;
  for (int i = 0; i < n; ++i)
    sorted[events[i].data.u64] += Events(static_cast<short>(events[i].events)) + ";";
  std::string text;
  for (const auto& [who, what] : sorted) text += " " + std::to_string(who) + ":" + what;
  return std::to_string(n) + text;
}

uint32_t RandomEvents(Random& random) {
  uint32_t events = random.Of<uint32_t>({uint32_t{EPOLLIN}, uint32_t{EPOLLIN} | EPOLLOUT,
                                         uint32_t{EPOLLRDHUP}, uint32_t{EPOLLIN} | EPOLLRDHUP,
                                         uint32_t{EPOLLOUT}, uint32_t{EPOLLPRI}, uint32_t{0}});
  // An edge of room may come once more here, when the peer's credit comes back.
  if (random.Chance(2) && (events & EPOLLOUT) == 0) events |= EPOLLET;
  if (random.Chance(4)) events |= EPOLLONESHOT;
  return events;
}

Call EpollCall(Random& random, size_t side) {
  if (random.Chance(3)) {
    const uint32_t events = RandomEvents(random);
    const int operation = random.Of<int>({EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_MOD, EPOLL_CTL_DEL});
    return {"epoll_ctl " + std::to_string(operation) + (side == 0 ? " client " : " server ") +
                Events(static_cast<short>(events)) + ((events & EPOLLET) != 0 ? "|ET" : "") +
                ((events & EPOLLONESHOT) != 0 ? "|ONESHOT" : ""),
            [=](World& w) {
              epoll_event event{.events = events, .data = {.u64 = side}};
              return Answer(w.calls.EpollControl(w.epoll, operation, w.fds[side], &event));
            }};
  }
  return {"epoll_wait", WaitForEvents};
}

Call OtherCall(Random& random, size_t side) {
  const std::string end = side == 0 ? "client" : "server";
  switch (random.Below(8)) {
    case 6: {
      const short events = random.Of<short>({0, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLIN | POLLRDHUP,
                                             POLLRDNORM, POLLWRNORM, POLLRDBAND, POLLWRBAND});
      return {"poll " + end + " " + std::to_string(events), [=](World& w) {
                pollfd one{.fd = w.fds[side], .events = events, .revents = 0};
                const int ready = w.calls.Poll(&one, 1);
                return Answer(ready) + " " + std::to_string(one.revents);
              }};
    }
    case 0: {
      const int how = static_cast<int>(random.Below(3));
      return {"shutdown " + end + " " + std::to_string(how),
              [=](World& w) { return Answer(w.calls.Shutdown(w.fds[side], how)); }};
    }
    case 1:
      return {"SO_ERROR " + end, [=](World& w) { return w.Option(w.fds[side], SOL_SOCKET, SO_ERROR); }};
    case 2: {
      const int value = random.Of({1, 0, 3, 20});
      return {"SO_RCVLOWAT " + end + " " + std::to_string(value), [=](World& w) {
                return Answer(w.calls.Set(w.fds[side], SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value));
              }};
    }
    case 3:
      return {"another number " + end, [=](World& w) {
                const int copy = w.calls.Dup(w.fds[side]);
                if (copy < 0) return Errno();
                const int closed = w.calls.Close(w.fds[side]);
                w.fds[side] = copy;
                return Answer(closed);
              }};
    case 4:
      return {"getpeername " + end, [=](World& w) {
                Address address;
                return Answer(w.calls.PeerName(w.fds[side], &address));
              }};
    case 5: {
      if (!random.Chance(2)) break;
      const bool reset = random.Chance(3);
      return {std::string(reset ? "reset " : "close ") + end, [=](World& w) {
                const linger value{.l_onoff = 1, .l_linger = 0};
                if (reset) w.calls.Set(w.fds[side], SOL_SOCKET, SO_LINGER, &value, sizeof value);
                return Answer(w.calls.Close(std::exchange(w.fds[side], -1)));
              }};
    }
    default:
      break;
  }
  return {"state " + end, [=](World& w) {
            tcp_info info{};
            socklen_t length = sizeof info;
            if (w.calls.Get(w.fds[side], IPPROTO_TCP, TCP_INFO, &info, &length) < 0) return Errno();
            // Which of the states of a connection that has been ended by this end is the link's business.
            return std::string(info.tcpi_state == TCP_ESTABLISHED  ? "established"
                               : info.tcpi_state == TCP_CLOSE_WAIT ? "close-wait"
                                                                   : "other");
          }};
}

std::string PlayConnection(uint32_t number, bool with_epoll) {
  Random random(number);
  World ours(false), oracle(true);
  MakeConnections(ours, oracle);
  for (World* w : {&ours, &oracle}) {
    if (with_epoll)
      w->epoll = w->calls.bare ? static_cast<int>(syscall(SYS_epoll_create1, 0)) : epoll_create1(0);
  }
  Player player(number, ours, oracle);
  const size_t length = 3 + number % 23;
  for (size_t i = 0; i < length; ++i) {
    size_t side = random.Below(2);
    if (ours.fds[side] < 0) side = 1 - side;
    if (ours.fds[side] < 0) return "";
    Call call;
    switch (random.Below(with_epoll ? 7 : 5)) {
      case 0:
      case 1:
        call = SendCall(random, side);
        break;
      case 2:
      case 3:
        call = ReceiveCall(random, side);
        break;
      case 4:
        call = OtherCall(random, side);
        break;
      default:
        call = EpollCall(random, side);
        break;
    }
    if (!player.Play(call.what, call.step)) return player.log();
  }
  return "";
}

TEST_CASE("differential: a connection's two ends") {
  signal(SIGPIPE, SIG_IGN);
  PlayAll(300, [](uint32_t number) { return PlayConnection(number, false); });
}

TEST_CASE("differential: with an epoll set") {
  signal(SIGPIPE, SIG_IGN);
  PlayAll(300, [](uint32_t number) { return PlayConnection(number, true); });
}

}  // namespace
}  // namespace posix_test
