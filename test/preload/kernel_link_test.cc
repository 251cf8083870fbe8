// A sender over a kernel RNIC that lends its memory: what wakes it.
#include "test/preload/kernel_link.h"

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "preload/readiness/readiness.h"
#include "preload/socket/watch.h"

namespace sdp::preload {
namespace {

using test::Armed;
using test::kPatience;
using test::Link;

// A blocking write of more than the threshold, in a thread of its own. It lends its memory for some
// milliseconds; who comes later finds that it has copied instead.
class Write {
 public:
  Write(Link& link, size_t size)
      : text_(size, 'z'), thread_([this, &link] {
          const iovec piece{.iov_base = text_.data(), .iov_len = text_.size()};
          result_ = link.socket->Send(link.fd, &piece, 1, 0);
        }) {}
  ssize_t Finish() {
    thread_.join();
    return result_;
  }

 private:
  std::string text_;
  ssize_t result_ = -1;
  std::thread thread_;
};

struct Observer final : ReadinessObserver {
  void OnChange(int) override {}
  void OnWatch(int, int, short, Session&) override {}
  void OnPlain(int) override {}
};

// SDP 14.2.
TEST_CASE("A sender that waits for its memory alone is not woken by the peer's data, but by the answer") {
  constexpr size_t kSize = 100'000;
  // The time for that may be over before the test has seen it: then once more.
  bool seen = false;
  for (int i = 0; i < 50 && !seen; ++i) {
    Link link;
    char data[100];
    link.peer.Send("x");
    REQUIRE(link.Receive(data, sizeof data) == 1);
    REQUIRE(link.device.receives_armed() == Armed::kNot);
    const std::future<void> armed = link.Arming(Armed::kSolicited);
    Write write(link, kSize);
    CHECK(armed.wait_for(kPatience) == std::future_status::ready);
    const int told = link.device.events_told();
    link.peer.Send("data that nobody waits for");
    seen = link.peer.last_found_armed == Armed::kSolicited;
    if (seen) CHECK(link.device.events_told() == told);
    link.peer.Read(kSize);
    CHECK(write.Finish() == kSize);
    CHECK(link.peer.got == std::string(kSize, 'z'));
    // What it was not woken for is there.
    CHECK(link.Receive(data, sizeof data) == 26);
  }
  CHECK(seen);
}

TEST_CASE(
    "A sender is told of all if another one waits for data, and after a while: two that send and do not read "
    "find each other") {
  constexpr size_t kSize = 100'000;
  const bool observed = GENERATE(true, false);
  Link link;
  char data[100];
  link.peer.Send("x");
  REQUIRE(link.Receive(data, sizeof data) == 1);
  const std::future<void> armed = link.Arming(observed ? Armed::kSolicited : Armed::kAll);
  Observer observer;
  if (observed) Watch(*link.socket).AddObserver(&observer, link.fd);
  Write write(link, kSize);
  CHECK(armed.wait_for(kPatience) == std::future_status::ready);
  CHECK(link.device.receives_armed() == Armed::kAll);
  link.peer.Read(kSize);
  CHECK(write.Finish() == kSize);
  if (observed) Watch(*link.socket).RemoveObserver(&observer, link.fd);
}

TEST_CASE(
    "A poll or an epoll set that comes while a sender waits for its memory has the device tell of all") {
  constexpr size_t kSize = 100'000;
  const bool polls = GENERATE(true, false);
  bool seen = false;
  for (int i = 0; i < 50 && !seen; ++i) {
    Link link;
    char data[100];
    link.peer.Send("x");
    REQUIRE(link.Receive(data, sizeof data) == 1);
    const std::future<void> armed = link.Arming(Armed::kSolicited);
    Write write(link, kSize);
    CHECK(armed.wait_for(kPatience) == std::future_status::ready);
    seen = link.device.receives_armed() == Armed::kSolicited;
    Observer observer;
    if (polls) {
      Watch(*link.socket).GetReadiness();
    } else {
      Watch(*link.socket).AddObserver(&observer, link.fd);
    }
    CHECK(link.device.receives_armed() == Armed::kAll);
    link.peer.Read(kSize);
    CHECK(write.Finish() == kSize);
    if (!polls) Watch(*link.socket).RemoveObserver(&observer, link.fd);
  }
  CHECK(seen);
}

}  // namespace
}  // namespace sdp::preload
