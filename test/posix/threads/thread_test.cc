// Several threads on one socket, or on many.
#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "test/posix/full_listener.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

TEST_CASE("threads: one reads and one writes on each end") {
  Pair pair = MakePair();
  const std::string there = Pattern(20'000'000, 1), back = Pattern(20'000'000, 2);
  auto a = Async([&] { return SendAll(pair.client, there); });
  auto b = Async([&] { return SendAll(pair.server, back); });
  auto c = Async([&] { return Hash(ReceiveExactly(pair.client, back.size())); });
  auto d = Async([&] { return Hash(ReceiveExactly(pair.server, there.size())); });
  REQUIRE(Get(a));
  REQUIRE(Get(b));
  REQUIRE(Get(c) == Hash(back));
  REQUIRE(Get(d) == Hash(there));
}

TEST_CASE("threads: a receiver that sleeps does not hold up a sender") {
  Pair pair = MakePair();
  auto receiver = Async([&] { return ReceiveExactly(pair.client, 3); });
  REQUIRE(StillRunning(receiver));
  for (int i = 0; i < 100; ++i) {
    REQUIRE(SendAll(pair.client, Pattern(1000, static_cast<uint32_t>(i))));
    REQUIRE(ReceiveExactly(pair.server, 1000) == Pattern(1000, static_cast<uint32_t>(i)));
  }
  REQUIRE(SendAll(pair.server, "end"));
  REQUIRE(Get(receiver) == "end");
}

TEST_CASE("threads: many writers on one socket lose nothing") {
  Pair pair = MakePair();
  std::vector<std::future<bool>> writers;
  for (int i = 0; i < 8; ++i) {
    writers.push_back(Async([&, i] {
      const std::string block(64, static_cast<char>('a' + i));
      for (int n = 0; n < 500; ++n)
        if (send(pair.client, block.data(), block.size(), 0) != 64) return false;
      return true;
    }));
  }
  const std::string got = ReceiveExactly(pair.server, 8 * 500 * 64);
  for (auto& writer : writers) REQUIRE(Get(writer));
  REQUIRE(got.size() == 8 * 500 * 64);
  for (int i = 0; i < 8; ++i) REQUIRE(std::count(got.begin(), got.end(), 'a' + i) == 500 * 64);
}

TEST_CASE("threads: many readers on one socket share the bytes") {
  Pair pair = MakePair();
  std::atomic<size_t> total{0};
  std::vector<std::future<bool>> readers;
  for (int i = 0; i < 6; ++i) {
    readers.push_back(Async([&] {
      char room[777];
      ssize_t n;
      while ((n = recv(pair.server, room, sizeof(room), 0)) > 0) total += static_cast<size_t>(n);
      return n == 0;
    }));
  }
  REQUIRE(SendAll(pair.client, Pattern(2'000'000)));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  for (auto& reader : readers) REQUIRE(Get(reader));
  REQUIRE(total == 2'000'000);
}

TEST_CASE("threads: 50 threads with 50 connections each") {
  Listener listener = Listen(AF_INET, 256);
  constexpr int kThreads = 50, kConnections = 50;
  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  std::vector<std::future<bool>> servers;
  SetNonblocking(listener.fd);
  for (int i = 0; i < 8; ++i) {
    servers.push_back(Async([&] {
      while (!stop) {
        if (PollOne(listener.fd, POLLIN, 50) == 0) continue;
        Fd server(accept(listener.fd, nullptr, nullptr));
        if (server < 0) continue;
        const std::string got = ReceiveExactly(server, 100);
        if (got.size() != 100 || !SendAll(server, got)) return false;
        ++served;
      }
      return true;
    }));
  }
  std::vector<std::future<int>> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.push_back(Async([&, t] {
      for (int i = 0; i < kConnections; ++i) {
        Fd fd(socket(AF_INET, SOCK_STREAM, 0));
        Address target = listener.address;
        if (connect(fd, target.get(), target.length) != 0) return errno;
        const std::string data = Pattern(100, static_cast<uint32_t>(t * kConnections + i));
        if (!SendAll(fd, data)) return -2;
        if (ReceiveExactly(fd, 100) != data) return -3;
      }
      return 0;
    }));
  }
  for (auto& client : clients) REQUIRE(Get(client) == 0);
  REQUIRE(Eventually([&] { return served == kThreads * kConnections; }));
  stop = true;
  for (auto& server : servers) REQUIRE(Get(server));
}

