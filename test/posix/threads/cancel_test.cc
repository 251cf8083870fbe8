// Threads that are cancelled while a call sleeps.
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <atomic>
#include <thread>

#include "test/posix/full_listener.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

// Runs `call` in a thread, cancels it once it sleeps, and says whether that ended it.
template <typename Call>
bool IsCancelled(Call call) {
  struct Shared {
    Call call;
    std::atomic<pid_t> tid{0};
  } shared{call};
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, nullptr,
              [](void* argument) -> void* {
                auto* const s = static_cast<Shared*>(argument);
                s->tid = gettid();
                s->call();
                return nullptr;
              },
              &shared) == 0);
  REQUIRE(Eventually([&] { return shared.tid != 0 && IsAsleep(shared.tid); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(pthread_cancel(thread) == 0);
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kPatienceMs / 1000;
  void* result = nullptr;
  REQUIRE(pthread_timedjoin_np(thread, &result, &until) == 0);
  return result == PTHREAD_CANCELED;
}

TEST_CASE("threads: sleeping calls are cancellation points and leave no lock behind") {
  if (kUnderAsan) return Impossible(why::kCancelled);
  if (kUnderTsan) return Impossible(why::kCancelledInterceptor);
  Pair pair = MakePair();
  Listener listener = Listen();
  char c = 0;
  SECTION("recv") {
    REQUIRE(IsCancelled([&] { recv(pair.server, &c, 1, 0); }));
  }
  SECTION("read") {
    REQUIRE(IsCancelled([&] { read(pair.server, &c, 1); }));
  }
  SECTION("recv with a time-out") {
    const timeval tv{20, 0};
    REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
    REQUIRE(IsCancelled([&] { recv(pair.server, &c, 1, 0); }));
  }
  SECTION("poll") {
    REQUIRE(IsCancelled([&] {
      pollfd p{pair.server, POLLIN, 0};
      poll(&p, 1, -1);
    }));
  }
  SECTION("select") {
    REQUIRE(IsCancelled([&] {
      fd_set set;
      FD_ZERO(&set);
      FD_SET(pair.server, &set);
      select(pair.server + 1, &set, nullptr, nullptr, nullptr);
    }));
  }
  SECTION("epoll_wait") {
    Fd ep(epoll_create1(0));
    epoll_event event{EPOLLIN, {}};
    REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
    REQUIRE(IsCancelled([&] { epoll_wait(ep, &event, 1, -1); }));
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  }
  SECTION("send") {
    SetNonblocking(pair.client);
    const size_t filled = Fill(pair.client);
    SetNonblocking(pair.client, false);
    REQUIRE(IsCancelled([&] { send(pair.client, &c, 1, 0); }));
    REQUIRE(ReceiveExactly(pair.server, filled).size() == filled);
  }
  SECTION("accept") {
    REQUIRE(IsCancelled([&] { accept(listener.fd, nullptr, nullptr); }));
  }
  REQUIRE(SendAll(pair.server, "there"));
  REQUIRE(ReceiveExactly(pair.client, 5) == "there");
  REQUIRE(SendAll(pair.client, "back"));
  REQUIRE(ReceiveExactly(pair.server, 4) == "back");
  Pair next = ConnectTo(listener);
  REQUIRE(SendAll(next.client, "next"));
  REQUIRE(ReceiveExactly(next.server, 4) == "next");
}

TEST_CASE("threads: a connect is a cancellation point, and goes on", "[refused]") {
  if (kUnderAsan) return Impossible(why::kCancelled);
  if (kUnderTsan) return Impossible(why::kCancelledInterceptor);
  FullListener full;
  Fd client = TcpSocket();
  REQUIRE(IsCancelled([&] { full.Connect(client); }));
  REQUIRE(full.Open(client));
}

}  // namespace
}  // namespace posix_test
