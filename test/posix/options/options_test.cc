// What socket() and the options of a descriptor say: types, modes, names, families.
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "test/posix/support.h"

namespace posix_test {
namespace {

TEST_CASE("options: socket types with flags are stream sockets", "[unconnected]") {
  const int flags = GENERATE(0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC);
  const int family = GENERATE(AF_INET, AF_INET6);
  Fd fd = TcpSocket(family, flags);
  REQUIRE(GetOption(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
  REQUIRE(GetOption(fd, SOL_SOCKET, SO_DOMAIN) == family);
  REQUIRE(GetOption(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
  REQUIRE(IsNonblocking(fd) == ((flags & SOCK_NONBLOCK) != 0));
  REQUIRE(((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) == ((flags & SOCK_CLOEXEC) != 0));
  struct stat st;
  REQUIRE(fstat(fd, &st) == 0);
  REQUIRE(S_ISSOCK(st.st_mode));
}

TEST_CASE("options: accept4 sets its flags and accept inherits none") {
  Listener listener = Listen(AF_INET, 8, SOCK_NONBLOCK | SOCK_CLOEXEC);
  const int flags = GENERATE(-1, 0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC);
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(flags < 0 ? accept(listener.fd, nullptr, nullptr)
                      : accept4(listener.fd, nullptr, nullptr, flags));
  REQUIRE(server >= 0);
  const int expected = flags < 0 ? 0 : flags;
  REQUIRE(IsNonblocking(server) == ((expected & SOCK_NONBLOCK) != 0));
  REQUIRE(((fcntl(server, F_GETFD) & FD_CLOEXEC) != 0) == ((expected & SOCK_CLOEXEC) != 0));
  char c;
  if ((expected & SOCK_NONBLOCK) != 0) REQUIRE_ERRNO(recv(server, &c, 1, 0), EAGAIN);
}

TEST_CASE("options: accept4 with unknown flags is EINVAL", "[unconnected]") {
  Listener listener = Listen();
  REQUIRE_ERRNO(accept4(listener.fd, nullptr, nullptr, 1), EINVAL);
}

TEST_CASE("options: FIONBIO and F_SETFL set the same flag") {
  Pair pair = MakePair();
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    char c;
    int on = 1;
    REQUIRE(ioctl(fd, FIONBIO, &on) == 0);
    REQUIRE(IsNonblocking(fd));
    REQUIRE_ERRNO(recv(fd, &c, 1, 0), EAGAIN);
    SetNonblocking(fd, false);
    REQUIRE_FALSE(IsNonblocking(fd));
    SetNonblocking(fd, true);
    REQUIRE_ERRNO(read(fd, &c, 1), EAGAIN);
    int off = 0;
    REQUIRE(ioctl(fd, FIONBIO, &off) == 0);
    REQUIRE_FALSE(IsNonblocking(fd));
  }
  auto blocked = Async([&] {
    char c = 0;
    return recv(pair.server, &c, 1, 0) == 1 ? c : '?';
  });
  REQUIRE(StillRunning(blocked));
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(blocked) == 'x');
}

TEST_CASE("options: FIONBIO on a listener and on a new socket", "[unconnected]") {
  Listener listener = Listen();
  int on = 1;
  REQUIRE(ioctl(listener.fd, FIONBIO, &on) == 0);
  REQUIRE(IsNonblocking(listener.fd));
  REQUIRE_ERRNO(accept(listener.fd, nullptr, nullptr), EAGAIN);
  Fd fd = TcpSocket();
  REQUIRE(ioctl(fd, FIONBIO, &on) == 0);
  REQUIRE(IsNonblocking(fd));
  int off = 0;
  REQUIRE(ioctl(fd, FIONBIO, &off) == 0);
  REQUIRE_FALSE(IsNonblocking(fd));
}

TEST_CASE("options: the mode belongs to all duplicates") {
  Pair pair = MakePair();
  Fd copy(dup(pair.server));
  SetNonblocking(pair.server);
  REQUIRE(IsNonblocking(copy));
  char c;
  REQUIRE_ERRNO(recv(copy, &c, 1, 0), EAGAIN);
  SetNonblocking(copy, false);
  REQUIRE_FALSE(IsNonblocking(pair.server));
}

TEST_CASE("options: close-on-exec belongs to one number") {
  Pair pair = MakePair();
  REQUIRE(fcntl(pair.server, F_SETFD, FD_CLOEXEC) == 0);
  Fd plain(fcntl(pair.server, F_DUPFD, 0));
  Fd cloexec(fcntl(pair.server, F_DUPFD_CLOEXEC, 0));
  REQUIRE((fcntl(plain, F_GETFD) & FD_CLOEXEC) == 0);
  REQUIRE((fcntl(cloexec, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("options: names on both ends are the conventional ones") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Listener listener = Listen(family);
  Fd client = TcpSocket(family);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Address reported;
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, reported.get(), &reported.length));
  REQUIRE(server >= 0);
  REQUIRE(PeerOf(client).ToString() == listener.address.ToString());
  REQUIRE(LocalOf(server).ToString() == listener.address.ToString());
  REQUIRE(LocalOf(client).ToString() == PeerOf(server).ToString());
  REQUIRE(reported.ToString() == PeerOf(server).ToString());
  REQUIRE(LocalOf(client).ToString() == Loopback(family, LocalOf(client).port()).ToString());
  REQUIRE(reported.length == (family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
}

TEST_CASE("options: a name is cut to the room given") {
  Pair pair = MakePair();
  char room[64];
  memset(room, 0x55, sizeof(room));
  socklen_t length = 4;
  REQUIRE(getpeername(pair.client, reinterpret_cast<sockaddr*>(room), &length) == 0);
  REQUIRE(length == sizeof(sockaddr_in));
  REQUIRE(room[4] == 0x55);
}

TEST_CASE("options: a bound client keeps its port") {
  Listener listener = Listen();
  Fd client = TcpSocket();
  Address local = Loopback(AF_INET);
  REQUIRE(bind(client, local.get(), local.length) == 0);
  const std::string name = LocalOf(client).ToString();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(LocalOf(client).ToString() == name);
  Address reported;
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, reported.get(), &reported.length));
  REQUIRE(reported.ToString() == name);
}

TEST_CASE("options: an IPv4 client of a dual-stack listener is v4-mapped") {
  Fd fd = TcpSocket(AF_INET6);
  SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  Address any = Any(AF_INET6);
  REQUIRE(bind(fd, any.get(), any.length) == 0);
  REQUIRE(listen(fd, 8) == 0);
  const uint16_t port = LocalOf(fd).port();
  for (const int family : {AF_INET, AF_INET6}) {
    Fd client = TcpSocket(family);
    Address target = Loopback(family, port);
    REQUIRE(connect(client, target.get(), target.length) == 0);
    Address peer;
    REQUIRE(WaitFor(fd, POLLIN));
    Fd server(accept(fd, peer.get(), &peer.length));
    REQUIRE(server >= 0);
    const std::string host = family == AF_INET ? "[::ffff:127.0.0.1]:" : "[::1]:";
    REQUIRE(peer.ToString() == host + std::to_string(LocalOf(client).port()));
    REQUIRE(LocalOf(server).ToString() == host + std::to_string(port));
    REQUIRE(SendAll(client, "dual"));
    REQUIRE(ReceiveExactly(server, 4) == "dual");
  }
}

TEST_CASE("options: an IPv6 socket connects to a v4-mapped address") {
  Listener listener = Listen();
  Address mapped = Loopback(AF_INET6, listener.address.port());
  auto& in6 = reinterpret_cast<sockaddr_in6&>(mapped.storage);
  REQUIRE(inet_pton(AF_INET6, "::ffff:127.0.0.1", &in6.sin6_addr) == 1);
  Fd client = TcpSocket(AF_INET6);
  REQUIRE(connect(client, mapped.get(), mapped.length) == 0);
  Address peer;
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, peer.get(), &peer.length));
  REQUIRE(PeerOf(client).ToString() == "[::ffff:127.0.0.1]:" + std::to_string(listener.address.port()));
  REQUIRE(LocalOf(client).ToString() == "[::ffff:127.0.0.1]:" + std::to_string(peer.port()));
  REQUIRE(peer.ToString() == "127.0.0.1:" + std::to_string(LocalOf(client).port()));
  REQUIRE(SendAll(server, "mapped"));
  REQUIRE(ReceiveExactly(client, 6) == "mapped");
}

TEST_CASE("options: an IPv6 socket that connects to a wildcard reaches this host") {
  struct Case {
    const char *bound, *target, *reached;
  };
  const Case c =
      GENERATE(Case{nullptr, "::", "[::1]:"}, Case{nullptr, "::ffff:0.0.0.0", "[::ffff:127.0.0.1]:"},
               Case{"::ffff:127.0.0.2", "::", "[::ffff:127.0.0.1]:"},
               Case{"::ffff:127.0.0.2", "::ffff:0.0.0.0", "[::ffff:127.0.0.2]:"});
  CAPTURE(c.bound, c.target);
  Fd fd = TcpSocket(AF_INET6);
  SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  Address any = Any(AF_INET6);
  REQUIRE(bind(fd, any.get(), any.length) == 0);
  REQUIRE(listen(fd, 8) == 0);
  const auto address_of = [](const char* text, uint16_t port) {
    Address address = Any(AF_INET6, port);
    REQUIRE(inet_pton(AF_INET6, text, &reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr) == 1);
    return address;
  };
  Fd client = TcpSocket(AF_INET6);
  if (c.bound != nullptr) {
    Address own = address_of(c.bound, 0);
    REQUIRE(bind(client, own.get(), own.length) == 0);
  }
  const uint16_t port = LocalOf(fd).port();
  Address target = address_of(c.target, port);
  REQUIRE(connect(client, target.get(), target.length) == 0);
  REQUIRE(PeerOf(client).ToString() == c.reached + std::to_string(port));
  REQUIRE(WaitFor(fd, POLLIN));
  Fd server(accept(fd, nullptr, nullptr));
  REQUIRE(LocalOf(server).ToString() == PeerOf(client).ToString());
  REQUIRE(SendAll(client, "here"));
  REQUIRE(ReceiveExactly(server, 4) == "here");
}

TEST_CASE("options: a listener on the wildcard is reached by either loopback address") {
  Fd fd = TcpSocket();
  Address any = Any(AF_INET);
  REQUIRE(bind(fd, any.get(), any.length) == 0);
  REQUIRE(listen(fd, 8) == 0);
  REQUIRE(LocalOf(fd).ToString() == "0.0.0.0:" + std::to_string(LocalOf(fd).port()));
  Address target = Loopback(AF_INET, LocalOf(fd).port());
  reinterpret_cast<sockaddr_in&>(target.storage).sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  Fd client = TcpSocket();
  REQUIRE(connect(client, target.get(), target.length) == 0);
  REQUIRE(WaitFor(fd, POLLIN));
  Fd server(accept(fd, nullptr, nullptr));
  REQUIRE(LocalOf(server).ToString() == target.ToString());
  REQUIRE(PeerOf(client).ToString() == target.ToString());
}

TEST_CASE("options: what TCP accepts is accepted and read back", "[options]") {
  Pair pair = MakePair();
  SetOption(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
  REQUIRE(GetOption(pair.client, IPPROTO_TCP, TCP_NODELAY) == 1);
  SetOption(pair.client, SOL_SOCKET, SO_KEEPALIVE, 1);
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_KEEPALIVE) == 1);
  SetOption(pair.client, IPPROTO_TCP, TCP_KEEPIDLE, 33);
  REQUIRE(GetOption(pair.client, IPPROTO_TCP, TCP_KEEPIDLE) == 33);
  SetOption(pair.client, SOL_SOCKET, SO_SNDBUF, 65536);
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_SNDBUF) >= 65536);
  SetOption(pair.client, SOL_SOCKET, SO_RCVBUF, 65536);
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_RCVBUF) >= 65536);
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_ERROR) == 0);
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_ACCEPTCONN) == 0);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
  int value = 1;
  REQUIRE_ERRNO(setsockopt(pair.client, IPPROTO_TCP, 9999, &value, sizeof(value)), ENOPROTOOPT);
  REQUIRE(SendAll(pair.client, "still here"));
  REQUIRE(ReceiveExactly(pair.server, 10) == "still here");
}