TEST_CASE("threads: a descriptor closed under a blocked receive leaves no wreck") {
  if (kUnderTsan) return Impossible(why::kClose);
  // What the blocked call returns is not defined; that the peer and the number's next user are unharmed is.
  Pair pair = MakePair();
  const int number = pair.server;
  std::atomic<pid_t> tid{0};
  auto blocked = Async([&tid, number] {
    tid = gettid();
    char c;
    return recv(number, &c, 1, 0);
  });
  // One that has not yet gone to sleep would read from the number's next user.
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  pair.server.release();
  REQUIRE(close(number) == 0);
  Pair next = MakePair();
  REQUIRE(SendAll(next.client, "next"));
  REQUIRE(ReceiveExactly(next.server, 4) == "next");
  pair.client.reset();
  Get(blocked);
}

TEST_CASE("threads: a connect that sleeps does not hold up other calls on its socket", "[refused]") {
  FullListener full;
  Fd client = TcpSocket();
  std::atomic<pid_t> tid{0};
  auto connected = Async([&] {
    tid = gettid();
    return full.Connect(client);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(StillRunning(connected));
  Stopwatch watch;
  REQUIRE(GetOption(client, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
  SetOption(client, SOL_SOCKET, SO_KEEPALIVE, 1);
  REQUIRE(fcntl(client, F_GETFL) >= 0);
  REQUIRE(PollOne(client, POLLIN, 0) == 0);
  REQUIRE(LocalOf(client).port() != 0);
  REQUIRE(watch.ms() < kAtOnceMs);
  full.listener.fd.reset();
  Get(connected);
}

// 48 KiB, as some servers' threads have hardly more: send and receive must do with less.
struct OnSmallStack {
  int fd;
  std::string data;
  bool good = false;
  static void* Run(void* self) {
    auto& work = *static_cast<OnSmallStack*>(self);
    std::string& data = work.data;
    const size_t size = data.size() / 3;
    iovec parts[3];
    for (size_t i = 0; i < 3; ++i) parts[i] = {data.data() + i * size, size};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    const ssize_t sent = sendmsg(work.fd, &message, MSG_NOSIGNAL);
    work.good = sent == static_cast<ssize_t>(data.size()) && send(work.fd, "x", 1, MSG_NOSIGNAL) == 1;
    for (size_t i = 0; i < 3; ++i)
      work.good =
          work.good && recv(work.fd, parts[i].iov_base, size, MSG_WAITALL) == static_cast<ssize_t>(size);
    message.msg_iovlen = 1;
    work.good = work.good && recvmsg(work.fd, &message, 0) == 1;
    pollfd end{.fd = work.fd, .events = POLLIN, .revents = 0};
    work.good = work.good && poll(&end, 1, -1) == 1 && recv(work.fd, data.data(), 1, 0) == 0;
    return nullptr;
  }
};

TEST_CASE("threads: one with a small stack sends and receives") {
  if (kUnderAsan) return Impossible("the frames of ASan's code are larger");
  if (kUnderTsan) return Impossible("the frames of TSan's code are larger");
  for (const size_t size : {size_t{3}, size_t{30'000}, size_t{600'000}}) {
    Pair pair = MakePair();
    const std::string data = Pattern(size, 5);
    OnSmallStack work{.fd = pair.client, .data = data};
    pthread_attr_t attributes;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, 48 << 10) == 0);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, &attributes, &OnSmallStack::Run, &work) == 0);
    pthread_attr_destroy(&attributes);
    const std::string got = ReceiveExactly(pair.server, size + 1);
    const bool echoed = got == data + "x" && SendAll(pair.server, got);
    pair.server = Fd();
    REQUIRE(pthread_join(thread, nullptr) == 0);
    REQUIRE(echoed);
    REQUIRE(work.good);
    REQUIRE(work.data.substr(2, size - 2) == data.substr(2));
  }
}

TEST_CASE("threads: a full link is flushed beside a receiver that sleeps") {
  Listener listener = Listen();
  SetOption(listener.fd, SOL_SOCKET, SO_RCVBUF, 8 * 1024);
  Pair pair;
  pair.client = TcpSocket();
  SetOption(pair.client, SOL_SOCKET, SO_SNDBUF, 8 * 1024);
  REQUIRE(connect(pair.client, listener.address.get(), listener.address.length) == 0);
  pair.server = Fd(accept(listener.fd, nullptr, nullptr));
  REQUIRE(pair.server >= 0);
  auto receiver = Async([&] {
    char c = 0;
    return recv(pair.client, &c, 1, 0) == 1 && c == '!';
  });
  REQUIRE(StillRunning(receiver));
  const std::string block = Pattern(16 * 1024);
  size_t sent = 0;
  ssize_t n;
  while ((n = send(pair.client, block.data(), block.size(), MSG_DONTWAIT)) > 0)
    sent += static_cast<size_t>(n);
  REQUIRE(errno == EAGAIN);
  // From here on nobody calls on the client's side.
  REQUIRE(ReceiveExactly(pair.server, sent).size() == sent);
  REQUIRE(SendAll(pair.server, "!"));
  REQUIRE(Get(receiver));
}

}  // namespace
}  // namespace posix_test
