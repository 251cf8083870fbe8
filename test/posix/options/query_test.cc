// What a socket tells of itself beside its options' values: TCP_INFO, queues, names, errors; and options that
// act.
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>

#include "test/posix/links.h"
#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

// netinet/tcp.h, which names them, cannot stand beside linux/tcp.h, which knows all of tcp_info.
enum {
  kEstablished = 1,
  kSynSent,
  kSynReceived,
  kFinWait1,
  kFinWait2,
  kTimeWait,
  kClosed,
  kCloseWait,
  kLastAck,
  kListening
};

tcp_info Info(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  REQUIRE(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
  REQUIRE(length > offsetof(tcp_info, tcpi_bytes_received));
  return info;
}

TEST_CASE("queries: TCP_INFO of a connection") {
  Pair pair = MakePair();
  tcp_info info = Info(pair.client);
  REQUIRE(info.tcpi_state == kEstablished);
  REQUIRE(info.tcpi_snd_mss > 0);
  REQUIRE(info.tcpi_snd_cwnd > 0);
  const std::string data = Pattern(100'000);
  auto sender = Async([&] { return SendAll(pair.client, data); });
  REQUIRE(ReceiveExactly(pair.server, data.size()) == data);
  REQUIRE(Get(sender));
  REQUIRE(SendAll(pair.server, "answer"));
  REQUIRE(ReceiveExactly(pair.client, 6) == "answer");
  REQUIRE(Eventually([&] { return Info(pair.client).tcpi_bytes_acked >= data.size(); }));
  info = Info(pair.client);
  REQUIRE(info.tcpi_bytes_acked <= data.size() + 1);  // TCP counts its SYN
  REQUIRE(info.tcpi_bytes_received == 6);
  REQUIRE(info.tcpi_bytes_sent >= data.size());
  REQUIRE(info.tcpi_notsent_bytes == 0);
  REQUIRE(info.tcpi_rtt > 0);
  REQUIRE(Eventually([&] { return Info(pair.client).tcpi_unacked == 0; }));
  info = Info(pair.server);
  REQUIRE(info.tcpi_bytes_received == data.size());
  REQUIRE(Eventually([&] { return Info(pair.server).tcpi_bytes_acked >= 6; }));
  REQUIRE(Info(pair.server).tcpi_bytes_acked <= 7);
}

TEST_CASE("queries: TCP_INFO follows the states") {
  Listener listener = Listen();
  Fd fresh = TcpSocket();
  REQUIRE(Info(fresh).tcpi_state == kClosed);
  REQUIRE(Info(listener.fd).tcpi_state == kListening);
  Pair pair = ConnectTo(listener);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  REQUIRE(Info(pair.server).tcpi_state == kCloseWait);
  REQUIRE(Eventually([&] { return Info(pair.client).tcpi_state == kFinWait2; }));
  REQUIRE(shutdown(pair.server, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.client, POLLRDHUP));
  REQUIRE(Eventually(
      [&] { return Info(pair.server).tcpi_state == kClosed && Info(pair.client).tcpi_state == kClosed; }));
}

TEST_CASE("queries: TCP_INFO counts who waits in a listener's queue") {
  Listener listener = Listen(AF_INET, 5);
  REQUIRE(Info(listener.fd).tcpi_sacked == 5);
  Fd one = TcpSocket();
  Fd two = TcpSocket();
  REQUIRE(connect(one, listener.address.get(), listener.address.length) == 0);
  REQUIRE(connect(two, listener.address.get(), listener.address.length) == 0);
  REQUIRE(Eventually([&] { return Info(listener.fd).tcpi_unacked == 2; }));
}

TEST_CASE("queries: TCP_INFO is cut to the room there is") {
  Pair pair = MakePair();
  for (const socklen_t room : {0u, 1u, 8u, 104u}) {
    char bytes[256];
    memset(bytes, 0x55, sizeof bytes);
    socklen_t length = room;
    REQUIRE(getsockopt(pair.client, IPPROTO_TCP, TCP_INFO, bytes, &length) == 0);
    REQUIRE(length == room);
    REQUIRE(bytes[room] == 0x55);
    if (room > 0) REQUIRE(bytes[0] == kEstablished);
  }
  char byte;
  socklen_t negative = static_cast<socklen_t>(-1);
  REQUIRE_ERRNO(getsockopt(pair.client, IPPROTO_TCP, TCP_INFO, &byte, &negative), EINVAL);
}

TEST_CASE("queries: the state while a connection is being made", "[plain]") {
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  Address nowhere = Loopback(AF_INET, 9);
  reinterpret_cast<sockaddr_in&>(nowhere.storage).sin_addr.s_addr =
      htonl(0xc0000201);  // 192.0.2.1: nobody has it
  const int result = connect(client, nowhere.get(), nowhere.length);
  if (result != -1 || errno != EINPROGRESS)
    return sdp::test::Skipped(std::string("no route that swallows packets: ") + strerror(errno));
  const int state = Info(client).tcpi_state;
  if (state == kClosed) return sdp::test::Skipped("this host's network answers for 192.0.2.1");
  REQUIRE(state == kSynSent);
}

TEST_CASE("queries: a connection's queues") {
  Pair pair = MakePair();
  int count = -1;
  REQUIRE(ioctl(pair.client, SIOCOUTQ, &count) == 0);
  REQUIRE(count == 0);
  REQUIRE(ioctl(pair.client, SIOCOUTQNSD, &count) == 0);
  REQUIRE(count == 0);
  REQUIRE(SendAll(pair.client, "twelve bytes"));
  REQUIRE(Eventually([&] { return ioctl(pair.server, SIOCINQ, &count) == 0 && count == 12; }));
  REQUIRE_ERRNO(ioctl(pair.server, SIOCINQ, nullptr), EFAULT);
  REQUIRE_ERRNO(ioctl(pair.server, SIOCOUTQ, nullptr), EFAULT);
  REQUIRE_ERRNO(ioctl(pair.server, SIOCATMARK, nullptr), EFAULT);
  REQUIRE_ERRNO(ioctl(pair.server, FIONBIO, nullptr), EFAULT);
  SetNonblocking(pair.client);
  const size_t filled = Fill(pair.client);
  REQUIRE(ioctl(pair.client, SIOCOUTQ, &count) == 0);
  REQUIRE(count > 0);
  REQUIRE(static_cast<size_t>(count) < 2 * filled);
  int unsent = -1;
  REQUIRE(ioctl(pair.client, SIOCOUTQNSD, &unsent) == 0);
  REQUIRE(unsent <= count);
}

TEST_CASE("queries: queues of sockets without a connection", "[unconnected]") {
  Listener listener = Listen();
  Fd fresh = TcpSocket();
  int count = -1;
  REQUIRE_ERRNO(ioctl(listener.fd, SIOCINQ, &count), EINVAL);
  REQUIRE_ERRNO(ioctl(listener.fd, SIOCOUTQ, &count), EINVAL);
  REQUIRE(ioctl(fresh, SIOCOUTQ, &count) == 0);
  REQUIRE(count == 0);
}

TEST_CASE("queries: who the peer is") {
  Pair pair = MakePair();
  ucred credentials{};
  socklen_t length = sizeof credentials;
  // TCP has none, and says so without an error.
  REQUIRE(getsockopt(pair.server, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0);
  REQUIRE(credentials.pid == 0);
  REQUIRE(credentials.uid == static_cast<uid_t>(-1));
  sockaddr_in peer{};
  length = sizeof peer;
  REQUIRE(getsockopt(pair.client, SOL_SOCKET, SO_PEERNAME, &peer, &length) == 0);
  REQUIRE(ntohs(peer.sin_port) == PeerOf(pair.client).port());
  char group[64];
  length = sizeof group;
  REQUIRE_ERRNO(getsockopt(pair.client, SOL_SOCKET, 59 /* SO_PEERGROUPS */, group, &length), ENODATA);
}

TEST_CASE("queries: SO_ERROR is told once and read in every length", "[abort]") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 0);
  const linger reset{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
  pair.server.reset();
  REQUIRE(WaitFor(pair.client, POLLERR));
  int error = -1;
  socklen_t length = 2;
  REQUIRE(getsockopt(pair.client, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
  REQUIRE(length == 2);
  REQUIRE((error & 0xffff) == ECONNRESET);
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_ERROR) == 0);
  char byte;
  REQUIRE(recv(pair.client, &byte, 1, 0) == 0);
}

// What one receive gets that does not wait, once there is something.
std::string ReceiveNow(int fd) {
  char data[64];
  ssize_t got = -1;
  REQUIRE(Eventually([&] { return (got = recv(fd, data, sizeof data, MSG_DONTWAIT)) > 0; }));
  return {data, static_cast<size_t>(got)};
}

TEST_CASE("queries: a low-water mark holds back poll, select, epoll and recv") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 10);
  Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLIN, .data = {.fd = pair.server}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(SendAll(pair.client, "123456789"));
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE(epoll_wait(set, &event, 1, 0) == 0);
  REQUIRE(ReceiveNow(pair.server) == "123456789");
  auto blocked = Async([&] {
    char data[64];
    return recv(pair.server, data, sizeof data, 0);
  });
  REQUIRE(StillRunning(blocked));
  REQUIRE(SendAll(pair.client, "123456789"));
  REQUIRE(StillRunning(blocked));
  REQUIRE(SendAll(pair.client, "0"));
  REQUIRE(Get(blocked) == 10);
  REQUIRE(SendAll(pair.client, "abcdefghij"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
  REQUIRE(ReceiveExactly(pair.server, 10) == "abcdefghij");
  // Less than that is for who does not wait, and for who asks for less.
  REQUIRE(SendAll(pair.client, "xyz"));
  REQUIRE(ReceiveNow(pair.server) == "xyz");
  REQUIRE(SendAll(pair.client, "xyz"));
  char data[64];
  REQUIRE(recv(pair.server, data, 3, 0) == 3);
}

TEST_CASE("queries: a lowered low-water mark lets what waits be seen") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 100);
  REQUIRE(SendAll(pair.client, "some"));
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  auto waiting = Async([&] { return PollOne(pair.server, POLLIN); });
  REQUIRE(StillRunning(waiting));
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 1);
  REQUIRE(Get(waiting) == POLLIN);
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 100);
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  pair.client.reset();  // the end is worth being seen
  REQUIRE(WaitFor(pair.server, POLLIN));
}