TEST_CASE("options: SO_ACCEPTCONN and SO_REUSEADDR of a listener") {
  Listener listener{TcpSocket(), Loopback(AF_INET)};
  SetOption(listener.fd, SOL_SOCKET, SO_REUSEADDR, 1);
  REQUIRE(bind(listener.fd, listener.address.get(), listener.address.length) == 0);
  REQUIRE(listen(listener.fd, 8) == 0);
  listener.address = LocalOf(listener.fd);
  REQUIRE(GetOption(listener.fd, SOL_SOCKET, SO_ACCEPTCONN) == 1);
  const Address address = listener.address;
  { Pair pair = ConnectTo(listener); }
  listener.fd.reset();
  Fd again = TcpSocket();
  SetOption(again, SOL_SOCKET, SO_REUSEADDR, 1);
  Address copy = address;
  REQUIRE(bind(again, copy.get(), copy.length) == 0);
  REQUIRE(listen(again, 8) == 0);
}

TEST_CASE("options: two listeners on one address is EADDRINUSE", "[unconnected]") {
  Listener listener = Listen();
  Fd second = TcpSocket();
  REQUIRE_ERRNO(bind(second, listener.address.get(), listener.address.length), EADDRINUSE);
}

TEST_CASE("options: SO_REUSEPORT listeners both accept") {
  Fd one = TcpSocket();
  Fd two = TcpSocket();
  SetOption(one, SOL_SOCKET, SO_REUSEPORT, 1);
  SetOption(two, SOL_SOCKET, SO_REUSEPORT, 1);
  Address address = Loopback(AF_INET);
  REQUIRE(bind(one, address.get(), address.length) == 0);
  address = LocalOf(one);
  REQUIRE(bind(two, address.get(), address.length) == 0);
  REQUIRE(listen(one, 64) == 0);
  REQUIRE(listen(two, 64) == 0);
  for (int i = 0; i < 20; ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, address.get(), address.length) == 0);
    pollfd fds[2] = {{one, POLLIN, 0}, {two, POLLIN, 0}};
    REQUIRE(poll(fds, 2, kPatienceMs) >= 1);
    Fd server(accept(fds[0].revents != 0 ? one.get() : two.get(), nullptr, nullptr));
    REQUIRE(server >= 0);
    REQUIRE(SendAll(server, "hello"));
    REQUIRE(ReceiveExactly(client, 5) == "hello");
  }
}

