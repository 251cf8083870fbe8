#include "test/posix/signals/ended_process.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>

namespace posix_test {

void TakeDefaults() {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

void Pause() {
  for (;;) pause();
}

bool EndedBy(int status, int number) {
  return status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == number;
}

Connecting::Connecting(const Body& body) {
  pid_ = Fork([&] {
    TakeDefaults();
    Address address;
    if (!WaitFor(where_.in, POLLIN) || read(where_.in, &address, sizeof address) != sizeof address) return 90;
    return body([&] {
      const int fd = TcpSocket().release();
      return connect(fd, address.get(), address.length) == 0 ? fd : -1;
    });
  });
}

std::vector<Fd> Connecting::Accept(size_t connections) {
  Listener listener = Listen();
  REQUIRE(write(where_.out, &listener.address, sizeof listener.address) == sizeof listener.address);
  std::vector<Fd> accepted;
  for (size_t i = 0; i < connections; ++i) {
    REQUIRE(WaitFor(listener.fd, POLLIN));
    accepted.emplace_back(accept(listener.fd, nullptr, nullptr));
    REQUIRE(accepted.back() >= 0);
  }
  return accepted;
}

Filler::Filler(const std::vector<size_t>& pieces,
               const std::function<void(const std::vector<int>& fds)>& rest)
    : connections_(pieces.size()),
      child_((static_cast<void>(Sendings()) /* once for all children */, [&](const auto& connected) {
        std::vector<int> fds;
        std::vector<Filled> filled;
        for (const size_t piece : pieces) {
          const int fd = connected();
          if (fd < 0) return 1;
          fds.push_back(fd);
          filled.push_back(
              {.port = LocalOf(fd).port(), .bytes = piece == kNothing ? 0 : FillWithPieces(fd, piece)});
        }
        if (write(told_.out, filled.data(), filled.size() * sizeof filled[0]) < 0) return 2;
        rest(fds);
        return 3;
      })) {}

void Filler::Fill() {
  std::vector<Fd> accepted = child_.Accept(connections_);
  REQUIRE(WaitFor(told_.in, POLLIN));
  std::vector<Filled> filled(connections_);
  REQUIRE(read(told_.in, filled.data(), connections_ * sizeof(Filled)) ==
          static_cast<ssize_t>(connections_ * sizeof(Filled)));
  for (const Filled& one : filled) {
    sent.push_back(one.bytes);
    for (Fd& fd : accepted) {
      if (fd >= 0 && PeerOf(fd).port() == one.port) peers.push_back(std::move(fd));
    }
  }
  REQUIRE(peers.size() == connections_);
}

size_t FillWithPieces(int fd, size_t piece) {
  const std::string& data = Sendings();
  size_t sent = 0;
  SetNonblocking(fd);
  for (ssize_t n; (n = send(fd, data.data() + sent, std::min(data.size() - sent, piece), MSG_NOSIGNAL)) > 0;)
    sent += static_cast<size_t>(n);
  SetNonblocking(fd, false);
  return sent;
}

const std::string& Sendings() {
  static const std::string data = Pattern(32'000'000);
  return data;
}

bool IsBeginning(const std::string& got) {
  return got.size() <= Sendings().size() && Hash(got) == Hash(Sendings().substr(0, got.size()));
}

void RequireAll(int peer, size_t sent, std::string got) {
  REQUIRE(sent > 100'000);
  REQUIRE(sent < Sendings().size());
  got += ReceiveToEnd(peer);
  REQUIRE(got.size() == sent);
  REQUIRE(IsBeginning(got));
}

void RequireDelivers(Filler& child, int number) {
  REQUIRE(kill(child.pid(), number) == 0);
  RequireAll(child.peers[0], child.sent[0]);
  REQUIRE(EndedBy(Reap(child.pid()), number));
}

void RequireEnding(const Filler& child) {
  char c;
  REQUIRE(recv(child.peers[1], &c, 1, 0) == 0);
}

void LetSleep(pid_t pid) {
  int looks = 0;
  REQUIRE(Eventually([&] {
    looks = IsAsleep(pid) ? looks + 1 : 0;
    return looks == 20;
  }));
}

}  // namespace posix_test
