// Connecting, accepting and what comes between, in whatever order (differential.h).
#include "test/posix/differences/differential.h"

namespace posix_test {
namespace {

enum Role : size_t { kClient, kListener, kAccepted };

class Connecting {
 public:
  explicit Connecting(uint32_t number)
      : random_(number),
        ours_(false),
        oracle_(true),
        player_(number, ours_, oracle_),
        length_(3 + number % 17) {
    Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
    BareFd bare = BareListener(AF_INET, BareSocket(AF_INET));
    target_ = listener.address;
    REQUIRE(syscall(SYS_getsockname, bare.get(), bare_target_.get(), &bare_target_.length) == 0);
    ours_.fds = {TcpSocket(AF_INET).release(), listener.fd.release(), -1};
    oracle_.fds = {BareSocket(AF_INET).release(), bare.release(), -1};
    for (World* w : {&ours_, &oracle_}) {
      for (const Role role : {kClient, kListener}) w->calls.Fcntl(w->fds[role], F_SETFL, O_NONBLOCK);
    }
  }

  std::string Play() {
    for (size_t i = 0; i < length_; ++i) {
      if (!Step()) return player_.log();
    }
    return "";
  }

 private:
  bool Connected() {
    Address address;
    return oracle_.calls.PeerName(oracle_.fds[kClient], &address) == 0;
  }

  bool Connect() {
    return player_.Play("connect", [this](World& w) {
      return Answer(w.calls.Connect(w.fds[kClient], w.calls.bare ? bare_target_ : target_));
    });
  }

  bool Step() {
    const size_t side = oracle_.fds[kAccepted] >= 0 && random_.Chance(2) ? kAccepted : kClient;
    const std::string end = side == kClient ? " client" : " server";
    switch (random_.Below(14)) {
      case 0:
      case 1:
      case 2:
        return Connect();
      case 3:
      case 4:
        if (oracle_.fds[kAccepted] >= 0) return true;
        return player_.Play("accept", [](World& w) {
          w.fds[kAccepted] = w.calls.Accept(w.fds[kListener]);
          return w.fds[kAccepted] >= 0 ? std::string("one") : Errno();
        });
      case 5:
        return player_.Play("SO_ERROR" + end,
                            [=](World& w) { return w.Option(w.fds[side], SOL_SOCKET, SO_ERROR); });
      case 6:
        return player_.Play("getpeername" + end, [=](World& w) {
          Address address;
          return Answer(w.calls.PeerName(w.fds[side], &address));
        });
      case 7:
      case 8:
        return player_.Play("send" + end, [=](World& w) {
          return Answer(w.calls.Send(w.fds[side], "abc", 3, MSG_NOSIGNAL));
        });
      case 9:
      case 10:
        return player_.Play("recv" + end, [=](World& w) {
          char room[8];
          const ssize_t n = w.calls.Receive(w.fds[side], room, sizeof room, 0);
          return Answer(n) + Quote(room, n);
        });
      case 11: {
        // Without a connection it would be forgotten: a known difference.
        if (!Connected()) return true;
        const int how = static_cast<int>(random_.Below(3));
        return player_.Play("shutdown" + end + " " + std::to_string(how),
                            [=](World& w) { return Answer(w.calls.Shutdown(w.fds[side], how)); });
      }
      case 12:
        return player_.Play("disconnect", [](World& w) {
          Address none;
          none.storage.ss_family = AF_UNSPEC;
          none.length = sizeof(sockaddr_in);
          return Answer(w.calls.Connect(w.fds[kClient], none));
        });
      default: {
        if (oracle_.fds[kAccepted] < 0) return true;
        const bool reset = random_.Chance(2);
        return player_.Play(reset ? "reset server" : "close server", [=](World& w) {
          const linger value{.l_onoff = 1, .l_linger = 0};
          if (reset) w.calls.Set(w.fds[kAccepted], SOL_SOCKET, SO_LINGER, &value, sizeof value);
          return Answer(w.calls.Close(std::exchange(w.fds[kAccepted], -1)));
        });
      }
    }
  }

  Random random_;
  World ours_, oracle_;
  Player player_;
  size_t length_;
  Address target_, bare_target_;
};

TEST_CASE("differential: connecting, accepting and going away") {
  PlayAll(200, [](uint32_t number) { return Connecting(number).Play(); });
}

}  // namespace
}  // namespace posix_test
