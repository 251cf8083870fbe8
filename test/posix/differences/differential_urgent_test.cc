// Urgent bytes among others, read in whatever order (differential.h). One at a time: that one which another
// overtakes is lost is a known difference.
#include <memory>
#include <optional>

#include "test/posix/differences/differential.h"

namespace posix_test {
namespace {

// What goes to one end, as TCP counts it.
struct Direction {
  bool in_line = false;
  size_t sent = 0, read = 0;   // an urgent byte counts where it is in line
  std::optional<size_t> mark;  // where it stands, until it has been passed
  bool taken = false;          // by MSG_OOB
};

class Urgent {
 public:
  explicit Urgent(uint32_t number)
      : random_(number), ours_(false), oracle_(true), player_(number, ours_, oracle_) {
    MakeConnections(ours_, oracle_);
    const int one = 1;  // at the mark FIONREAD does not tell whether all has come
    for (World* w : {&ours_, &oracle_}) {
      for (const int fd : w->fds) w->calls.Set(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    for (const size_t side : {0, 1}) {
      begun_ = begun_ && (!random_.Chance(3) || PutInLine(side));
    }
    length_ = 4 + number % 21;
  }

  std::string Play() {
    if (!begun_) return player_.log();
    for (size_t i = 0; i < length_; ++i) {
      if (!Step(random_.Below(2))) return player_.log();
    }
    return "";
  }

 private:
  bool PutInLine(size_t side) {
    Direction& d = directions_[side];
    d.in_line = true;
    if (d.mark) ++d.sent;
    return player_.Play(side == 0 ? "SO_OOBINLINE client" : "SO_OOBINLINE server", [=](World& w) {
      const int one = 1;
      return Answer(w.calls.Set(w.fds[side], SOL_SOCKET, SO_OOBINLINE, &one, sizeof one));
    });
  }

  bool Step(size_t side) {
    const std::string end = side == 0 ? "client" : "server";
    switch (random_.Below(10)) {
      case 0:
      case 1:
        return Send(side, end, directions_[1 - side].mark ? 0 : MSG_OOB);
      case 2:
        return Send(side, end, 0);
      case 3:
      case 4:
      case 5:
        return Receive(side, end);
      case 6: {
        const int flags = MSG_OOB | random_.Of<int>({0, MSG_PEEK, MSG_TRUNC, MSG_DONTWAIT});
        directions_[side].taken = true;
        return player_.Play("recv" + FlagNames(flags) + " " + end, [=](World& w) {
          char room[2] = "-";
          const ssize_t n = w.calls.Receive(w.fds[side], room, 1, flags);
          return Answer(n) + Quote(room, n);
        });
      }
      case 7: {
        const short events = random_.Of<short>({0, POLLIN, POLLPRI, POLLRDBAND, POLLIN | POLLPRI});
        return player_.Play("poll " + end + " " + Events(events), [=](World& w) {
          pollfd one{.fd = w.fds[side], .events = events, .revents = 0};
          const int ready = w.calls.Poll(&one, 1);
          return Answer(ready) + " " + std::to_string(one.revents);
        });
      }
      case 8:
        // Taken out already, TCP reads it once more: a known difference.
        if (directions_[side].in_line || (directions_[side].mark && directions_[side].taken) ||
            !random_.Chance(3))
          return true;
        return PutInLine(side);
      default:
        if (!random_.Chance(4)) return true;
        return player_.Play("shutdown " + end,
                            [=](World& w) { return Answer(w.calls.Shutdown(w.fds[side], SHUT_WR)); });
    }
  }

  bool Send(size_t side, const std::string& end, int flags) {
    std::string data;
    for (size_t n = 1 + random_.Below(4); n > 0; --n) data += static_cast<char>('a' + random_.Below(26));
    const auto taken = std::make_shared<ssize_t>(-1);
    const bool same = player_.Play("send" + FlagNames(flags) + " " + end + " '" + data + "'", [=](World& w) {
      const ssize_t n = w.calls.Send(w.fds[side], data.data(), data.size(), flags | MSG_NOSIGNAL);
      if (w.calls.bare) *taken = n;
      return Answer(n);
    });
    Direction& d = directions_[1 - side];
    if (*taken <= 0) return same;
    d.sent += static_cast<size_t>(*taken);
    if (flags != 0) {
      d.mark = d.sent - 1;
      d.taken = false;
      if (!d.in_line) --d.sent;
    }
    return same;
  }

  bool Receive(size_t side, const std::string& end) {
    const size_t size = random_.Of({size_t{1}, size_t{2}, size_t{5}, size_t{50}});
    const int flags = random_.Of<int>({0, 0, 0, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_PEEK | MSG_WAITALL});
    Direction& d = directions_[side];
    const auto got = std::make_shared<ssize_t>(-1);
    const bool same =
        player_.Play("recv" + FlagNames(flags) + " " + end + " " + std::to_string(size), [=](World& w) {
          char room[50];
          const ssize_t n = w.calls.Receive(w.fds[side], room, size, flags);
          if (w.calls.bare) *got = n;
          return Answer(n) + ((flags & MSG_TRUNC) != 0 ? "" : Quote(room, n));
        });
    if ((flags & MSG_PEEK) != 0) return same;
    const bool from_mark = d.mark && *d.mark == d.read && !d.in_line;
    if (*got > 0) d.read += static_cast<size_t>(*got);
    if (d.mark && (from_mark || d.read > *d.mark)) d.mark.reset();
    return same;
  }

  Random random_;
  World ours_, oracle_;
  Player player_;
  bool begun_ = true;
  size_t length_;
  Direction directions_[2];
};

TEST_CASE("differential: urgent bytes") {
  PlayAll(300, [](uint32_t number) { return Urgent(number).Play(); });
}

}  // namespace
}  // namespace posix_test
