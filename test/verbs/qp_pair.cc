#include "test/verbs/qp_pair.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <utility>

namespace sdp::iwarp::test {

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

QpPair MakePair(const PairOptions& options) { return MakePairOn(LoopbackPair(options.blocking), options); }

QpPair MakePairOn(std::array<Fd, 2> fds, const PairOptions& options) {
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

}  // namespace sdp::iwarp::test
