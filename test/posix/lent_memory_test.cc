// A large blocking write that ends early when the reader has had a part of it: what it says has left is what
// arrives, and the memory is the caller's again.
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "test/posix/support.h"

namespace posix_test {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kPart = 5 * kMiB / 2;

struct Sent {
  ssize_t count = 0;
  int error = 0;
};

// One write of 64 MiB, whose memory is overwritten as soon as the call returns.
Sent WriteAndOverwrite(int fd, const std::string& data) {
  const std::unique_ptr<char[]> memory(new char[data.size()]);
  std::copy(data.begin(), data.end(), memory.get());
  const ssize_t count = send(fd, memory.get(), data.size(), MSG_NOSIGNAL);
  const int error = errno;
  std::fill_n(memory.get(), data.size(), '!');
  shutdown(fd, SHUT_WR);
  return {count, error};
}

std::string ReadPart(int fd) {
  std::string part(kPart, '\0');
  const ssize_t n = recv(fd, part.data(), part.size(), MSG_WAITALL);
  part.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return part;
}

std::string ReadRest(int fd) {
  std::string rest;
  std::vector<char> buffer(kMiB);
  for (ssize_t n; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;)
    rest.append(buffer.data(), static_cast<size_t>(n));
  return rest;
}

void RequireExact(const Sent& sent, const std::string& got, const std::string& data) {
  REQUIRE(sent.count >= static_cast<ssize_t>(kPart));
  REQUIRE(sent.count < static_cast<ssize_t>(data.size()));
  REQUIRE(got.size() == static_cast<size_t>(sent.count));
  REQUIRE(Hash(got) == Hash(data.substr(0, got.size())));
}

std::atomic<int> signals_seen{0};

}  // namespace

TEST_CASE("lent: a signal when the reader has had a part: the count is exact") {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++signals_seen; };
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  signals_seen = 0;
  Pair pair = MakePair();
  const std::string data = Pattern(64 * kMiB);
  std::atomic<pthread_t> thread{};
  std::atomic<pid_t> tid{0};
  std::atomic<bool> done{false};
  auto sender = Async([&] {
    thread = pthread_self();
    tid = gettid();
    const Sent sent = WriteAndOverwrite(pair.client, data);
    done = true;
    return sent;
  });
  std::string got = ReadPart(pair.server);
  REQUIRE(got.size() == kPart);
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(Eventually([&] {
    if (!done) pthread_kill(thread, SIGUSR1);
    return done.load();
  }));
  got += ReadRest(pair.server);
  const Sent sent = Get(sender);
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  REQUIRE(signals_seen > 0);
  RequireExact(sent, got, data);
}

TEST_CASE("lent: the time runs out when the reader has had a part: the count is exact") {
  Pair pair = MakePair();
  SetTimeout(pair.client, SO_SNDTIMEO, 500);
  const std::string data = Pattern(64 * kMiB);
  auto sender = Async([&] { return WriteAndOverwrite(pair.client, data); });
  std::string got = ReadPart(pair.server);
  const Sent sent = Get(sender);
  got += ReadRest(pair.server);
  RequireExact(sent, got, data);
}

}  // namespace posix_test
