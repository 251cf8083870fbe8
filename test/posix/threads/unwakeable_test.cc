// Threads for which there is no descriptor left to wake them by: what another thread does to their socket
// they must see all the same.
#include <sys/epoll.h>
#include <sys/resource.h>

#include <atomic>

#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

// While it lives, no descriptor can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit none = before_;
    const int lowest_free = dup(STDIN_FILENO);
    REQUIRE(close(lowest_free) == 0);
    none.rlim_cur = static_cast<rlim_t>(lowest_free);  // all below it are in use
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    REQUIRE_ERRNO(dup(STDIN_FILENO), EMFILE);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

// `call` in a thread of its own, which is asleep when `wake` is called here. What `call` returns.
template <typename Call, typename Wake>
int WakeUp(Call call, Wake wake) {
  std::atomic<pid_t> tid{0};
  const NoDescriptors none;
  auto sleeper = Async([&] {
    tid = gettid();
    return call();
  });
  // Not IsAsleep(): it opens a file.
  REQUIRE(Eventually([&] { return tid != 0; }));
  REQUIRE(StillRunning(sleeper));
  wake();
  REQUIRE(sleeper.wait_for(std::chrono::milliseconds(kPatienceMs / 2)) == std::future_status::ready);
  return sleeper.get();
}

TEST_CASE("unwakeable: a poll sees that less is enough") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 100);
  REQUIRE(SendAll(pair.client, std::string(50, 'x')));
  char some[64];
  REQUIRE(Eventually([&] { return recv(pair.server, some, sizeof some, MSG_PEEK | MSG_DONTWAIT) == 50; }));
  const int revents = WakeUp(
      [&] {
        pollfd one{.fd = pair.server, .events = POLLIN, .revents = 0};
        return ppoll(&one, 1, nullptr, nullptr) == 1 ? one.revents : -1;
      },
      [&] { SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 1); });
  REQUIRE(revents == POLLIN);
}

TEST_CASE("unwakeable: a receive with a time-out sees that another thread has shut the socket down") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  Pair pair = MakePair();
  SetTimeout(pair.server, SO_RCVTIMEO, 2 * kPatienceMs);
  const int got = WakeUp(
      [&] {
        char c;
        return static_cast<int>(recv(pair.server, &c, 1, 0));
      },
      [&] { REQUIRE(shutdown(pair.server, SHUT_RD) == 0); });
  REQUIRE(got == 0);
}

TEST_CASE("unwakeable: a sender with a time-out sees that another thread has shut the socket down") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  Pair pair = MakePair();
  SetTimeout(pair.client, SO_SNDTIMEO, 2 * kPatienceMs);
  SetNonblocking(pair.client);
  Fill(pair.client);
  SetNonblocking(pair.client, false);
  const int error = WakeUp(
      [&] {
        // TCP finds room for a few bytes more at times: a window probe makes the peer tidy up.
        while (send(pair.client, "x", 1, MSG_NOSIGNAL) == 1) {
        }
        return errno;
      },
      [&] { REQUIRE(shutdown(pair.client, SHUT_WR) == 0); });
  REQUIRE(error == EPIPE);
}

TEST_CASE("unwakeable: an epoll wait sees what another thread's call has changed") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  Pair pair = MakePair();
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
  const int count = WakeUp([&] { return epoll_wait(ep, &event, 1, -1); },
                           [&] { REQUIRE(shutdown(pair.server, SHUT_RD) == 0); });
  REQUIRE(count == 1);
  REQUIRE((event.events & EPOLLIN) != 0);
}

}  // namespace
}  // namespace posix_test
