// What the POSIX cases share: descriptors that close themselves, connected pairs, bounded waits, children.
// Nothing here knows of SDP: the same program runs on the kernel's TCP, which is the oracle, and under the
// preload.
#ifndef SDP_TEST_POSIX_SUPPORT_H_
#define SDP_TEST_POSIX_SUPPORT_H_

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace posix_test {

// Every wait for something that must come ends after this: longer than a busy machine keeps anybody waiting.
// A wait for something that must not come ends after the next. What must not wait takes no longer than the
// last, wherever its thread was kept waiting for a processor.
inline constexpr int kPatienceMs = 20'000;
inline constexpr int kQuietMs = 60;
inline constexpr int kAtOnceMs = 6000;

inline constexpr size_t kMiB = 1 << 20;

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  operator int() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  uint16_t port() const;
  // "127.0.0.1:80", "[::1]:80"
  std::string ToString() const;
};
Address Loopback(int family, uint16_t port = 0);
Address Any(int family, uint16_t port = 0);
Address LocalOf(int fd);
Address PeerOf(int fd);
// A loopback port on which nobody listens, nor will while this process lives.
Address ClosedPort(int family);

struct Listener {
  Fd fd;
  Address address;
};
// Bound to a loopback port of the kernel's choice. `type_flags`: SOCK_NONBLOCK, SOCK_CLOEXEC.
Listener Listen(int family = AF_INET, int backlog = 128, int type_flags = 0);

struct Pair {
  Fd client;
  Fd server;
};
// A blocking connection through `listener`, which somebody accepts; and both ends in the calling thread.
Fd Connected(Listener& listener);
Pair ConnectTo(Listener& listener);
Pair MakePair(int family = AF_INET);

Fd TcpSocket(int family = AF_INET, int type_flags = 0);
void SetNonblocking(int fd, bool on = true);
bool IsNonblocking(int fd);
void SetOption(int fd, int level, int name, int value);
int GetOption(int fd, int level, int name);
// `name`: SO_RCVTIMEO or SO_SNDTIMEO.
void SetTimeout(int fd, int name, int ms);

// poll of one descriptor: its revents, 0 after `timeout_ms`.
short PollOne(int fd, short events, int timeout_ms = kPatienceMs);
// True once poll reports one of `events`.
bool WaitFor(int fd, short events, int timeout_ms = kPatienceMs);
// Waits for `condition`; false when patience is at its end.
bool Eventually(const std::function<bool()>& condition);

// Both also work on a non-blocking descriptor; false or a short string when patience, or the stream, ends.
bool SendAll(int fd, const void* data, size_t size);
inline bool SendAll(int fd, const std::string& data) { return SendAll(fd, data.data(), data.size()); }
std::string ReceiveExactly(int fd, size_t size);
// To the end of the stream; empty and errno set if it ends in an error.
std::string ReceiveToEnd(int fd);
// Non-blocking descriptor: writes until EAGAIN; the number of bytes taken.
size_t Fill(int fd);
// Non-blocking descriptor: reads until EAGAIN or the end; the number of bytes read.
size_t Drain(int fd);

// Deterministic bytes that differ at each position and for each seed.
std::string Pattern(size_t size, uint32_t seed = 1);
uint64_t Hash(const std::string& data);

// A child that runs `body` and leaves by _exit with its result.
pid_t Child(const std::function<int()>& body);
// The wait status; a child that outstays patience is killed and -1 returned.
int Reap(pid_t pid);
// A failed assertion shows how the child ended instead.
bool ExitedWith(int status, int code);

class Stopwatch {
 public:
  int ms() const {
    return static_cast<int>(
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_)
            .count());
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What takes less than `limit_ms` of itself does so once, though a busy machine may keep it waiting now and
// then. `attempt`: the milliseconds it took, from the beginning each time.
template <typename Attempt>
bool OnceWithin(int limit_ms, Attempt attempt) {
  for (int i = 0; i < 5; ++i) {
    if (attempt() < limit_ms) return true;
  }
  return false;
}

// A thread whose result is fetched with a bounded wait: Catch's assertions stay in the main thread. Threads
// with results of the usual types are compiled once, in support.cc.
template <typename T>
std::future<T> AsyncCall(std::function<T()> function) {
  return std::async(std::launch::async, std::move(function));
}
extern template std::future<void> AsyncCall(std::function<void()>);
extern template std::future<bool> AsyncCall(std::function<bool()>);
extern template std::future<int> AsyncCall(std::function<int()>);
extern template std::future<ssize_t> AsyncCall(std::function<ssize_t()>);
extern template std::future<std::string> AsyncCall(std::function<std::string()>);
template <typename Function>
auto Async(Function&& function) {
  return AsyncCall(std::function<std::invoke_result_t<Function>()>(std::forward<Function>(function)));
}
template <typename T>
T Get(std::future<T>& future) {
  REQUIRE(future.wait_for(std::chrono::milliseconds(2 * kPatienceMs)) == std::future_status::ready);
  return future.get();
}
template <typename T>
bool StillRunning(std::future<T>& future, int ms = kQuietMs) {
  return future.wait_for(std::chrono::milliseconds(ms)) != std::future_status::ready;
}

// True while another thread, or another process's first, sleeps in a system call, `tid` as gettid() gave it;
// waiting for a lock does not count.
bool IsAsleep(pid_t tid);

}  // namespace posix_test

#define REQUIRE_ERRNO(call, expected)      \
  do {                                     \
    errno = 0;                             \
    REQUIRE((call) == -1);                 \
    const int error_of_call_ = errno;      \
    REQUIRE(error_of_call_ == (expected)); \
  } while (false)

#endif  // SDP_TEST_POSIX_SUPPORT_H_
