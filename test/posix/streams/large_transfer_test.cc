// Large blocking reads and writes, the ones that a stack with zero copy treats in a way of its own: every
// byte once, in order, counts exact, and memory the caller's again when the call returns, however it ends.
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "test/posix/support.h"

namespace posix_test {
namespace {

// Reads to the end in calls of `size` bytes.
std::string ReadInPieces(int fd, size_t size, int flags = 0) {
  std::string all;
  std::vector<char> buffer(size);
  for (;;) {
    const ssize_t n = recv(fd, buffer.data(), buffer.size(), flags);
    if (n <= 0) return all;
    all.append(buffer.data(), static_cast<size_t>(n));
    std::fill(buffer.begin(), buffer.end(), '#');  // what comes later must come from the peer
  }
}

// Writes all of it in calls of `size` bytes from a buffer that is overwritten as soon as the call returns.
bool WriteInPieces(int fd, const std::string& data, size_t size) {
  std::vector<char> buffer(size);
  for (size_t at = 0; at < data.size();) {
    const size_t piece = std::min(size, data.size() - at);
    std::copy_n(data.data() + at, piece, buffer.data());
    const ssize_t n = send(fd, buffer.data(), piece, MSG_NOSIGNAL);
    if (n <= 0) return false;
    std::fill(buffer.begin(), buffer.end(), '!');
    at += static_cast<size_t>(n);
  }
  return true;
}

struct Sizes {
  size_t write;
  size_t read;
};

TEST_CASE("large: blocking writes and reads of all sizes") {
  const Sizes sizes = GENERATE(values<Sizes>({{1 * kMiB, 1 * kMiB},
                                              {1 * kMiB, 100'000},
                                              {1 * kMiB, 10},
                                              {200'000, 3 * kMiB},
                                              {5 * kMiB, 5 * kMiB + 1},
                                              {5'000, 1 * kMiB},
                                              {777'777, 333'333}}));
  INFO(sizes.write << " by " << sizes.read);
  Pair pair = MakePair();
  const std::string data = Pattern(sizes.read == 10 ? 3 * kMiB : 12 * kMiB + 1234);
  auto sender = Async([&] {
    const bool sent = WriteInPieces(pair.client, data, sizes.write);
    shutdown(pair.client, SHUT_WR);
    return sent;
  });
  auto receiver = Async([&] { return ReadInPieces(pair.server, sizes.read); });
  REQUIRE(Get(sender));
  REQUIRE(Hash(Get(receiver)) == Hash(data));
}

TEST_CASE("large: MSG_WAITALL gets all of it") {
  Pair pair = MakePair();
  const std::string data = Pattern(8 * kMiB);
  auto sender = Async([&] { return WriteInPieces(pair.client, data, 600'000); });
  std::string got(data.size(), '\0');
  REQUIRE(recv(pair.server, got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(data.size()));
  REQUIRE(got == data);
  REQUIRE(Get(sender));
}

TEST_CASE("large: scattered reads, gathered writes") {
  Pair pair = MakePair();
  const std::string data = Pattern(4 * kMiB);
  auto sender = Async([&] {
    char* const base = const_cast<char*>(data.data());
    const iovec pieces[] = {{base, 100},
                            {base + 100, 2 * kMiB},
                            {base + 100 + 2 * kMiB, 50'000},
                            {base + 50'100 + 2 * kMiB, 2 * kMiB - 50'100}};
    const ssize_t n = writev(pair.client, pieces, 4);
    shutdown(pair.client, SHUT_WR);
    return n;
  });
  std::string all;
  std::string a(70, ' '), b(300'000, ' '), c(1 * kMiB, ' ');
  for (;;) {
    const iovec room[] = {{a.data(), a.size()}, {b.data(), b.size()}, {c.data(), c.size()}};
    const ssize_t n = readv(pair.server, room, 3);
    REQUIRE(n >= 0);
    if (n == 0) break;
    all.append((a + b + c).substr(0, static_cast<size_t>(n)));
  }
  REQUIRE(Get(sender) == static_cast<ssize_t>(data.size()));
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("large: both write first, then read") {
  Pair pair = MakePair();
  // Within what socket buffers hold on both sides together TCP lets both return; more would block there, too.
  const std::string there = Pattern(300'000, 1);
  const std::string back = Pattern(300'000, 2);
  auto other = Async([&] {
    if (!SendAll(pair.server, back)) return std::string("send");
    return ReceiveExactly(pair.server, there.size());
  });
  REQUIRE(SendAll(pair.client, there));
  REQUIRE(ReceiveExactly(pair.client, back.size()) == back);
  REQUIRE(Get(other) == there);
}

TEST_CASE("large: both write while both read, for long") {
  Pair pair = MakePair();
  const std::string there = Pattern(10 * kMiB, 1);
  const std::string back = Pattern(10 * kMiB, 2);
  auto writer1 = Async([&] { return WriteInPieces(pair.client, there, kMiB); });
  auto writer2 = Async([&] { return WriteInPieces(pair.server, back, kMiB); });
  auto reader1 = Async([&] { return ReceiveExactly(pair.client, back.size()); });
  REQUIRE(Hash(ReceiveExactly(pair.server, there.size())) == Hash(there));
  REQUIRE(Hash(Get(reader1)) == Hash(back));
  REQUIRE(Get(writer1));
  REQUIRE(Get(writer2));
}

TEST_CASE("large: a reader that polls before it reads") {
  Pair pair = MakePair();
  const std::string data = Pattern(6 * kMiB);
  auto sender = Async([&] {
    const bool sent = WriteInPieces(pair.client, data, kMiB);
    shutdown(pair.client, SHUT_WR);
    return sent;
  });
  std::string all;
  std::vector<char> buffer(kMiB);
  for (;;) {
    REQUIRE(WaitFor(pair.server, POLLIN));
    const ssize_t n = read(pair.server, buffer.data(), buffer.size());
    REQUIRE(n >= 0);
    if (n == 0) break;
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  REQUIRE(Get(sender));
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("large: a reader that peeks, a reader that does not block") {
  const bool peek = GENERATE(true, false);
  Pair pair = MakePair();
  const std::string data = Pattern(3 * kMiB);
  auto sender = Async([&] {
    const bool sent = WriteInPieces(pair.client, data, kMiB);
    shutdown(pair.client, SHUT_WR);
    return sent;
  });
  std::string all;
  std::vector<char> buffer(kMiB);
  for (;;) {
    if (peek) {
      char head[16];
      const ssize_t looked = recv(pair.server, head, sizeof head, MSG_PEEK);
      REQUIRE(looked >= 0);
      if (looked == 0) break;
      REQUIRE(data.compare(all.size(), static_cast<size_t>(looked), head, static_cast<size_t>(looked)) == 0);
    }
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), peek ? 0 : MSG_DONTWAIT);
    if (n < 0) {
      REQUIRE(errno == EAGAIN);
      REQUIRE(WaitFor(pair.server, POLLIN));
      continue;
    }
    if (n == 0) break;
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  REQUIRE(Get(sender));
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("large: a receive that times out loses nothing") {
  Pair pair = MakePair();
  SetTimeout(pair.server, SO_RCVTIMEO, 30);
  std::vector<char> buffer(4 * kMiB, '#');
  REQUIRE_ERRNO(recv(pair.server, buffer.data(), buffer.size(), 0), EAGAIN);
  REQUIRE(std::count(buffer.begin(), buffer.end(), '#') == static_cast<ssize_t>(buffer.size()));
  const std::string data = Pattern(3 * kMiB);
  auto sender = Async([&] { return WriteInPieces(pair.client, data, kMiB); });
  std::string all;
  while (all.size() < data.size()) {
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), MSG_WAITALL);
    if (n < 0) {
      REQUIRE(errno == EAGAIN);
      continue;
    }
    REQUIRE(n > 0);
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  REQUIRE(Get(sender));
  REQUIRE(Hash(all) == Hash(data));
  std::fill(buffer.begin(), buffer.end(), '#');
  REQUIRE_ERRNO(recv(pair.server, buffer.data(), buffer.size(), 0), EAGAIN);
}

TEST_CASE("large: a send that times out says exactly how much has left") {
  Pair pair = MakePair();
  SetTimeout(pair.client, SO_SNDTIMEO, 50);
  const std::string data = Pattern(64 * kMiB);
  const ssize_t sent = send(pair.client, data.data(), data.size(), 0);
  REQUIRE(sent > 0);
  REQUIRE(sent < static_cast<ssize_t>(data.size()));
  shutdown(pair.client, SHUT_WR);
  const std::string got = ReadInPieces(pair.server, kMiB);
  REQUIRE(got.size() == static_cast<size_t>(sent));
  REQUIRE(Hash(got) == Hash(data.substr(0, got.size())));
}

std::atomic<int> signals_seen{0};

TEST_CASE("large: a signal in the middle of a send: the count is exact") {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++signals_seen; };
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  signals_seen = 0;
  Pair pair = MakePair();
  const std::string data = Pattern(64 * kMiB);
  std::atomic<pid_t> tid{0};
  std::atomic<bool> done{false};
  std::atomic<pthread_t> thread{};
  auto sender = Async([&] {
    thread = pthread_self();
    tid = gettid();
    const ssize_t sent = send(pair.client, data.data(), data.size(), 0);
    const int error = errno;
    done = true;
    shutdown(pair.client, SHUT_WR);
    return std::pair(sent, error);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(Eventually([&] {
    if (!done) pthread_kill(thread, SIGUSR1);
    return done.load();
  }));
  const std::string got = ReadInPieces(pair.server, kMiB);
  const auto [sent, error] = Get(sender);
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  REQUIRE(signals_seen > 0);
  REQUIRE((sent > 0 || error == EINTR));
  REQUIRE(got.size() == static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  REQUIRE(Hash(got) == Hash(data.substr(0, got.size())));
}

TEST_CASE("large: a signal in the middle of a receive") {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++signals_seen; };
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  Pair pair = MakePair();
  std::atomic<pid_t> tid{0};
  std::atomic<bool> done{false};
  std::atomic<pthread_t> thread{};
  std::vector<char> buffer(4 * kMiB, '#');
  auto receiver = Async([&] {
    thread = pthread_self();
    tid = gettid();
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), MSG_WAITALL);
    const int error = errno;
    done = true;
    return std::pair(n, error);
  });
  const std::string data = Pattern(2 * kMiB);
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  auto sender = Async([&] { return SendAll(pair.client, data); });
  REQUIRE(Get(sender));
  REQUIRE(Eventually([&] { return IsAsleep(tid); }));
  REQUIRE(Eventually([&] {
    if (!done) pthread_kill(thread, SIGUSR1);
    return done.load();
  }));
  const auto [n, error] = Get(receiver);
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  std::string all;
  if (n > 0) {
    all.assign(buffer.data(), static_cast<size_t>(n));
  } else {
    REQUIRE(error == EINTR);
  }
  all += ReceiveExactly(pair.server, data.size() - all.size());
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("large: the reader goes away in the middle") {
  Pair pair = MakePair();
  const std::string data = Pattern(64 * kMiB);
  auto sender = Async([&] {
    size_t sent = 0;
    for (;;) {
      const ssize_t n = send(pair.client, data.data(), data.size(), MSG_NOSIGNAL);
      if (n < 0) return std::pair(sent, errno);
      sent += static_cast<size_t>(n);
    }
  });
  REQUIRE(ReceiveExactly(pair.server, kMiB).size() == kMiB);
  pair.server.reset();
  const auto [sent, error] = Get(sender);
  REQUIRE((error == EPIPE || error == ECONNRESET));
  REQUIRE(sent < data.size());
}

TEST_CASE("large: what is sent to a peer that has gone is not taken whole") {
  Pair pair = MakePair();
  const std::string data = Pattern(64 * kMiB);
  pair.server.reset();
  char byte;
  REQUIRE(recv(pair.client, &byte, 1, 0) == 0);
  REQUIRE(send(pair.client, data.data(), data.size(), MSG_NOSIGNAL) < static_cast<ssize_t>(data.size()));
}

TEST_CASE("large: another thread shuts the connection down under a sender and a reader") {
  Pair pair = MakePair();
  const std::string data = Pattern(64 * kMiB);
  auto sender = Async([&] { return send(pair.client, data.data(), data.size(), MSG_NOSIGNAL); });
  REQUIRE(StillRunning(sender));
  shutdown(pair.client, SHUT_RDWR);
  const ssize_t sent = Get(sender);
  REQUIRE(sent < static_cast<ssize_t>(data.size()));

  Pair other = MakePair();
  std::vector<char> buffer(4 * kMiB);
  auto receiver = Async([&] { return recv(other.server, buffer.data(), buffer.size(), 0); });
  REQUIRE(StillRunning(receiver));
  shutdown(other.server, SHUT_RDWR);
  REQUIRE(Get(receiver) == 0);
}

TEST_CASE("large: requests and answers in turn") {
  Pair pair = MakePair();
  constexpr int kTurns = 40;
  const std::string question = Pattern(400'000, 3);
  const std::string answer = Pattern(500'000, 4);
  auto server = Async([&] {
    for (int i = 0; i < kTurns; ++i) {
      if (ReceiveExactly(pair.server, question.size()) != question) return false;
      if (!SendAll(pair.server, answer)) return false;
    }
    return true;
  });
  for (int i = 0; i < kTurns; ++i) {
    REQUIRE(SendAll(pair.client, question));
    REQUIRE(ReceiveExactly(pair.client, answer.size()) == answer);
  }
  REQUIRE(Get(server));
}

TEST_CASE("large: urgent data between large writes") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 1);
  const std::string first = Pattern(2 * kMiB, 5);
  const std::string second = Pattern(2 * kMiB, 6);
  auto sender = Async([&] {
    if (!SendAll(pair.client, first)) return false;
    if (send(pair.client, "!", 1, MSG_OOB) != 1) return false;
    const bool sent = SendAll(pair.client, second);
    shutdown(pair.client, SHUT_WR);
    return sent;
  });
  const std::string got = ReadInPieces(pair.server, kMiB);
  REQUIRE(Get(sender));
  REQUIRE(Hash(got) == Hash(first + "!" + second));
}

}  // namespace
}  // namespace posix_test
