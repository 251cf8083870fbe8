// A reader of much data with large buffers, the one that a stack may serve by putting what comes straight
// into them: every byte once, in order, counts exact, nothing outside the buffer touched, and the buffer the
// caller's alone when the call has returned.
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

// One write of this size is small enough not to be treated as a large one.
constexpr size_t kPiece = 65536;

// Writes all of it in blocking calls of `size` bytes, then says that it is over.
bool Stream(int fd, const std::string& data, size_t size) {
  for (size_t at = 0; at < data.size(); at += size) {
    if (!SendAll(fd, data.data() + at, std::min(size, data.size() - at))) return false;
  }
  return shutdown(fd, SHUT_WR) == 0;
}

// A buffer between fences.
class Fenced {
 public:
  explicit Fenced(size_t size) : memory_(size + 2 * kFence, '#') {}
  char* data() { return memory_.data() + kFence; }
  size_t size() const { return memory_.size() - 2 * kFence; }
  bool intact() const {
    const auto is_fence = [](char c) { return c == '#'; };
    return std::all_of(memory_.begin(), memory_.begin() + kFence, is_fence) &&
           std::all_of(memory_.end() - kFence, memory_.end(), is_fence);
  }

 private:
  static constexpr ptrdiff_t kFence = 256;
  std::vector<char> memory_;
};

struct PieceSizes {
  size_t write;
  size_t read;
};

