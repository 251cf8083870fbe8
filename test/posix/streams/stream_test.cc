// The byte stream: bulk both ways, every call that moves bytes.
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <random>

#include "test/posix/support.h"

namespace posix_test {
namespace {

// Sends `data` in random pieces, by random calls.
bool SendInPieces(int fd, const std::string& data, uint32_t seed, size_t largest) {
  std::mt19937 random(seed);
  size_t at = 0;
  while (at < data.size()) {
    const size_t size = std::min<size_t>(data.size() - at, 1 + random() % largest);
    char* piece = const_cast<char*>(data.data()) + at;
    ssize_t n = -1;
    switch (random() % 4) {
      case 0:
        n = send(fd, piece, size, MSG_NOSIGNAL);
        break;
      case 1:
        n = write(fd, piece, size);
        break;
      case 2: {
        const iovec iov[3] = {{piece, size / 3}, {piece + size / 3, 0}, {piece + size / 3, size - size / 3}};
        n = writev(fd, iov, 3);
        break;
      }
      default: {
        iovec iov[2] = {{piece, size / 2}, {piece + size / 2, size - size / 2}};
        msghdr message{};
        message.msg_iov = iov;
        message.msg_iovlen = 2;
        n = sendmsg(fd, &message, MSG_NOSIGNAL);
      }
    }
    if (n < 0 && errno == EAGAIN) {
      if (!WaitFor(fd, POLLOUT)) return false;
      continue;
    }
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

std::string ReceiveInPieces(int fd, size_t total, uint32_t seed, size_t largest) {
  std::mt19937 random(seed);
  std::string data(total, '\0');
  size_t at = 0;
  while (at < total) {
    const size_t size = std::min<size_t>(total - at, 1 + random() % largest);
    char* piece = data.data() + at;
    if (!WaitFor(fd, POLLIN)) break;
    ssize_t n = -1;
    switch (random() % 4) {
      case 0:
        n = recv(fd, piece, size, 0);
        break;
      case 1:
        n = read(fd, piece, size);
        break;
      case 2: {
        const iovec iov[3] = {{piece, size / 3}, {piece + size / 3, 0}, {piece + size / 3, size - size / 3}};
        n = readv(fd, iov, 3);
        break;
      }
      default: {
        iovec iov[2] = {{piece, size / 2}, {piece + size / 2, size - size / 2}};
        msghdr message{};
        message.msg_iov = iov;
        message.msg_iovlen = 2;
        n = recvmsg(fd, &message, 0);
      }
    }
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  data.resize(at);
  return data;
}

TEST_CASE("stream: both directions at once in pieces of every size") {
  const size_t largest = GENERATE(10, 3000, 70'000, 1'000'000);
  const bool nonblocking = GENERATE(false, true);
  const int family = largest == 3000 ? AF_INET6 : AF_INET;
  const size_t total = largest == 10 ? 200'000 : 8 * 1024 * 1024 + 17;
  Pair pair = MakePair(family);
  SetNonblocking(pair.client, nonblocking);
  SetNonblocking(pair.server, nonblocking);
  const std::string there = Pattern(total, 1), back = Pattern(total, 2);
  auto a = Async([&] { return SendInPieces(pair.client, there, 11, largest); });
  auto b = Async([&] { return SendInPieces(pair.server, back, 12, largest); });
  auto c = Async([&] { return ReceiveInPieces(pair.client, total, 13, largest); });
  const std::string got_there = ReceiveInPieces(pair.server, total, 14, largest);
  REQUIRE(Get(a));
  REQUIRE(Get(b));
  REQUIRE(Hash(got_there) == Hash(there));
  REQUIRE(Hash(Get(c)) == Hash(back));
}

// What had to wait for the peer's credit would come from the helper, later.
TEST_CASE("stream: many small sends that are not answered arrive at once") {
  constexpr int kLate = 10;  // of 1000: a loaded kernel may deliver later
  Pair pair = MakePair();
  int late = 0;
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(send(pair.client, &i, sizeof i, 0) == sizeof i);
    int got = -1;
    ssize_t received = recv(pair.server, &got, sizeof got, MSG_DONTWAIT);
    if (received < 0) {
      ++late;
      received = recv(pair.server, &got, sizeof got, 0);
    }
    REQUIRE(received == sizeof got);
    REQUIRE(got == i);
  }
  REQUIRE(late <= kLate);
}

TEST_CASE("stream: one thread moves much data by poll") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  SetNonblocking(pair.server);
  const std::string data = Pattern(4 * 1024 * 1024);
  std::string got;
  std::vector<char> buffer(50'000);
  size_t sent = 0;
  Stopwatch watch;
  while (got.size() < data.size()) {
    REQUIRE(watch.ms() < kPatienceMs);
    pollfd fds[2] = {{pair.client, static_cast<short>(sent < data.size() ? POLLOUT : 0), 0},
                     {pair.server, POLLIN, 0}};
    REQUIRE(poll(fds, 2, kPatienceMs) > 0);
    if ((fds[0].revents & POLLOUT) != 0) {
      const ssize_t n =
          send(pair.client, data.data() + sent, std::min<size_t>(data.size() - sent, 77'777), 0);
      REQUIRE(n > 0);
      sent += static_cast<size_t>(n);
    }
    if ((fds[1].revents & POLLIN) != 0) {
      const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), 0);
      REQUIRE(n > 0);
      got.append(buffer.data(), static_cast<size_t>(n));
    }
  }
  REQUIRE(Hash(got) == Hash(data));
}

TEST_CASE("stream: request and reply many times") {
  Pair pair = MakePair();
  auto echo = Async([&] {
    char buffer[4096];
    ssize_t n;
    while ((n = read(pair.server, buffer, sizeof(buffer))) > 0)
      if (!SendAll(pair.server, buffer, static_cast<size_t>(n))) return false;
    return n == 0;
  });
  for (int i = 0; i < 3000; ++i) {
    const std::string message = Pattern(1 + i % 900, static_cast<uint32_t>(i));
    REQUIRE(write(pair.client, message.data(), message.size()) == static_cast<ssize_t>(message.size()));
    std::string reply(message.size(), '\0');
    REQUIRE(recv(pair.client, reply.data(), reply.size(), MSG_WAITALL) ==
            static_cast<ssize_t>(message.size()));
    REQUIRE(reply == message);
  }
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(Get(echo));
}

TEST_CASE("stream: both ends send much before they receive") {
  Pair pair = MakePair();
  const std::string a = Pattern(200'000, 3), z = Pattern(200'000, 4);
  auto other = Async([&] {
    if (!SendAll(pair.server, z)) return std::string("send");
    return ReceiveExactly(pair.server, a.size());
  });
  REQUIRE(SendAll(pair.client, a));
  REQUIRE(Hash(ReceiveExactly(pair.client, z.size())) == Hash(z));
  REQUIRE(Hash(Get(other)) == Hash(a));
}

TEST_CASE("stream: one thread sends from both ends before it receives") {
  Pair pair = MakePair();
  const std::string a = Pattern(100'000, 5), z = Pattern(100'000, 6);
  REQUIRE(SendAll(pair.client, a));
  REQUIRE(SendAll(pair.server, z));
  REQUIRE(ReceiveExactly(pair.client, z.size()) == z);
  REQUIRE(ReceiveExactly(pair.server, a.size()) == a);
}

TEST_CASE("stream: many pieces in one writev and readv") {
  Pair pair = MakePair();
  const std::string data = Pattern(1000 * 37);
  std::vector<iovec> iov;
  for (size_t i = 0; i < 1000; ++i) iov.push_back({const_cast<char*>(data.data()) + i * 37, 37});
  REQUIRE(writev(pair.client, iov.data(), 1000) == static_cast<ssize_t>(data.size()));
  std::string got(data.size(), '\0');
  size_t at = 0;
  while (at < got.size()) {
    std::vector<iovec> room;
    for (size_t i = at; i < got.size() && room.size() < 1000; i += 41)
      room.push_back({got.data() + i, std::min<size_t>(41, got.size() - i)});
    const ssize_t n = readv(pair.server, room.data(), static_cast<int>(room.size()));
    REQUIRE(n > 0);
    at += static_cast<size_t>(n);
  }
  REQUIRE(got == data);
  REQUIRE_ERRNO(writev(pair.client, iov.data(), 1025), EINVAL);
  volatile int minus_one = -1;
  REQUIRE_ERRNO(writev(pair.client, iov.data(), minus_one), EINVAL);
}

TEST_CASE("stream: sendmmsg and recvmmsg") {
  Pair pair = MakePair();
  std::string parts[4] = {"one", "twoo", "three", "sixsix"};
  iovec iov[4];
  mmsghdr messages[4]{};
  for (int i = 0; i < 4; ++i) {
    iov[i] = {parts[i].data(), parts[i].size()};
    messages[i].msg_hdr.msg_iov = &iov[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  REQUIRE(sendmmsg(pair.client, messages, 4, 0) == 4);
  for (int i = 0; i < 4; ++i) REQUIRE(messages[i].msg_len == parts[i].size());
  char room[4][3];
  iovec in[4];
  mmsghdr received[4]{};
  for (int i = 0; i < 4; ++i) {
    in[i] = {room[i], 3};
    received[i].msg_hdr.msg_iov = &in[i];
    received[i].msg_hdr.msg_iovlen = 1;
  }
  REQUIRE(PollOne(pair.server, POLLIN) == POLLIN);
  REQUIRE(Eventually([&] {
    int n = 0;
    return ioctl(pair.server, FIONREAD, &n) == 0 && n == 18;
  }));
  REQUIRE(recvmmsg(pair.server, received, 4, 0, nullptr) == 4);
  REQUIRE(std::string(&room[0][0], 12) == "onetwoothree");
  REQUIRE(recvmmsg(pair.server, received, 4, MSG_WAITFORONE, nullptr) == 2);
  REQUIRE_ERRNO(recvmmsg(pair.server, received, 4, MSG_DONTWAIT, nullptr), EAGAIN);
}

TEST_CASE("stream: recvmsg reports flags and no control data") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "hello"));
  char room[10], control[64];
  iovec iov{room, sizeof(room)};
  msghdr message{};
  sockaddr_storage name;
  message.msg_name = &name;
  message.msg_namelen = sizeof(name);
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  message.msg_flags = -1;
  REQUIRE(recvmsg(pair.server, &message, 0) == 5);
  REQUIRE(message.msg_flags == 0);
  REQUIRE(message.msg_namelen == 0);
  REQUIRE(message.msg_controllen == 0);
}

TEST_CASE("stream: recvfrom and sendto with an address") {
  Pair pair = MakePair();
  Address peer = PeerOf(pair.client);
  REQUIRE(sendto(pair.client, "to", 2, 0, peer.get(), peer.length) == 2);
  char room[4];
  sockaddr_storage from;
  from.ss_family = 0x5555;
  socklen_t length = sizeof(from);
  REQUIRE(recvfrom(pair.server, room, sizeof(room), 0, reinterpret_cast<sockaddr*>(&from), &length) == 2);
  REQUIRE(length == 0);
  REQUIRE(from.ss_family == 0x5555);
}

TEST_CASE("stream: FIONREAD counts what waits") {
  Pair pair = MakePair();
  int n = -1;
  REQUIRE(ioctl(pair.server, FIONREAD, &n) == 0);
  REQUIRE(n == 0);
  REQUIRE(SendAll(pair.client, "12345"));
  REQUIRE(SendAll(pair.client, "6789"));
  REQUIRE(Eventually([&] { return ioctl(pair.server, FIONREAD, &n) == 0 && n == 9; }));
  char room[4];
  REQUIRE(recv(pair.server, room, 4, 0) == 4);
  REQUIRE(ioctl(pair.server, FIONREAD, &n) == 0);
  REQUIRE(n == 5);
  Listener listener = Listen();
  REQUIRE_ERRNO(ioctl(listener.fd, FIONREAD, &n), EINVAL);
}

TEST_CASE("stream: sendfile") {
  Pair pair = MakePair();
  const std::string data = Pattern(3'000'000);
  Fd file(memfd_create("posix", 0));
  REQUIRE(pwrite(file, data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
  const bool nonblocking = GENERATE(false, true);
  SetNonblocking(pair.client, nonblocking);
  auto receiver = Async([&] { return ReceiveExactly(pair.server, data.size() - 100); });
  off_t offset = 100;
  while (offset < static_cast<off_t>(data.size())) {
    const ssize_t n = sendfile(pair.client, file, &offset, data.size());
    if (n < 0 && errno == EAGAIN) {
      REQUIRE(WaitFor(pair.client, POLLOUT));
      continue;
    }
    REQUIRE(n > 0);
  }
  REQUIRE(Hash(Get(receiver)) == Hash(data.substr(100)));
  REQUIRE(lseek(file, 0, SEEK_CUR) == 0);
  // Without an offset the file's own position moves.
  REQUIRE(lseek(file, 10, SEEK_SET) == 10);
  SetNonblocking(pair.client, false);
  REQUIRE(sendfile(pair.client, file, nullptr, 1000) == 1000);
  REQUIRE(lseek(file, 0, SEEK_CUR) == 1010);
  REQUIRE(ReceiveExactly(pair.server, 1000) == data.substr(10, 1000));
  offset = static_cast<off_t>(data.size());
  REQUIRE(sendfile(pair.client, file, &offset, 10) == 0);
}

TEST_CASE("stream: buffers may be reused at once") {
  Pair pair = MakePair();
  auto receiver = Async([&] { return ReceiveToEnd(pair.server); });
  std::string expected;
  std::vector<char> buffer(100'000);
  for (int i = 0; i < 40; ++i) {
    memset(buffer.data(), 'A' + i, buffer.size());
    REQUIRE(SendAll(pair.client, buffer.data(), buffer.size()));
    expected.append(buffer.data(), buffer.size());
    memset(buffer.data(), 0, buffer.size());
  }
  pair.client.reset();
  REQUIRE(Hash(Get(receiver)) == Hash(expected));
}

TEST_CASE("stream: read-only and freshly mapped memory can be sent") {
  Pair pair = MakePair();
  const size_t size = 1 << 20;
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto receiver = Async([&] { return ReceiveExactly(pair.server, size); });
  REQUIRE(SendAll(pair.client, memory, size));
  munmap(memory, size);
  REQUIRE(Get(receiver) == std::string(size, '\0'));
}

}  // namespace
}  // namespace posix_test
