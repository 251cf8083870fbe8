// Sockets of family 27, by which programs of old ask for SDP. The kernel knows no streams there: on TCP there
// is nothing to compare with.
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

constexpr int kFamilySdp = 27;
constexpr int kLevelSdp = 1025;

int Native(int flags = 0, int protocol = 0) { return socket(kFamilySdp, SOCK_STREAM | flags, protocol); }

// False, said once, where nothing serves the family.
bool Served() {
  Fd fd(Native());
  if (fd >= 0) return true;
  REQUIRE(errno == EAFNOSUPPORT);
  sdp::test::Skipped("nothing serves AF_INET_SDP here");
  return false;
}

Listener NativeListener(int family_of_address) {
  Listener listener{Fd(Native()), {}};
  REQUIRE(listener.fd >= 0);
  Address address = Loopback(AF_INET);
  address.storage.ss_family = static_cast<sa_family_t>(family_of_address);
  REQUIRE(bind(listener.fd, address.get(), address.length) == 0);
  REQUIRE(listen(listener.fd, 8) == 0);
  listener.address = LocalOf(listener.fd);
  REQUIRE(listener.address.storage.ss_family == AF_INET);
  return listener;
}

TEST_CASE("AF_INET_SDP: addresses of either family lead to a connection", "[native]") {
  if (!Served()) return;
  const int server_family = GENERATE(AF_INET, kFamilySdp);
  const int client_family = GENERATE(AF_INET, kFamilySdp);
  const int flags = GENERATE(0, SOCK_CLOEXEC);
  Listener listener = NativeListener(server_family);
  Fd client(Native(flags, IPPROTO_TCP));
  REQUIRE(((fcntl(client, F_GETFD) & FD_CLOEXEC) != 0) == (flags != 0));
  Address target = listener.address;
  target.storage.ss_family = static_cast<sa_family_t>(client_family);
  REQUIRE(connect(client, target.get(), target.length) == 0);
  Address from;
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, from.get(), &from.length));
  REQUIRE(server >= 0);
  REQUIRE(from.storage.ss_family == AF_INET);
  REQUIRE(from.ToString() == LocalOf(client).ToString());
  REQUIRE(PeerOf(client).ToString() == listener.address.ToString());
  for (const int fd : {client.get(), server.get(), listener.fd.get()}) {
    REQUIRE(GetOption(fd, SOL_SOCKET, SO_DOMAIN) == kFamilySdp);
    REQUIRE(GetOption(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
  }
  const std::string data = Pattern(300'000);
  auto sender = Async([&] { return SendAll(client, data); });
  REQUIRE(ReceiveExactly(server, data.size()) == data);
  REQUIRE(Get(sender));
}

TEST_CASE("AF_INET_SDP: an ordinary client reaches a native server, and the reverse", "[native]") {
  if (!Served()) return;
  {
    Listener listener = NativeListener(kFamilySdp);
    Pair pair = ConnectTo(listener);
    REQUIRE(SendAll(pair.client, "ordinary"));
    REQUIRE(ReceiveExactly(pair.server, 8) == "ordinary");
  }
  Listener listener = Listen();
  Fd client(Native());
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(client, "native"));
  REQUIRE(ReceiveExactly(server, 6) == "native");
  REQUIRE(GetOption(server, SOL_SOCKET, SO_DOMAIN) == AF_INET);
}

TEST_CASE("AF_INET_SDP: without blocking, by epoll", "[native]") {
  if (!Served()) return;
  Listener listener = NativeListener(AF_INET);
  SetNonblocking(listener.fd);
  Fd client(Native(SOCK_NONBLOCK));
  const int result = connect(client, listener.address.get(), listener.address.length);
  REQUIRE((result == 0 || errno == EINPROGRESS));
  Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLOUT, .data = {.fd = client}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, client, &event) == 0);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.events == EPOLLOUT);
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
}

TEST_CASE("AF_INET_SDP: it never falls back", "[refused][native]") {
  if (!Served()) return;
  Fd client(Native());
  // A TCP listener that no port mapper knows of: the bare call keeps the library out.
  Fd fd(static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0)));
  Address address = Loopback(AF_INET);
  REQUIRE(bind(fd, address.get(), address.length) == 0);
  REQUIRE(listen(fd, 4) == 0);
  address = LocalOf(fd);
  REQUIRE_ERRNO(connect(client, address.get(), address.length), ECONNREFUSED);
  Fd ordinary = TcpSocket();
  REQUIRE(connect(ordinary, address.get(), address.length) == 0);
}

TEST_CASE("AF_INET_SDP: the options it has always had", "[native]") {
  if (!Served()) return;
  Listener listener = NativeListener(AF_INET);
  Fd client(Native());
  SetOption(client, kLevelSdp, 80 /* SDP_ZCOPY_THRESH */, 65536);
  REQUIRE(GetOption(client, kLevelSdp, 80) == 65536);
  REQUIRE(GetOption(client, IPPROTO_TCP, 80) == 65536);
  int value = 10;
  REQUIRE_ERRNO(setsockopt(client, kLevelSdp, 80, &value, sizeof value), EINVAL);
  REQUIRE_ERRNO(setsockopt(client, kLevelSdp, 80, &value, 2), EINVAL);
  REQUIRE(GetOption(client, kLevelSdp, 81 /* SDP_LAST_BIND_ERR */) == 0);
  SetOption(client, kLevelSdp, 1 /* TCP_NODELAY */, 1);
  REQUIRE(GetOption(client, IPPROTO_TCP, 1) == 1);
  SetOption(client, kLevelSdp, 4 /* TCP_KEEPIDLE */, 77);
  REQUIRE(GetOption(client, IPPROTO_TCP, 4) == 77);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  for (const int threshold : {0, 1024, 1 << 20}) {
    SetOption(client, kLevelSdp, 80, threshold);
    const std::string data = Pattern(2 << 20);
    auto sender = Async([&] { return SendAll(client, data); });
    REQUIRE(ReceiveExactly(server, data.size()) == data);
    REQUIRE(Get(sender));
  }
  Fd ordinary = TcpSocket();
  REQUIRE_ERRNO(setsockopt(ordinary, kLevelSdp, 80, &value, sizeof value), ENOPROTOOPT);
}

TEST_CASE("AF_INET_SDP: over an ordinary socket, by dup2", "[plain][native]") {
  if (!Served()) return;
  Listener listener = NativeListener(AF_INET);
  Fd client = TcpSocket();
  {
    Fd native(Native());
    REQUIRE(dup2(native, client) == client);
  }
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(client, "moved"));
  REQUIRE(ReceiveExactly(server, 5) == "moved");
  REQUIRE(GetOption(client, SOL_SOCKET, SO_DOMAIN) == kFamilySdp);
}

TEST_CASE("AF_INET_SDP: what is no stream stays the kernel's", "[plain]") {
  REQUIRE(socket(kFamilySdp, SOCK_DGRAM, 0) == -1);
  REQUIRE(socket(kFamilySdp, SOCK_STREAM, IPPROTO_UDP) == -1);
  Fd ordinary = TcpSocket();
  Address address = Loopback(AF_INET, 9);
  address.storage.ss_family = kFamilySdp;
  REQUIRE_ERRNO(bind(ordinary, address.get(), address.length), EAFNOSUPPORT);
  REQUIRE_ERRNO(connect(ordinary, address.get(), address.length), EAFNOSUPPORT);
}

}  // namespace
}  // namespace posix_test
