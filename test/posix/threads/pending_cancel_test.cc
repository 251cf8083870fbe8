// A cancellation that is pending when a call begins which would not sleep: the thread ends there, and the
// call has had no effect.
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>

#include <atomic>
#include <functional>

#include "test/posix/sanitizers.h"
#include "test/posix/support.h"
#include "test/support/ends_cancelled.h"

namespace posix_test {
namespace {

// Whether `call` ended the thread that had been cancelled before.
bool EndsCancelled(const std::function<void()>& call) {
  return sdp::test::EndsCancelled([&] {
    pthread_cancel(pthread_self());
    call();
  });
}

TEST_CASE("threads: a cancellation that is pending ends a call before it has had an effect") {
  if (kUnderAsan) return Impossible(why::kCancelled);
  Pair pair = MakePair();
  SECTION("send") {
    CHECK(EndsCancelled([&] {
      char lost[2000] = "lost";
      send(pair.client, lost, sizeof lost, 0);
    }));
  }
  SECTION("writev") {
    CHECK(EndsCancelled([&] {
      char lost[2000] = "lost";
      iovec v{lost, sizeof lost};
      (void)!writev(pair.client, &v, 1);
    }));
  }
  SECTION("recv") {
    REQUIRE(SendAll(pair.server, "kept"));
    REQUIRE(WaitFor(pair.client, POLLIN));
    CHECK(EndsCancelled([&] {
      char c[4];
      recv(pair.client, c, 4, 0);
    }));
    REQUIRE(ReceiveExactly(pair.client, 4) == "kept");
  }
  SECTION("accept") {
    Listener listener = Listen();
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    CHECK(EndsCancelled([&] { accept(listener.fd, nullptr, nullptr); }));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(SendAll(client, "through"));
    REQUIRE(ReceiveExactly(server, 7) == "through");
  }
  SECTION("epoll_wait, one shot") {
    Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = 7}};
    REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, pair.client, &event) == 0);
    REQUIRE(SendAll(pair.server, "kept"));
    REQUIRE(WaitFor(pair.client, POLLIN));
    CHECK(EndsCancelled([&] { epoll_wait(epoll, &event, 1, -1); }));
    REQUIRE(epoll_wait(epoll, &event, 1, kPatienceMs) == 1);
    REQUIRE(ReceiveExactly(pair.client, 4) == "kept");
  }
  SECTION("epoll_wait inside another") {
    Fd inner(epoll_create1(EPOLL_CLOEXEC)), outer(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN, .data = {.u64 = 7}};
    REQUIRE(epoll_ctl(inner, EPOLL_CTL_ADD, pair.client, &event) == 0);
    REQUIRE(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
    REQUIRE(SendAll(pair.server, "kept"));
    REQUIRE(WaitFor(pair.client, POLLIN));
    CHECK(EndsCancelled([&] { epoll_wait(inner, &event, 1, -1); }));
    REQUIRE(epoll_wait(outer, &event, 1, kPatienceMs) == 1);
    REQUIRE(ReceiveExactly(pair.client, 4) == "kept");
  }
  SECTION("poll and select") {
    CHECK(EndsCancelled([&] { PollOne(pair.client, POLLOUT); }));
    CHECK(EndsCancelled([&] {
      fd_set set;
      FD_ZERO(&set);
      FD_SET(pair.client, &set);
      select(pair.client + 1, nullptr, &set, nullptr, nullptr);
    }));
  }
  REQUIRE(SendAll(pair.client, "next"));
  REQUIRE(ReceiveExactly(pair.server, 4) == "next");
  REQUIRE(SendAll(pair.server, "back"));
  REQUIRE(ReceiveExactly(pair.client, 4) == "back");
}

TEST_CASE("threads: a reader that is cancelled in its sleep leaves the link to the next") {
  if (kUnderAsan) return Impossible(why::kCancelled);
  if (kUnderTsan) return Impossible(why::kCancelledInterceptor);
  Pair pair = MakePair();
  std::atomic<pid_t> first{0}, second{0};
  pthread_t sleeper;
  struct Sleeper {
    int fd;
    std::atomic<pid_t>& tid;
  } argument{pair.client, first};
  auto body = [](void* p) -> void* {
    auto* const s = static_cast<Sleeper*>(p);
    s->tid = gettid();
    char c;
    (void)!recv(s->fd, &c, 1, 0);
    return nullptr;
  };
  REQUIRE(pthread_create(&sleeper, nullptr, body, &argument) == 0);
  REQUIRE(Eventually([&] { return first != 0 && IsAsleep(first); }));
  auto next = Async([&] {
    second = gettid();
    return ReceiveExactly(pair.client, 4);
  });
  REQUIRE(Eventually([&] { return second != 0 && IsAsleep(second); }));
  REQUIRE(pthread_cancel(sleeper) == 0);
  REQUIRE(pthread_join(sleeper, nullptr) == 0);
  REQUIRE(SendAll(pair.server, "next"));
  REQUIRE(next.wait_for(std::chrono::milliseconds(kPatienceMs)) == std::future_status::ready);
  REQUIRE(next.get() == "next");
}

}  // namespace
}  // namespace posix_test
