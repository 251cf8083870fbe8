// SO_SNDBUF and SO_RCVBUF: what a program that has set them may say to a peer that does not listen, and that
// everything arrives all the same.
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

#include <algorithm>

#include "test/posix/support.h"

namespace posix_test {
namespace {

constexpr int kSmall = 4096;
// TCP counts whole pages and packets: more than was asked for, and much less than this.
constexpr size_t kBounded = 256 * 1024;

// The accepting end has a small receive buffer, the connecting end a small send buffer.
Pair SmallPair(int send = kSmall, int receive = kSmall) {
  Listener listener = Listen();
  SetOption(listener.fd, SOL_SOCKET, SO_RCVBUF, receive);
  Fd client = TcpSocket();
  SetOption(client, SOL_SOCKET, SO_SNDBUF, send);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  return {std::move(client), std::move(server)};
}

// As much as goes, with a peer that looks and does not read.
size_t FillTowards(int from, int to) {
  size_t taken = 0;
  for (int quiet = 0; quiet < 3;) {
    const size_t more = Fill(from);
    taken += more;
    quiet = more == 0 ? quiet + 1 : 0;
    int waiting = 0;
    REQUIRE(ioctl(to, FIONREAD, &waiting) == 0);
    PollOne(from, POLLOUT, kQuietMs);
  }
  return taken;
}

TEST_CASE("buffers: small ones bound what a peer that does not read is sent") {
  Pair pair = SmallPair();
  SetNonblocking(pair.client);
  size_t taken = FillTowards(pair.client, pair.server);
  REQUIRE(taken >= 1);
  char c = 'x';
  REQUIRE(Eventually([&] {
    taken += Fill(pair.client);
    if (send(pair.client, &c, 1, 0) == 1) ++taken;
    return send(pair.client, &c, 0, 0) == 0 && PollOne(pair.client, POLLOUT, 0) == 0;
  }));
  REQUIRE(taken < kBounded);
  // What the reader takes makes room again.
  REQUIRE(ReceiveExactly(pair.server, taken).size() == taken);
  REQUIRE(WaitFor(pair.client, POLLOUT));
  REQUIRE(send(pair.client, &c, 1, 0) == 1);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
}

// Two that write to each other in pieces of 8 KiB before they read (socat) count on that.
TEST_CASE("buffers: small ones hold as much as was asked for at both ends") {
  constexpr std::pair<int, int> kSizes[] = {{5000, 8000}, {8000, 5000}, {20'000, 20'000}};
  const auto [send_size, receive_size] = kSizes[GENERATE(0, 1, 2)];
  Pair pair = SmallPair(send_size, receive_size);
  SetNonblocking(pair.client);
  const std::string piece(1000, 'x');
  size_t taken = 0;
  const size_t asked = static_cast<size_t>(send_size) + static_cast<size_t>(receive_size);
  REQUIRE(Eventually([&] {
    const ssize_t n = send(pair.client, piece.data(), piece.size(), 0);
    if (n > 0) taken += static_cast<size_t>(n);
    return taken >= asked;
  }));
  REQUIRE(ReceiveExactly(pair.server, taken).size() == taken);
}

TEST_CASE("buffers: a send buffer made small on an open connection bounds what is sent") {
  Listener listener = Listen();
  SetOption(listener.fd, SOL_SOCKET, SO_RCVBUF, kSmall);
  Pair pair = ConnectTo(listener);
  SetOption(pair.client, SOL_SOCKET, SO_SNDBUF, kSmall);
  SetNonblocking(pair.client);
  REQUIRE(FillTowards(pair.client, pair.server) < kBounded);
}

TEST_CASE(
    "buffers: the accepting end with a listener's small send buffer, the connecting end with a small receive "
    "buffer") {
  Listener listener = Listen();
  SetOption(listener.fd, SOL_SOCKET, SO_SNDBUF, kSmall);
  Fd client = TcpSocket();
  SetOption(client, SOL_SOCKET, SO_RCVBUF, kSmall);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  SetNonblocking(server);
  const size_t taken = FillTowards(server, client);
  REQUIRE(taken < kBounded);
  REQUIRE(ReceiveExactly(client, taken).size() == taken);
}

TEST_CASE("buffers: a blocking send of much waits for its reader") {
  const size_t size = GENERATE(400'000u, 2'000'000u);
  Pair pair = SmallPair();
  const std::string data = Pattern(size);
  auto sender = Async([&] { return send(pair.client, data.data(), data.size(), 0); });
  REQUIRE(StillRunning(sender, 3 * kQuietMs));
  REQUIRE(Hash(ReceiveExactly(pair.server, size)) == Hash(data));
  REQUIRE(Get(sender) == static_cast<ssize_t>(size));
}

TEST_CASE("buffers: a blocking send that times out says how much has left, and that is little") {
  Pair pair = SmallPair();
  SetTimeout(pair.client, SO_SNDTIMEO, 200);
  const std::string data = Pattern(100'000);
  size_t sent = 0;
  for (int i = 0; i < 100; ++i) {
    const ssize_t n = send(pair.client, data.data() + sent % 50'000, 50'000, 0);
    if (n < 0) break;
    sent += static_cast<size_t>(n);
    if (n < 50'000) break;
  }
  REQUIRE(sent < kBounded);
  auto reader = Async([&] { return ReceiveExactly(pair.server, sent).size(); });
  REQUIRE(Get(reader) == sent);
}

TEST_CASE("buffers: sendfile on a non-blocking socket stops when the buffer is full") {
  Fd file(memfd_create("data", MFD_CLOEXEC));
  const std::string data = Pattern(1 << 20);
  REQUIRE(write(file, data.data(), data.size()) == static_cast<ssize_t>(data.size()));
  Pair pair = SmallPair();
  SetNonblocking(pair.client);
  off_t offset = 0;
  for (int i = 0; i < 1000 && offset < (1 << 20); ++i) {
    if (sendfile(pair.client, file, &offset, data.size()) < 0 && PollOne(pair.client, POLLOUT, 20) == 0)
      break;
  }
  REQUIRE(offset > 0);
  REQUIRE(static_cast<size_t>(offset) < kBounded);
  auto reader = Async([&] { return Hash(ReceiveExactly(pair.server, data.size())); });
  while (offset < (1 << 20)) {
    REQUIRE(WaitFor(pair.client, POLLOUT));
    if (sendfile(pair.client, file, &offset, data.size()) < 0) REQUIRE(errno == EAGAIN);
  }
  REQUIRE(Get(reader) == Hash(data));
}

TEST_CASE("buffers: an edge-triggered writer hears of room each time it has found none") {
  Pair pair = SmallPair();
  SetNonblocking(pair.client);
  const std::string data = Pattern(1'000'000);
  auto reader = Async([&] { return Hash(ReceiveExactly(pair.server, data.size())); });
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLOUT | EPOLLET, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.client, &event) == 0);
  size_t sent = 0;
  while (sent < data.size()) {
    REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
    for (;;) {
      const ssize_t n = send(pair.client, data.data() + sent, data.size() - sent, 0);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
      if (sent == data.size()) break;
    }
  }
  REQUIRE(Get(reader) == Hash(data));
}

TEST_CASE("buffers: streams in both directions through buffers of every size") {
  const int send = GENERATE(1, 6000, 70'000);
  const int receive = GENERATE(4096, 66'000);
  Listener listener = Listen();
  SetOption(listener.fd, SOL_SOCKET, SO_RCVBUF, receive);
  SetOption(listener.fd, SOL_SOCKET, SO_SNDBUF, send);
  Fd client = TcpSocket();
  SetOption(client, SOL_SOCKET, SO_SNDBUF, send);
  SetOption(client, SOL_SOCKET, SO_RCVBUF, receive);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  // TCP itself is slow where a window holds hardly a packet.
  const size_t size = std::min(send, receive) < 5000 ? 10'000 : 600'000;
  const std::string up = Pattern(size, 5), down = Pattern(size - 1000, 6);
  auto first = Async([&] { return SendAll(client, up) && shutdown(client, SHUT_WR) == 0; });
  auto second = Async([&] { return SendAll(server, down) && shutdown(server, SHUT_WR) == 0; });
  auto third = Async([&] { return Hash(ReceiveToEnd(server)); });
  REQUIRE(Hash(ReceiveToEnd(client)) == Hash(down));
  REQUIRE(Get(third) == Hash(up));
  REQUIRE(Get(first));
  REQUIRE(Get(second));
}

TEST_CASE("buffers: a low-water mark, MSG_WAITALL and MSG_PEEK of more than a small receive buffer holds") {
  Pair pair = SmallPair(100'000);
  const std::string data = Pattern(60'000);
  auto sender = Async([&] { return SendAll(pair.client, data); });
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 50'000);
  REQUIRE(WaitFor(pair.server, POLLIN));
  std::string got(data.size(), '\0');
  REQUIRE(recv(pair.server, got.data(), 1000, MSG_PEEK) > 0);
  REQUIRE(recv(pair.server, got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(got.size()));
  REQUIRE(Hash(got) == Hash(data));
  REQUIRE(Get(sender));
}

}  // namespace
}  // namespace posix_test
