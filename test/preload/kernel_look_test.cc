// Looks at a kernel RNIC's completion queues before a sleep: what they find, what ends them, and what is
// learnt of them.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "preload/critical.h"
#include "preload/readiness/look.h"
#include "preload/readiness/readiness.h"
#include "preload/socket/core_watch.h"
#include "preload/socket/watch.h"
#include "test/preload/kernel_link.h"

namespace sdp::preload {
namespace {

using test::Link;
using test::WaitUntil;

TEST_CASE("A look goes on over what its caller has no use for, and counts when it has found something") {
  Link link;
  char data[10];
  SECTION("a receive") {
    link.AtLook(2, [&] { link.peer.SendUpdate(); });
    link.AtLook(4, [&] { link.peer.Send("x"); });
    CHECK(link.Receive(data, sizeof data) == 1);
  }
  SECTION("poll") {
    link.AtLook(1, [&] { link.peer.SendUpdate(); });
    link.AtLook(3, [&] { link.peer.Send("x"); });
    pollfd fd{.fd = link.fd, .events = POLLIN, .revents = 0};
    CHECK(Poll(&fd, 1, nullptr, nullptr) == 1);
    CHECK(fd.revents == POLLIN);
  }
  SECTION("epoll, level or edge") {
    const uint32_t mode = GENERATE(0u, uint32_t{EPOLLET});
    const int epfd = ::epoll_create1(EPOLL_CLOEXEC);
    EpollCreated(epfd);
    epoll_event event{.events = EPOLLIN | mode, .data = {.fd = link.fd}};
    REQUIRE(EpollCtl(epfd, EPOLL_CTL_ADD, link.fd, &event) == 0);
    link.AtLook(1, [&] { link.peer.SendUpdate(); });
    link.AtLook(3, [&] { link.peer.Send("x"); });
    CHECK(EpollWait(epfd, &event, 1, nullptr, nullptr) == 1);
    CHECK(event.events == EPOLLIN);
    link.device.SetOnPoll({});
    EpollCtl(epfd, EPOLL_CTL_DEL, link.fd, nullptr);
    EpollForget(epfd);
    ::close(epfd);
  }
  CHECK(link.session->reads().waits.polled == 1);
  CHECK(link.session->reads().waits.slept == 0);
}

int handlers_run = 0;
struct Handler {
  explicit Handler(int flags) {
    struct sigaction action {};
    action.sa_handler = [](int) { ++handlers_run; };
    action.sa_flags = flags;
    handlers_run = 0;
    REQUIRE(Critical::SetAction(SIGUSR1, &action, &before_) == 0);
  }
  ~Handler() { Critical::SetAction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

TEST_CASE("A signal handler that runs in a look ends the call as it would have ended the sleep") {
  Link link;
  char data[10];
  const auto signal = [] { raise(SIGUSR1); };
  SECTION("a receive: with EINTR") {
    const Handler handler(0);
    link.AtLook(2, signal);
    CHECK(link.Receive(data, sizeof data) == -1);
    CHECK(errno == EINTR);
    CHECK(handlers_run == 1);
  }
  SECTION("a receive: not if data has come meanwhile") {
    link.peer.Send("x");
    REQUIRE(link.Receive(data, sizeof data) == 1);
    const Handler handler(0);
    link.AtLook(2, signal);
    // Behind the last look, in front of the sleep.
    link.AtLook(1 + CoreWatch::kLooksPerOffer, [&] { link.peer.Send("y"); });
    CHECK(link.Receive(data, sizeof data) == 1);
    CHECK(handlers_run == 1);
  }
  SECTION("not with SA_RESTART") {
    const Handler handler(SA_RESTART);
    link.AtLook(2, signal);
    link.AtLook(4, [&] { link.peer.Send("x"); });
    CHECK(link.Receive(data, sizeof data) == 1);
    CHECK(handlers_run == 1);
  }
  SECTION("poll: whatever it asks for") {
    const Handler handler(GENERATE(0, SA_RESTART));
    link.AtLook(2, signal);
    pollfd fd{.fd = link.fd, .events = POLLIN, .revents = 0};
    CHECK(Poll(&fd, 1, nullptr, nullptr) == -1);
    CHECK(errno == EINTR);
    CHECK(handlers_run == 1);
  }
  SECTION("ppoll: not one that the mask of the sleep holds off until it is over") {
    const Handler handler(0);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    link.AtLook(2, signal);
    int run_in_look = -1;
    link.AtLook(3, [&] {
      run_in_look = handlers_run;
      link.peer.Send("x");
    });
    pollfd fd{.fd = link.fd, .events = POLLIN, .revents = 0};
    CHECK(Poll(&fd, 1, nullptr, &mask) == 1);
    CHECK(run_in_look == 0);
    CHECK(handlers_run == 1);
  }
  SECTION("ppoll: one that it lets through, at once") {
    const Handler handler(0);
    sigset_t blocked;
    sigset_t own;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    REQUIRE(pthread_sigmask(SIG_BLOCK, &blocked, &own) == 0);
    raise(SIGUSR1);
    link.AtLook(8, [&] { link.peer.Send("x"); });  // too late
    pollfd fd{.fd = link.fd, .events = POLLIN, .revents = 0};
    CHECK(Poll(&fd, 1, nullptr, &own) == -1);
    CHECK(errno == EINTR);
    CHECK(handlers_run == 1);
    pthread_sigmask(SIG_SETMASK, &own, nullptr);
  }
  SECTION("not if something is ready") {
    const Handler handler(0);
    link.AtLook(2, signal);
    link.AtLook(3, [&] { link.peer.Send("x"); });
    pollfd fd{.fd = link.fd, .events = POLLIN, .revents = 0};
    CHECK(Poll(&fd, 1, nullptr, nullptr) == 1);
  }
  SECTION("epoll_wait") {
    const Handler handler(SA_RESTART);
    const int epfd = ::epoll_create1(EPOLL_CLOEXEC);
    EpollCreated(epfd);
    epoll_event event{.events = EPOLLIN, .data = {.fd = link.fd}};
    REQUIRE(EpollCtl(epfd, EPOLL_CTL_ADD, link.fd, &event) == 0);
    link.AtLook(2, signal);
    CHECK(EpollWait(epfd, &event, 1, nullptr, nullptr) == -1);
    CHECK(errno == EINTR);
    link.device.SetOnPoll({});
    EpollCtl(epfd, EPOLL_CTL_DEL, link.fd, nullptr);
    EpollForget(epfd);
    ::close(epfd);
  }
}

TEST_CASE("A look that has found nothing but credit is unlearnt") {
  Link link;
  const Duration before = Watch(*link.socket).GetReadiness().look;
  REQUIRE(before != Duration::zero());
  const Handler handler(0);
  link.AtLook(2, [&] { link.peer.SendUpdate(); });
  link.AtLook(3, [] { raise(SIGUSR1); });  // ends it
  char data[10];
  pollfd fd{.fd = link.fd, .events = POLLIN, .revents = 0};
  CHECK((GENERATE(true, false) ? link.Receive(data, sizeof data) : Poll(&fd, 1, nullptr, nullptr)) == -1);
  CHECK(errno == EINTR);
  CHECK(link.session->reads().waits.polled == 0);
  CHECK(Watch(*link.socket).GetReadiness().look <=
        before / 2);  // none at all, if another thread wanted the core
}

TEST_CASE("Waits that something else ends unlearn the look, however short they are") {
  Link link;
  int other[2];
  REQUIRE(::pipe2(other, O_CLOEXEC | O_NONBLOCK) == 0);
  link.peer.Send("x");
  char data[10];
  REQUIRE(link.Receive(data, sizeof data) == 1);
  REQUIRE(Watch(*link.socket).GetReadiness().look != Duration::zero());
  for (int i = 0; i < 8 && Watch(*link.socket).GetReadiness().look != Duration::zero(); ++i) {
    // Comes while the socket is looked at in vain.
    link.device.SetOnPoll([&] {
      link.device.SetOnPoll({});
      REQUIRE(::write(other[1], "y", 1) == 1);
    });
    pollfd fds[] = {{.fd = link.fd, .events = POLLIN, .revents = 0},
                    {.fd = other[0], .events = POLLIN, .revents = 0}};
    REQUIRE(Poll(fds, 2, nullptr, nullptr) == 1);
    REQUIRE(fds[1].revents == POLLIN);
    REQUIRE(::read(other[0], data, 1) == 1);
  }
  CHECK(Watch(*link.socket).GetReadiness().look == Duration::zero());
  ::close(other[0]);
  ::close(other[1]);
}

TEST_CASE("Two threads wait for one set: what comes when the one that looked is away wakes the other") {
  for (int i = 0; i < 50; ++i) {
    Link link;
    const int epfd = ::epoll_create1(EPOLL_CLOEXEC);
    EpollCreated(epfd);
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = link.fd}};
    REQUIRE(EpollCtl(epfd, EPOLL_CTL_ADD, link.fd, &event) == 0);
    std::atomic<int> begun{0};
    std::atomic<int> told{0};
    std::atomic<int> failed{0};
    const auto wait = [&] {
      epoll_event one{};
      const timespec most{.tv_sec = 60, .tv_nsec = 0};
      ++begun;
      EpollWait(epfd, &one, 1, &most, nullptr) == 1 ? ++told : ++failed;
    };
    std::thread first(wait);
    std::thread second(wait);
    WaitUntil([&] { return begun == 2; });
    // In front of the looks, in them, or behind.
    const auto then = std::chrono::steady_clock::now() + std::chrono::microseconds(60 * (i % 10));
    while (std::chrono::steady_clock::now() < then) {
    }
    link.peer.Send("x");
    WaitUntil([&] { return told + failed >= 1; });
    link.peer.Send("y");
    first.join();
    second.join();
    CHECK(told == 2);
    EpollCtl(epfd, EPOLL_CTL_DEL, link.fd, nullptr);
    EpollForget(epfd);
    ::close(epfd);
  }
}

// Counts what an epoll set would hear.
struct Observer final : ReadinessObserver {
  void OnChange(int /*fd*/) override { ++changes; }
  void OnWatch(int /*fd*/, int /*link_fd*/, short /*events*/, Session& /*session*/) override {}
  void OnPlain(int /*fd*/) override {}
  int changes = 0;
};

TEST_CASE("A set hears of what its registration has taken off the link, and of nothing else") {
  Link link;
  Observer quiet;
  REQUIRE(Watch(*link.socket).AddObserver(&quiet, link.fd) == StreamSocket::State::kSdp);
  CHECK(quiet.changes == 0);
  Watch(*link.socket).RemoveObserver(&quiet, link.fd);

  link.peer.Send("x");
  verbs::Pollable* const pollable = link.session->queue_pair().pollable();
  REQUIRE(pollable->PollLink() == verbs::ReadStatus::kProgress);
  REQUIRE(pollable->has_untold());  // no event comes of it any more
  Observer late;
  REQUIRE(Watch(*link.socket).AddObserver(&late, link.fd) == StreamSocket::State::kSdp);
  CHECK(late.changes == 1);
  CHECK((Watch(*link.socket).GetReadiness().events & POLLIN) != 0);
  Watch(*link.socket).RemoveObserver(&late, link.fd);
}

TEST_CASE("Of several threads one looks, until it gives its turn back or its time is over") {
  LookTurn turn;
  const Time now = Time{} + std::chrono::seconds(1);
  const Duration most = std::chrono::microseconds(50);
  CHECK(turn.Take(now, now + most));
  CHECK_FALSE(turn.Take(now + most / 2, now + 2 * most));
  turn.GiveBack(now + most);
  CHECK(turn.Take(now + most / 2, now + 2 * most));
  CHECK(turn.Take(now + 2 * most, now + 3 * most));
  turn.GiveBack(now + 2 * most);  // late: it is another thread's by now
  CHECK_FALSE(turn.Take(now + 2 * most, now + 3 * most));
}

}  // namespace
}  // namespace sdp::preload