TEST_CASE("bulk: writes and reads of all sizes") {
  const PieceSizes sizes = GENERATE(values<PieceSizes>({{kPiece, kMiB},
                                                        {kPiece, 65'536},
                                                        {60'000, 100'000},
                                                        {32'768, 40'000},
                                                        {33'000, 20'000},
                                                        {20'000, kMiB},
                                                        {5'000, 70'001}}));
  const int flags = GENERATE(0, MSG_WAITALL);
  INFO(sizes.write << " by " << sizes.read << ", flags " << flags);
  Pair pair = MakePair();
  const std::string data = Pattern(6 * kMiB + 1234);
  auto sender = Async([&] { return Stream(pair.client, data, sizes.write); });
  Fenced buffer(sizes.read);
  std::string all;
  for (;;) {
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), flags);
    REQUIRE(n >= 0);
    if (n == 0) break;
    all.append(buffer.data(), static_cast<size_t>(n));
    std::fill_n(buffer.data(), buffer.size(), '.');
  }
  REQUIRE(Get(sender));
  REQUIRE(buffer.intact());
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("bulk: sizes that change all the time") {
  Pair pair = MakePair();
  const std::string data = Pattern(8 * kMiB);
  auto sender = Async([&] {
    for (size_t at = 0, i = 0; at < data.size(); ++i) {
      const size_t size = std::min(data.size() - at, i % 5 == 4 ? 1 + i * 37 % 3000 : 1 + i * 7919 % kPiece);
      if (!SendAll(pair.client, data.data() + at, size)) return false;
      at += size;
    }
    return shutdown(pair.client, SHUT_WR) == 0;
  });
  std::string all;
  Fenced buffer(kMiB);
  for (size_t i = 0;; ++i) {
    const ssize_t n = recv(pair.server, buffer.data(), i % 7 == 6 ? 100 : 30'000 + i * 104'729 % 900'000, 0);
    REQUIRE(n >= 0);
    if (n == 0) break;
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  REQUIRE(Get(sender));
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("bulk: one way of reading after another") {
  Pair pair = MakePair();
  const std::string data = Pattern(12 * kMiB);
  auto sender = Async([&] { return Stream(pair.client, data, kPiece); });
  std::string all;
  Fenced buffer(200'000);
  Fenced small(100);
  std::string dropped;
  for (size_t i = 0;; ++i) {
    ssize_t n = 0;
    if (i % 6 == 1) {  // looks first
      n = recv(pair.server, buffer.data(), buffer.size(), MSG_PEEK);
      REQUIRE(n >= 0);
      REQUIRE(data.compare(all.size(), static_cast<size_t>(n), buffer.data(), static_cast<size_t>(n)) == 0);
      n = recv(pair.server, buffer.data(), buffer.size(), 0);
    } else if (i % 6 == 2) {  // throws away
      n = recv(pair.server, buffer.data(), 50'000, MSG_TRUNC);
      if (n > 0) std::copy_n(data.data() + all.size(), n, buffer.data());
    } else if (i % 6 == 3) {  // in several places
      iovec parts[] = {{small.data(), small.size()},
                       {buffer.data() + small.size(), 70'000},
                       {buffer.data() + small.size() + 70'000, 60'000}};
      n = readv(pair.server, parts, 3);
      if (n > 0)
        std::copy_n(small.data(), std::min<ssize_t>(n, static_cast<ssize_t>(small.size())), buffer.data());
    } else if (i % 6 == 4) {
      iovec part{buffer.data(), buffer.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      n = recvmsg(pair.server, &message, 0);
      REQUIRE(message.msg_flags == 0);
    } else {
      n = read(pair.server, buffer.data(), buffer.size());
    }
    REQUIRE(n >= 0);
    if (n == 0) break;
    REQUIRE(data.compare(all.size(), static_cast<size_t>(n), buffer.data(), static_cast<size_t>(n)) == 0);
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  REQUIRE(Get(sender));
  REQUIRE(buffer.intact());
  REQUIRE(small.intact());
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("bulk: a reader that does not block, told by poll or by edges") {
  const bool edges = GENERATE(false, true);
  const size_t size = GENERATE(size_t{100'000}, kMiB);
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  Fd epoll(epoll_create1(0));
  epoll_event event{.events = EPOLLIN | (edges ? EPOLLET : 0u), .data = {}};
  REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event) == 0);
  const std::string data = Pattern(8 * kMiB);
  auto sender = Async([&] { return Stream(pair.client, data, kPiece); });
  std::string all;
  Fenced buffer(size);
  for (bool open = true; open;) {
    REQUIRE(epoll_wait(epoll, &event, 1, kPatienceMs) == 1);
    for (;;) {
      const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), 0);
      if (n < 0) REQUIRE(errno == EAGAIN);
      if (n > 0) all.append(buffer.data(), static_cast<size_t>(n));
      open = n != 0;
      // By levels it is not necessary to ask until nothing is left.
      if (n <= 0 || !edges) break;
    }
  }
  REQUIRE(Get(sender));
  REQUIRE(buffer.intact());
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("bulk: time-outs in the middle") {
  Pair pair = MakePair();
  SetTimeout(pair.server, SO_RCVTIMEO, 20);
  const std::string data = Pattern(4 * kMiB);
  std::atomic<size_t> allowed{0};
  auto sender = Async([&] {
    for (size_t at = 0; at < data.size(); at += kMiB) {
      if (!Eventually([&] { return allowed > at; }) || !SendAll(pair.client, data.data() + at, kMiB))
        return false;
    }
    return true;
  });
  std::string all;
  Fenced buffer(3 * kMiB);
  while (all.size() < data.size()) {
    allowed = all.size() / kMiB * kMiB + 1;
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), MSG_WAITALL);
    if (n < 0) {
      REQUIRE(errno == EAGAIN);
      continue;
    }
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  REQUIRE(Get(sender));
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("bulk: signals in the middle") {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  Pair pair = MakePair();
  const std::string data = Pattern(8 * kMiB);
  std::atomic<bool> done{false};
  std::atomic<pthread_t> thread{};
  auto receiver = Async([&] {
    thread = pthread_self();
    std::string all;
    std::vector<char> buffer(kMiB);
    while (all.size() < data.size()) {
      const ssize_t n =
          recv(pair.server, buffer.data(), buffer.size(), all.size() % 2 == 0 ? MSG_WAITALL : 0);
      if (n < 0 && errno != EINTR) break;
      if (n == 0) break;
      if (n > 0) all.append(buffer.data(), static_cast<size_t>(n));
    }
    done = true;
    return all;
  });
  REQUIRE(Eventually([&] { return thread != pthread_t{}; }));
  auto sender = Async([&] { return Stream(pair.client, data, kPiece); });
  REQUIRE(Eventually([&] {
    if (!done) pthread_kill(thread, SIGUSR1);
    return done.load();
  }));
  REQUIRE(Hash(Get(receiver)) == Hash(data));
  REQUIRE(Get(sender));
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
}

TEST_CASE("bulk: urgent data in the middle") {
  const bool in_line = GENERATE(false, true);
  Pair pair = MakePair();
  if (in_line) SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 1);
  const std::string data = Pattern(2 * kMiB);
  const size_t mark = kMiB + 777;
  auto sender = Async([&] {
    return SendAll(pair.client, data.data(), mark) && send(pair.client, "!", 1, MSG_OOB) == 1 &&
           SendAll(pair.client, data.data() + mark, data.size() - mark) &&
           shutdown(pair.client, SHUT_WR) == 0;
  });
  std::string all;
  std::vector<char> buffer(500'000);
  bool stopped = false;
  for (;;) {
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), 0);
    REQUIRE(n >= 0);
    if (n == 0) break;
    all.append(buffer.data(), static_cast<size_t>(n));
    std::fill(buffer.begin(), buffer.end(), '.');
    const auto at_mark = [&] {
      int at = 0;
      REQUIRE(ioctl(pair.server, SIOCATMARK, &at) == 0);
      return at != 0;
    };
    // What is before the mark may come, and be read, before there is a mark.
    if (all.size() == mark) stopped = Eventually(at_mark);
  }
  REQUIRE(stopped);
  REQUIRE(Hash(all) == Hash(in_line ? data.substr(0, mark) + "!" + data.substr(mark) : data));
  REQUIRE(Get(sender));
}

// What one thread has been given stays as it is while others read on.
TEST_CASE("bulk: several threads read one socket") {
  Pair pair = MakePair();
  const std::string data = Pattern(16 * kMiB);
  auto sender = Async([&] { return Stream(pair.client, data, kPiece); });
  struct Got {
    size_t bytes = 0;
    uint64_t sum = 0;
    bool changed = false;
  };
  const auto add = [](uint64_t sum, char c) { return sum + static_cast<unsigned char>(c); };
  const auto read = [&] {
    Got got;
    std::vector<char> buffer(300'000);
    for (;;) {
      const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), 0);
      if (n <= 0) return got;
      const std::vector<char> then = buffer;
      got.bytes += static_cast<size_t>(n);
      got.sum = std::accumulate(then.begin(), then.begin() + n, got.sum, add);
      for (int i = 0; i < 3; ++i) {
        sched_yield();
        got.changed = got.changed || then != buffer;
      }
    }
  };
  std::vector<std::future<Got>> readers;
  for (int i = 0; i < 3; ++i) readers.push_back(Async(read));
  Got all;
  for (auto& reader : readers) {
    const Got got = Get(reader);
    REQUIRE_FALSE(got.changed);
    all.bytes += got.bytes;
    all.sum += got.sum;
  }
  REQUIRE(Get(sender));
  REQUIRE(all.bytes == data.size());
  REQUIRE(all.sum == std::accumulate(data.begin(), data.end(), uint64_t{0}, add));
}

// Brings the connection into the state in which data is expected.
void Warm(Pair& pair, std::vector<char>& buffer) {
  const std::string data = Pattern(kMiB);
  auto sender = Async([&] {
    for (size_t at = 0; at < data.size(); at += kPiece) {
      if (!SendAll(pair.client, data.data() + at, kPiece)) return false;
    }
    return true;
  });
  std::string all;
  while (all.size() < data.size()) {
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), 0);
    REQUIRE(n > 0);
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  REQUIRE(Get(sender));
  REQUIRE(all == data);
}

sigjmp_buf jump;

// Whether the alarm's handler jumped out of a receive. Far below its caller.
[[gnu::noinline]] bool JumpsOut(int fd, std::vector<char>& buffer) {
  volatile char distance[16384];
  distance[0] = 0;
  if (sigsetjmp(jump, 1) != 0) return true;
  const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 30'000}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  (void)!recv(fd, buffer.data(), buffer.size(), 0);
  return distance[0] != 0;
}

TEST_CASE("bulk: a handler that jumps out of a receive whose buffer is then another's") {
  if (kUnderTsan) return Impossible(why::kHandlerJumps);
  Pair pair = MakePair();
  std::vector<char> buffer(kMiB);
  Warm(pair, buffer);
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { siglongjmp(jump, 1); };
  REQUIRE(sigaction(SIGALRM, &action, &before) == 0);
  REQUIRE(JumpsOut(pair.server, buffer));
  REQUIRE(sigaction(SIGALRM, &before, nullptr) == 0);
  std::fill(buffer.begin(), buffer.end(), '#');
  const std::string data = Pattern(2 * kMiB, 5);
  auto sender = Async([&] { return Stream(pair.client, data, kPiece); });
  std::string all(data.size(), '.');
  for (size_t at = 0; at < all.size();) {
    const ssize_t n = recv(pair.server, all.data() + at, all.size() - at, 0);
    REQUIRE(n > 0);
    at += static_cast<size_t>(n);
  }
  REQUIRE(Get(sender));
  REQUIRE(Hash(all) == Hash(data));
  REQUIRE(std::count(buffer.begin(), buffer.end(), '#') == static_cast<ssize_t>(buffer.size()));
}

struct Cancelled {
  int fd = -1;
  std::vector<char>* buffer = nullptr;
  std::atomic<pid_t> tid{0};
};

TEST_CASE("bulk: a thread that is cancelled in a receive") {
  if (kUnderAsan) return Impossible(why::kCancelled);
  Pair pair = MakePair();
  std::vector<char> buffer(kMiB);
  Warm(pair, buffer);
  Cancelled sleeper{.fd = pair.server.get(), .buffer = &buffer};
  pthread_t thread;
  const auto body = [](void* argument) -> void* {
    auto* self = static_cast<Cancelled*>(argument);
    self->tid = gettid();
    (void)!recv(self->fd, self->buffer->data(), self->buffer->size(), 0);
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, nullptr, body, &sleeper) == 0);
  REQUIRE(Eventually([&] { return sleeper.tid != 0 && IsAsleep(sleeper.tid); }));
  REQUIRE(pthread_cancel(thread) == 0);
  void* result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  REQUIRE(result == PTHREAD_CANCELED);
  std::fill(buffer.begin(), buffer.end(), '#');
  const std::string data = Pattern(2 * kMiB, 6);
  auto sender = Async([&] { return Stream(pair.client, data, kPiece); });
  REQUIRE(Hash(ReceiveExactly(pair.server, data.size())) == Hash(data));
  REQUIRE(Get(sender));
  REQUIRE(std::count(buffer.begin(), buffer.end(), '#') == static_cast<ssize_t>(buffer.size()));
}

TEST_CASE("bulk: closed under a sleeping receive") {
  if (kUnderTsan) return Impossible(why::kClose);
  Pair pair = MakePair();
  std::vector<char> buffer(kMiB);
  Warm(pair, buffer);
  std::atomic<pid_t> tid{0};
  auto receiver = Async([&] {
    tid = gettid();
    return recv(pair.server, buffer.data(), buffer.size(), 0);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  shutdown(pair.server, SHUT_RDWR);
  pair.server.reset();
  REQUIRE(Get(receiver) <= 0);
}

TEST_CASE("bulk: a fork under a sleeping receive") {
  Pair pair = MakePair();
  std::vector<char> buffer(kMiB);
  Warm(pair, buffer);
  const std::string data = Pattern(4 * kMiB, 7);
  std::atomic<pid_t> tid{0};
  auto receiver = Async([&] {
    tid = gettid();
    std::string all;
    while (all.size() < data.size()) {
      const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), 0);
      if (n <= 0) break;
      all.append(buffer.data(), static_cast<size_t>(n));
    }
    return all;
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  for (size_t at = 0; at < data.size(); at += kMiB) {
    const pid_t child = Child([] { return 0; });
    for (size_t piece = 0; piece < kMiB; piece += kPiece)
      REQUIRE(SendAll(pair.client, data.data() + at + piece, kPiece));
    REQUIRE(ExitedWith(Reap(child), 0));
  }
  REQUIRE(Hash(Get(receiver)) == Hash(data));
}

}  // namespace
}  // namespace posix_test