TEST_CASE("queries: no low-water mark stops a stream") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 0x7fffffff);
  const std::string data = Pattern(8 << 20);
  auto sender = Async([&] {
    const bool sent = SendAll(pair.client, data);
    pair.client.reset();
    return sent;
  });
  REQUIRE(ReceiveToEnd(pair.server) == data);
  REQUIRE(Get(sender));
}

TEST_CASE("queries: TCP_USER_TIMEOUT ends what a peer does not take", "[abort]") {
  if (OnLocalLinks())
    return sdp::test::Skipped("on a local link the kernel sees no bytes (docs/differences.md)");
  Pair pair = MakePair();
  SetOption(pair.client, IPPROTO_TCP, 18 /* TCP_USER_TIMEOUT */, 300);
  SetNonblocking(pair.client);
  const std::string block = Pattern(16 * 1024);
  int error = 0;
  REQUIRE(Eventually([&] {
    while (send(pair.client, block.data(), block.size(), MSG_NOSIGNAL) > 0) {
    }
    if (errno != EAGAIN) {
      error = errno;
    } else if ((PollOne(pair.client, POLLOUT) & POLLERR) != 0) {
      error = GetOption(pair.client, SOL_SOCKET, SO_ERROR);
    }
    return error != 0;
  }));
  REQUIRE(error == ETIMEDOUT);
}

