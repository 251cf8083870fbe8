// A cancellation that is pending when a call begins which would not sleep: the thread ends there, and the
// call has had no effect.
#include <pthread.h>
#include <sys/uio.h>

#include <functional>

#include "test/posix/support.h"

namespace posix_test {
namespace {

// Whether `call` ended the thread that had been cancelled before.
bool EndsCancelled(const std::function<void()>& call) {
  pthread_t thread;
  auto body = [](void* argument) -> void* {
    pthread_cancel(pthread_self());
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, nullptr, body, const_cast<std::function<void()>*>(&call)) == 0);
  void* result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  return result == PTHREAD_CANCELED;
}

TEST_CASE("threads: a cancellation that is pending ends a call before it has had an effect") {
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
  REQUIRE(SendAll(pair.client, "next"));
  REQUIRE(ReceiveExactly(pair.server, 4) == "next");
  REQUIRE(SendAll(pair.server, "back"));
  REQUIRE(ReceiveExactly(pair.client, 4) == "back");
}

}  // namespace
}  // namespace posix_test
