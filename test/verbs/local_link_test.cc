// A queue pair on a local link: what its doorbells tell of.
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "test/verbs/changed_link_calls.h"
#include "test/verbs/qp_pair.h"

namespace sdp::iwarp::test {
namespace {

// Something happens as soon as a read of the TCP connection has taken its doorbells.
std::function<void()> after_read;

ssize_t Receive(int fd, void* to, size_t size, int flags) {
  const ssize_t n = ::recv(fd, to, size, flags);
  if (const auto then = std::exchange(after_read, nullptr)) then();
  return n;
}

bool IsReadable(const Side& side) {
  pollfd fd{.fd = side.fd.value, .events = POLLIN, .revents = 0};
  return ::poll(&fd, 1, 0) == 1;
}

TEST_CASE("local link: one read empties a ring that was full, and arms its doorbell") {
  PairOptions options;
  options.a.local_link = options.z.local_link = true;
  QpPair p = MakePair(options);
  const std::string message(60'000, 'm');
  // The writer is told of room, and goes on with a larger window, until one read finds a full ring.
  for (int i = 0; i < 20; ++i) {
    while (p.a.qp->unsent_bytes() == 0) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
    p.z.qp->ReadLink();
    for (verbs::Completion c; p.z.qp->PollCompletion(&c);) p.z.qp->Release(c.token);
    REQUIRE(p.z.qp->pollable()->may_sleep());
    REQUIRE_FALSE(IsReadable(p.z));
    p.z.qp->PostReceives(20);
    p.a.qp->ReadLink();
  }
}

TEST_CASE("local link: what comes just before a doorbell is armed is read in the same call") {
  const ChangedLinkCalls watched([](LinkCalls& calls) { calls.recv = Receive; });
  PairOptions options;
  options.a.local_link = options.z.local_link = true;
  QpPair p = MakePair(options);
  REQUIRE(p.a.qp->link_name() == std::string_view("local"));
  const std::string message(60'000, 'm');
  const auto send = [&](int count) {
    for (int i = 0; i < count; ++i) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
  };
  int got = 0;
  const auto take = [&] {
    for (verbs::Completion c; p.z.qp->PollCompletion(&c); p.z.qp->Release(c.token)) ++got;
  };
  // The ring grows to its full size.
  send(30);
  REQUIRE(RunUntil(p.a, p.z, [&] { return take(), got == 30; }));
  send(5);
  REQUIRE(p.a.qp->unsent_bytes() == 0);
  REQUIRE(IsReadable(p.z));
  bool came = false;
  after_read = [&] {
    came = true;
    send(7);
    REQUIRE(p.a.qp->unsent_bytes() == 0);
  };
  p.z.qp->ReadLink();
  REQUIRE(came);
  CHECK((IsReadable(p.z) || !p.z.qp->pollable()->has_untold()));
  take();
  CHECK(got == 42);
}

}  // namespace
}  // namespace sdp::iwarp::test