TEST_CASE("options: sockets that are not TCP are untouched", "[plain]") {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  Fd a(pair[0]), b(pair[1]);
  REQUIRE(SendAll(a, "unix"));
  REQUIRE(ReceiveExactly(b, 4) == "unix");

  Fd udp(socket(AF_INET, SOCK_DGRAM, 0)), udp2(socket(AF_INET, SOCK_DGRAM, 0));
  Address address = Loopback(AF_INET);
  REQUIRE(bind(udp, address.get(), address.length) == 0);
  Address target = LocalOf(udp);
  REQUIRE(sendto(udp2, "dgram", 5, 0, target.get(), target.length) == 5);
  char data[16];
  REQUIRE(WaitFor(udp, POLLIN));
  Address from;
  REQUIRE(recvfrom(udp, data, sizeof(data), 0, from.get(), &from.length) == 5);
  REQUIRE(from.storage.ss_family == AF_INET);
  REQUIRE(connect(udp2, target.get(), target.length) == 0);
  REQUIRE(send(udp2, "x", 1, 0) == 1);

  Fd raw_unix(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const std::string name = "posix-test-" + std::to_string(getpid());
  memcpy(un.sun_path + 1, name.data(), name.size());
  const auto un_length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(bind(raw_unix, reinterpret_cast<sockaddr*>(&un), un_length) == 0);
  REQUIRE(listen(raw_unix, 4) == 0);
  Fd unix_client(socket(AF_UNIX, SOCK_STREAM, 0));
  REQUIRE(connect(unix_client, reinterpret_cast<sockaddr*>(&un), un_length) == 0);
  Fd unix_server(accept4(raw_unix, nullptr, nullptr, SOCK_NONBLOCK));
  REQUIRE(IsNonblocking(unix_server));
}

TEST_CASE("options: errors of socket and of wrong descriptors", "[plain]") {
  REQUIRE_ERRNO(socket(AF_INET, 77, 0), EINVAL);
  REQUIRE_ERRNO(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
  Fd pipe_in, pipe_out;
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  pipe_in.reset(fds[0]);
  pipe_out.reset(fds[1]);
  char c = 0;
  REQUIRE_ERRNO(recv(pipe_in, &c, 1, 0), ENOTSOCK);
  REQUIRE_ERRNO(accept(pipe_in, nullptr, nullptr), ENOTSOCK);
  REQUIRE_ERRNO(send(-1, &c, 1, 0), EBADF);
  REQUIRE_ERRNO(close(-1), EBADF);
  REQUIRE_ERRNO(read(100000, &c, 1), EBADF);
  REQUIRE_ERRNO(fcntl(100000, F_GETFL), EBADF);
  Fd fresh = TcpSocket();
  REQUIRE_ERRNO(recv(fresh, &c, 1, 0), ENOTCONN);
  REQUIRE_ERRNO(send(fresh, &c, 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE_ERRNO(accept(fresh, nullptr, nullptr), EINVAL);
  REQUIRE_ERRNO(shutdown(fresh, SHUT_WR), ENOTCONN);
  Address address;
  REQUIRE_ERRNO(getpeername(fresh, address.get(), &address.length), ENOTCONN);
}

}  // namespace
}  // namespace posix_test
