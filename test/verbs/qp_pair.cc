#include "test/verbs/qp_pair.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <utility>

namespace sdp::iwarp::test {

Fd& Fd::operator=(Fd&& other) noexcept {
  Close();
  value = std::exchange(other.value, -1);
  return *this;
}
Fd::~Fd() { Close(); }
void Fd::Close() {
  if (value >= 0) ::close(std::exchange(value, -1));
}

std::array<Fd, 2> TcpPair(bool blocking) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(listener.value, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(listener.value, 1) == 0);
  REQUIRE(::getsockname(listener.value, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  std::array<Fd, 2> pair;
  pair[0] = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(pair[0].value, reinterpret_cast<sockaddr*>(&address), length) == 0);
  pair[1] = Fd(::accept4(listener.value, nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(pair[1].value >= 0);
  for (const Fd& fd : pair) {
    const int on = 1;
    ::setsockopt(fd.value, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!blocking) ::fcntl(fd.value, F_SETFL, O_NONBLOCK);
  }
  return pair;
}

std::string Text(const verbs::Completion& c) {
  std::string text;
  for (size_t i = 0; i < c.piece_count; ++i) {
    text.append(reinterpret_cast<const char*>(c.pieces[i].data()), c.pieces[i].size());
  }
  return text;
}

std::vector<std::byte> Pattern(size_t size, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() >> 8);
  return bytes;
}

verbs::PostResult Side::Send(std::string_view text, bool signaled) {
  const Bytes payload = AsBytes(text);
  const auto result =
      qp->PostSend({.id = WorkId(1), .signaled = signaled, .payload = std::span(&payload, 1)});
  if (!qp->Flush()) qp->DetachBorrowed();
  return result;
}

bool RunUntil(Side& a, Side& z, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    pollfd fds[2];
    Side* sides[2] = {&a, &z};
    for (int i = 0; i < 2; ++i) {
      const verbs::Interest interest = sides[i]->qp->interest();
      const bool any = interest.read || interest.write;
      fds[i] = {.fd = any ? sides[i]->fd.value : -1,
                .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
                .revents = 0};
    }
    ::poll(fds, 2, 100);
    for (int i = 0; i < 2; ++i) {
      if ((fds[i].revents & POLLOUT) != 0) sides[i]->qp->Flush();
      if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) sides[i]->qp->ReadLink();
    }
  }
  return true;
}

verbs::Completion NextCompletion(Side& self, Side& other) {
  verbs::Completion completion;
  REQUIRE(RunUntil(self, other, [&] { return self.qp->PollCompletion(&completion); }));
  return completion;
}

QpPair MakePair(const PairOptions& options) {
  auto fds = TcpPair(options.blocking);
  auto a = Connect(fds[0].value, AsBytes("hello"), options.a_qp, options.a, Now());
  auto z = Listen(fds[1].value, options.z, Now());
  bool accepted = false;
  verbs::ConnectState a_state{};
  verbs::ConnectState z_state{};
  for (int i = 0; i < 1000; ++i) {
    a_state = a->Step(Now());
    z_state = z->Step(Now());
    if (z_state == verbs::ConnectState::kRequested && !std::exchange(accepted, true)) {
      REQUIRE(z->peer_private_data().size() == 5);
      z->Accept(AsBytes("welcome"), options.z_qp);
    }
    if (a_state == verbs::ConnectState::kEstablished && z_state == verbs::ConnectState::kEstablished) break;
    pollfd fd{.fd = a->event_fd(), .events = POLLIN, .revents = 0};
    ::poll(&fd, 1, 1);
  }
  INFO(a->cause().text << " / " << z->cause().text);
  REQUIRE(a_state == verbs::ConnectState::kEstablished);
  REQUIRE(z_state == verbs::ConnectState::kEstablished);
  REQUIRE(a->peer_private_data().size() == 7);
  return {.a = {.fd = std::move(fds[0]), .qp = a->TakeQueuePair()},
          .z = {.fd = std::move(fds[1]), .qp = z->TakeQueuePair()}};
}

Time Now() {
  return Time(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace sdp::iwarp::test