TEST_CASE("queries: a socket bound to a device") {
  Listener listener{TcpSocket(), Loopback(AF_INET)};
  const char device[] = "lo";
  if (setsockopt(listener.fd, SOL_SOCKET, SO_BINDTODEVICE, device, sizeof device) != 0)
    return sdp::test::Skipped(std::string("SO_BINDTODEVICE: ") + strerror(errno));
  REQUIRE(bind(listener.fd, listener.address.get(), listener.address.length) == 0);
  REQUIRE(listen(listener.fd, 8) == 0);
  listener.address = LocalOf(listener.fd);
  Fd client = TcpSocket();
  REQUIRE(setsockopt(client, SOL_SOCKET, SO_BINDTODEVICE, device, sizeof device) == 0);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  for (const int fd : {client.get(), server.get(), listener.fd.get()}) {
    char name[IFNAMSIZ] = {};
    socklen_t length = sizeof name;
    REQUIRE(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == 0);
    REQUIRE(std::string(name) == "lo");
  }
  REQUIRE(SendAll(client, "by lo"));
  REQUIRE(ReceiveExactly(server, 5) == "by lo");
}

TEST_CASE("queries: TCP_ZEROCOPY_RECEIVE says what is to be read") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "too small for a page"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  tcp_zerocopy_receive request{};
  request.length = 4096;
  socklen_t length = offsetof(tcp_zerocopy_receive, copybuf_address);
  void* const window = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, pair.server, 0);
  if (window == MAP_FAILED)
    return sdp::test::Skipped(std::string("streams cannot be mapped here: ") + strerror(errno));
  request.address = reinterpret_cast<uint64_t>(window);
  const int result = getsockopt(pair.server, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &request, &length);
  if (result == 0) {
    REQUIRE(request.length == 0);
    REQUIRE(request.recv_skip_hint == 20);
  }
  munmap(window, 4096);
  REQUIRE(ReceiveExactly(pair.server, 20) == "too small for a page");
}

TEST_CASE("queries: linger is remembered as TCP remembers it") {
  Pair pair = MakePair();
  const auto set = [&](int on, int seconds) {
    const linger value{.l_onoff = on, .l_linger = seconds};
    REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &value, sizeof value) == 0);
  };
  const auto get = [&] {
    linger value{};
    socklen_t length = sizeof value;
    REQUIRE(getsockopt(pair.client, SOL_SOCKET, SO_LINGER, &value, &length) == 0);
    REQUIRE(length == sizeof value);
    return std::pair(value.l_onoff, value.l_linger);
  };
  REQUIRE(get() == std::pair(0, 0));
  set(7, 5);
  REQUIRE(get() == std::pair(1, 5));
  set(0, 9);
  REQUIRE(get() == std::pair(0, 5));
  set(1, -1);
  REQUIRE(get().first == 1);
}

TEST_CASE("queries: a negative linger time waits like a long one") {
  Pair pair = MakePair();
  const linger value{.l_onoff = 1, .l_linger = -1};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &value, sizeof value) == 0);
  const std::string data = Pattern(3 << 20);
  auto closer = Async([&] {
    const bool sent = SendAll(pair.client, data);
    pair.client.reset();
    return sent;
  });
  REQUIRE(ReceiveToEnd(pair.server) == data);
  REQUIRE(Get(closer));
}

}  // namespace
}  // namespace posix_test
