// Connections that came in and wait for accept, of a listener that one process has.
#include "preload/socket/arrivals.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "preload/hidden_fds.h"
#include "preload/socket/clock.h"
#include "test/preload/scripted_session.h"

namespace sdp::preload {
namespace {

class CountingQueuePair final : public ScriptedQueuePair {
 public:
  explicit CountingQueuePair(int* count) : count_(count) {}
  void Abort() override { ++*count_; }

 private:
  int* const count_;
};

struct Fixture {
  Fixture() { REQUIRE(arrivals.Open()); }
  ~Fixture() { arrivals.Close(/*for_all=*/false); }
  // Returns the connection's queue pair.
  const verbs::QueuePair* Add(int waited_ms) {
    Connected end(8, std::make_unique<CountingQueuePair>(&aborts));
    const int fd = HiddenFds::Hide(eventfd(0, EFD_CLOEXEC));
    REQUIRE(fd >= 0);
    arrivals.Push({.fd = fd,
                   .session = std::move(end.session),
                   .peer = {},
                   .since = Now() - std::chrono::milliseconds(waited_ms),
                   .begun = false});
    return end.queue_pair;
  }
  bool Readable() {
    pollfd one{.fd = arrivals.fd(), .events = POLLIN, .revents = 0};
    return poll(&one, 1, 0) == 1;
  }

  int aborts = 0;
  Mutex mutex;
  Arrivals arrivals{nullptr, &mutex, std::chrono::milliseconds(5)};
  Address peer;
  int fd = -1;
};

TEST_CASE_METHOD(Fixture, "arrivals: what has waited longest is accepted first") {
  const auto* const second = Add(20);
  const auto* const third = Add(10);
  const auto* const first = Add(30);
  REQUIRE(arrivals.waiting() == 3);
  for (const auto* next : {first, second, third}) {
    REQUIRE(Readable());
    const int flags = next == second ? SOCK_CLOEXEC | SOCK_NONBLOCK : 0;
    const auto session = arrivals.Take(flags, &fd, &peer);
    REQUIRE(session != nullptr);
    REQUIRE(&session->queue_pair() == next);
    REQUIRE((fcntl(fd, F_GETFD) & FD_CLOEXEC) == (flags != 0 ? FD_CLOEXEC : 0));
    REQUIRE((fcntl(fd, F_GETFL) & O_NONBLOCK) == (flags != 0 ? O_NONBLOCK : 0));
    close(fd);
  }
  REQUIRE_FALSE(Readable());
  const auto none = arrivals.Take(0, &fd, &peer);
  const int error = errno;
  REQUIRE(none == nullptr);
  REQUIRE(error == EAGAIN);
}

TEST_CASE_METHOD(Fixture, "arrivals: without a descriptor for it a connection waits on") {
  Add(10);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int lowest_free = dup(STDIN_FILENO);
  close(lowest_free);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto taken = arrivals.Take(0, &fd, &peer);
  const int error = errno;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(taken == nullptr);
  REQUIRE(error == EMFILE);
  REQUIRE(Readable());
  REQUIRE(arrivals.Take(0, &fd, &peer) != nullptr);
  close(fd);
}

TEST_CASE_METHOD(Fixture,
                 "arrivals: the backlog bounds what is taken on, and one that is accepted makes room") {
  arrivals.SetBacklog(2);
  Add(10);
  REQUIRE_FALSE(arrivals.full());
  Add(5);
  REQUIRE(arrivals.full());
  REQUIRE(arrivals.Take(0, &fd, &peer) != nullptr);
  close(fd);
  REQUIRE_FALSE(arrivals.full());
}

TEST_CASE_METHOD(Fixture, "arrivals: closing resets what waits") {
  Add(10);
  Add(5);
  REQUIRE(arrivals.Take(0, &fd, &peer) != nullptr);
  arrivals.Close(/*for_all=*/false);
  close(fd);
  REQUIRE(aborts == 1);
  REQUIRE(arrivals.waiting() == 0);
  REQUIRE(arrivals.fd() == -1);
  arrivals.Close(/*for_all=*/false);
  REQUIRE(aborts == 1);
}

}  // namespace
}  // namespace sdp::preload
