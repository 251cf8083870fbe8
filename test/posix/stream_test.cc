// The byte stream: bulk both ways, every call that moves bytes, every flag.
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

TEST_CASE("stream: MSG_PEEK leaves the bytes") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "peekaboo"));
  char room[16] = {};
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, room, 4, MSG_PEEK) == 4);
  REQUIRE(recv(pair.server, room, sizeof(room), MSG_PEEK) == 8);
  REQUIRE(std::string(room, 8) == "peekaboo");
  REQUIRE(recv(pair.server, room, 4, 0) == 4);
  REQUIRE(recv(pair.server, room, sizeof(room), MSG_PEEK) == 4);
  REQUIRE(std::string(room, 4) == "aboo");
  REQUIRE(WaitFor(pair.server, POLLIN, 0));
  REQUIRE(recv(pair.server, room, sizeof(room), 0) == 4);
  REQUIRE_ERRNO(recv(pair.server, room, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
}

TEST_CASE("stream: MSG_PEEK into many pieces looks into all of them") {
  Pair pair = MakePair();
  const std::string data = Pattern(1000);
  REQUIRE(SendAll(pair.client, data));
  std::string room(1000, 0);
  std::vector<iovec> pieces;
  for (char& c : room) pieces.push_back({.iov_base = &c, .iov_len = 1});
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const int flags = GENERATE(0, int{MSG_WAITALL});
  if (flags == 0) REQUIRE(Eventually([&] { return recv(pair.server, room.data(), room.size(), MSG_PEEK) == 1000; }));
  room.assign(1000, 0);
  auto peek = Async([&] { return recvmsg(pair.server, &message, MSG_PEEK | flags); });
  REQUIRE(Get(peek) == 1000);
  REQUIRE(room == data);
  REQUIRE(ReceiveExactly(pair.server, 1000) == data);
}

TEST_CASE("stream: MSG_PEEK waits for data and at the end sees it") {
  Pair pair = MakePair();
  auto peek = Async([&] {
    char c = 0;
    return recv(pair.server, &c, 1, MSG_PEEK) == 1 ? c : '?';
  });
  REQUIRE(StillRunning(peek));
  REQUIRE(SendAll(pair.client, "p"));
  REQUIRE(Get(peek) == 'p');
  REQUIRE(ReceiveExactly(pair.server, 1) == "p");
  pair.client.reset();
  char c;
  REQUIRE(recv(pair.server, &c, 1, MSG_PEEK) == 0);
  REQUIRE(recv(pair.server, &c, 1, MSG_PEEK) == 0);
}

TEST_CASE("stream: MSG_WAITALL waits for all of a large request") {
  Pair pair = MakePair();
  const std::string data = Pattern(500'000);
  auto sender = Async([&] {
    for (size_t i = 0; i < data.size(); i += 50'000)
      if (!SendAll(pair.client, data.data() + i, 50'000)) return false;
    return true;
  });
  std::string got(data.size(), '\0');
  REQUIRE(recv(pair.server, got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(got.size()));
  REQUIRE(got == data);
  REQUIRE(Get(sender));
}

TEST_CASE("stream: MSG_WAITALL returns what came before the end") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "short"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  char room[100];
  REQUIRE(recv(pair.server, room, sizeof(room), MSG_WAITALL) == 5);
  REQUIRE(recv(pair.server, room, sizeof(room), MSG_WAITALL) == 0);
}

TEST_CASE("stream: MSG_WAITALL on a non-blocking socket takes what is there") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  REQUIRE(SendAll(pair.client, "some"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  char room[100];
  REQUIRE(recv(pair.server, room, sizeof(room), MSG_WAITALL) == 4);
  REQUIRE_ERRNO(recv(pair.server, room, sizeof(room), MSG_WAITALL), EAGAIN);
}

TEST_CASE("stream: MSG_DONTWAIT on a blocking socket") {
  Pair pair = MakePair();
  char room[10];
  REQUIRE_ERRNO(recv(pair.server, room, sizeof(room), MSG_DONTWAIT), EAGAIN);
  REQUIRE_FALSE(IsNonblocking(pair.server));
  REQUIRE(SendAll(pair.client, "now"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, room, sizeof(room), MSG_DONTWAIT) == 3);
  const std::string block = Pattern(64 * 1024);
  size_t total = 0;
  ssize_t n;
  while ((n = send(pair.client, block.data(), block.size(), MSG_DONTWAIT)) > 0) {
    total += static_cast<size_t>(n);
    REQUIRE(total < (256u << 20));
  }
  REQUIRE(errno == EAGAIN);
  SetNonblocking(pair.server);
  size_t drained = 0;
  REQUIRE(Eventually([&] { return (drained += Drain(pair.server)) == total; }));
}

TEST_CASE("stream: MSG_TRUNC drops bytes") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "0123456789"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  char room[10] = {};
  REQUIRE(recv(pair.server, room, 6, MSG_TRUNC) == 6);
  REQUIRE(room[0] == 0);
  REQUIRE(recv(pair.server, room, sizeof(room), 0) == 4);
  REQUIRE(std::string(room, 4) == "6789");
}

TEST_CASE("stream: nothing to move") {
  Pair pair = MakePair();
  char c = 0;
  REQUIRE(send(pair.client, &c, 0, 0) == 0);
  REQUIRE(write(pair.client, &c, 0) == 0);
  REQUIRE(writev(pair.client, nullptr, 0) == 0);
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE_ERRNO(recv(pair.server, &c, 1, MSG_DONTWAIT), EAGAIN);
  REQUIRE(read(pair.server, &c, 0) == 0);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, &c, 0, 0) == 0);
  REQUIRE(recv(pair.server, &c, 1, 0) == 1);
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

TEST_CASE("stream: urgent data out of line") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "abc", 3, 0) == 3);
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE((PollOne(pair.server, POLLPRI) & POLLPRI) != 0);
  char c = 0;
  REQUIRE(recv(pair.server, &c, 1, MSG_OOB) == 1);
  REQUIRE(c == '!');
  REQUIRE_ERRNO(recv(pair.server, &c, 1, MSG_OOB), EINVAL);
  REQUIRE(send(pair.client, "def", 3, 0) == 3);
  REQUIRE(ReceiveExactly(pair.server, 6) == "abcdef");
}

TEST_CASE("stream: of a send in many pieces the last byte is urgent, and no other") {
  Pair pair = MakePair();
  std::string data = Pattern(200);
  data.back() = '!';
  std::vector<iovec> pieces;
  for (char& c : data) pieces.push_back({.iov_base = &c, .iov_len = 1});
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  REQUIRE(sendmsg(pair.client, &message, MSG_OOB) == 200);
  char c = 0;
  REQUIRE(Eventually([&] { return recv(pair.server, &c, 1, MSG_OOB) == 1; }));
  REQUIRE(c == '!');
  REQUIRE(SendAll(pair.client, "on"));
  REQUIRE(ReceiveExactly(pair.server, 201) == data.substr(0, 199) + "on");
}

TEST_CASE("stream: urgent data that is here already comes in line once that is asked for") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "abc", 3, 0) == 3);
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  const bool followed = GENERATE(false, true);
  if (followed) REQUIRE(send(pair.client, "de", 2, 0) == 2);
  char c = 0;
  REQUIRE(Eventually([&] { return recv(pair.server, &c, 1, MSG_OOB | MSG_PEEK) == 1; }));
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 1);
  REQUIRE_ERRNO(recv(pair.server, &c, 1, MSG_OOB), EINVAL);
  char room[10];
  REQUIRE(recv(pair.server, room, sizeof(room), 0) == 3);
  int mark = -1;
  REQUIRE(ioctl(pair.server, SIOCATMARK, &mark) == 0);
  REQUIRE(mark == 1);
  REQUIRE(ReceiveExactly(pair.server, followed ? 3 : 1) == (followed ? "!de" : "!"));
}

TEST_CASE("stream: urgent data in line stops at the mark") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 1);
  REQUIRE(send(pair.client, "abc", 3, 0) == 3);
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE(send(pair.client, "de", 2, 0) == 2);
  REQUIRE((PollOne(pair.server, POLLPRI) & POLLPRI) != 0);
  int n = 0;
  REQUIRE(Eventually([&] { return ioctl(pair.server, FIONREAD, &n) == 0 && n >= 3; }));
  int mark = -1;
  REQUIRE(ioctl(pair.server, SIOCATMARK, &mark) == 0);
  REQUIRE(mark == 0);
  char room[10];
  REQUIRE(recv(pair.server, room, sizeof(room), 0) == 3);
  REQUIRE(ioctl(pair.server, SIOCATMARK, &mark) == 0);
  REQUIRE(mark == 1);
  REQUIRE(ReceiveExactly(pair.server, 3) == "!de");
}

}  // namespace
}  // namespace posix_test
