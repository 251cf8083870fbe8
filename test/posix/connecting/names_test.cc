// Addresses and paths by which a socket is reached: several local addresses, scope ids, getaddrinfo, /dev/fd
// and /proc/self/fd.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include <memory>

#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

Address At(const char* address, uint16_t port = 0) {
  Address at = Loopback(AF_INET, port);
  REQUIRE(inet_pton(AF_INET, address, &reinterpret_cast<sockaddr_in&>(at.storage).sin_addr) == 1);
  return at;
}

Listener ListenAt(Address address) {
  Listener listener{TcpSocket(address.storage.ss_family), address};
  REQUIRE(bind(listener.fd, listener.address.get(), listener.address.length) == 0);
  REQUIRE(listen(listener.fd, 16) == 0);
  listener.address = LocalOf(listener.fd);
  return listener;
}

// One at each address, of the same port: one that nobody has at either.
std::pair<Listener, Listener> ListenAtBoth(const char* one, const char* other) {
  for (int attempt = 0;; ++attempt) {
    Listener first = ListenAt(At(one));
    Listener second{TcpSocket(), At(other, first.address.port())};
    const bool taken =
        bind(second.fd, second.address.get(), second.address.length) != 0 && errno == EADDRINUSE;
    if (taken && attempt < 20) continue;
    REQUIRE_FALSE(taken);
    REQUIRE(listen(second.fd, 16) == 0);
    second.address = LocalOf(second.fd);
    return {std::move(first), std::move(second)};
  }
}

TEST_CASE("names: one port at two addresses of the host is two listeners") {
  auto [first, second] = ListenAtBoth("127.0.0.1", "127.0.0.2");
  for (Listener* listener : {&first, &second, &first}) {
    Pair pair = ConnectTo(*listener);
    REQUIRE(PeerOf(pair.client).ToString() == listener->address.ToString());
    REQUIRE(LocalOf(pair.server).ToString() == listener->address.ToString());
    REQUIRE(SendAll(pair.client, "here"));
    REQUIRE(ReceiveExactly(pair.server, 4) == "here");
  }
}

TEST_CASE("names: a listener on 0.0.0.0 and one on :: tell by which address the client came", "[mixed]") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Listener listener = ListenAt(Any(family));
  for (const char* address : {"127.0.0.1", "127.0.0.2"}) {
    Address target = At(address, listener.address.port());
    Fd client = TcpSocket();
    REQUIRE(connect(client, target.get(), target.length) == 0);
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(server >= 0);
    const std::string mine =
        (family == AF_INET ? "" : "[::ffff:") + std::string(address) + (family == AF_INET ? ":" : "]:");
    REQUIRE(LocalOf(server).ToString() == mine + std::to_string(listener.address.port()));
    REQUIRE(PeerOf(client).ToString() == target.ToString());
    REQUIRE(SendAll(server, "welcome"));
    REQUIRE(ReceiveExactly(client, 7) == "welcome");
  }
}

TEST_CASE("names: a client bound to another address of the host, whose port connect is to choose") {
  const bool reuses = GENERATE(false, true);
  Listener listener = Listen();
  Fd client = TcpSocket();
  SetOption(client, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  if (reuses) SetOption(client, SOL_SOCKET, SO_REUSEADDR, 1);
  Address other = Loopback(AF_INET);
  reinterpret_cast<sockaddr_in&>(other.storage).sin_addr.s_addr = inet_addr("127.0.0.5");
  REQUIRE(bind(client, other.get(), other.length) == 0);
  REQUIRE(LocalOf(client).port() == 0);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  const Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(LocalOf(client).ToString() == "127.0.0.5:" + std::to_string(LocalOf(client).port()));
  REQUIRE(PeerOf(server).ToString() == LocalOf(client).ToString());
  REQUIRE(GetOption(client, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT) == 1);
  REQUIRE(SendAll(client, "x"));
  REQUIRE(ReceiveExactly(server, 1) == "x");
}

TEST_CASE("names: a client bound to another address of the host") {
  Listener listener = Listen();
  Fd client = TcpSocket();
  Address own = At("127.0.0.2");
  REQUIRE(bind(client, own.get(), own.length) == 0);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(LocalOf(client).ToString().rfind("127.0.0.2:", 0) == 0);
  REQUIRE(PeerOf(server).ToString() == LocalOf(client).ToString());
}

std::vector<Address> LinkLocalAddresses() {
  ifaddrs* all = nullptr;
  REQUIRE(getifaddrs(&all) == 0);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> free_later(all, &freeifaddrs);
  std::vector<Address> found;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET6 || (i->ifa_flags & IFF_UP) == 0)
      continue;
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
    if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
    Address address;
    std::memcpy(&address.storage, v6, sizeof *v6);
    address.length = sizeof *v6;
    found.push_back(address);
  }
  return found;
}

uint32_t& ScopeOf(Address& address) { return reinterpret_cast<sockaddr_in6&>(address.storage).sin6_scope_id; }

void UseLinkLocal(Address local) {
  Listener listener = ListenAt(local);
  Pair pair = ConnectTo(listener);
  for (Address name : {PeerOf(pair.client), LocalOf(pair.client), LocalOf(pair.server), PeerOf(pair.server)})
    REQUIRE(ScopeOf(name) == ScopeOf(local));
  REQUIRE(SendAll(pair.client, Pattern(100'000)));
  REQUIRE(ReceiveExactly(pair.server, 100'000) == Pattern(100'000));
}

TEST_CASE("names: a link-local address without a scope id leads nowhere", "[.namespace][mixed]") {
  Address address = LinkLocalAddresses().front();
  Listener listener = ListenAt(address);
  ScopeOf(listener.address) = 0;
  Fd client = TcpSocket(AF_INET6);
  REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), EINVAL);
}

TEST_CASE("names: a link-local address tells its scope id", "[mixed]") {
  const std::vector<Address> addresses = LinkLocalAddresses();
  if (addresses.empty()) return sdp::test::Skipped("no link-local address on this host");
  UseLinkLocal(addresses.front());
}

TEST_CASE("names: link-local addresses of two devices, each with its scope id", "[.namespace]") {
  const std::vector<Address> addresses = LinkLocalAddresses();
  REQUIRE(addresses.size() >= 4);
  for (const Address& address : addresses) {
    Address local = address;
    INFO(local.ToString() << " of device " << ScopeOf(local));
    UseLinkLocal(local);
  }
}

TEST_CASE("names: a client of all link-local addresses is where its scope id says", "[.namespace]") {
  Listener listener = ListenAt(Any(AF_INET6));
  for (Address address : LinkLocalAddresses()) {
    INFO(address.ToString() << " of device " << ScopeOf(address));
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(listener.address.port());
    Fd client = TcpSocket(AF_INET6);
    REQUIRE(connect(client, address.get(), address.length) == 0);
    Fd server(accept(listener.fd, nullptr, nullptr));
    Address local = LocalOf(server), peer = PeerOf(client);
    REQUIRE(local.ToString() == address.ToString());
    REQUIRE(ScopeOf(local) == ScopeOf(address));
    REQUIRE(ScopeOf(peer) == ScopeOf(address));
    REQUIRE(SendAll(client, "here"));
    REQUIRE(ReceiveExactly(server, 4) == "here");
  }
}

TEST_CASE("names: a refusal at an address of one device says nothing of another's",
          "[.namespace][refused][carried]") {
  std::vector<Address> twins;
  for (Address& address : LinkLocalAddresses()) {
    if (address.ToString() == "[fe80::1]:0") twins.push_back(address);
  }
  REQUIRE(twins.size() == 2);
  Listener listener = ListenAt(twins[0]);
  Address nobody = listener.address;
  ScopeOf(nobody) = ScopeOf(twins[1]);
  Fd client = TcpSocket(AF_INET6);
  REQUIRE_ERRNO(connect(client, nobody.get(), nobody.length), ECONNREFUSED);
  ConnectTo(listener);
}

// The port mapper knows addresses without scope ids: which of the two it means, it cannot say, but nobody
// comes to the wrong one.
TEST_CASE("names: the same address and port on two devices are two listeners", "[.namespace][mixed]") {
  std::vector<Address> twins;
  for (Address& address : LinkLocalAddresses()) {
    if (address.ToString() == "[fe80::1]:0") twins.push_back(address);
  }
  REQUIRE(twins.size() == 2);
  Listener first = ListenAt(twins[0]);
  reinterpret_cast<sockaddr_in6&>(twins[1].storage).sin6_port = htons(first.address.port());
  Listener second = ListenAt(twins[1]);
  for (Listener* listener : {&first, &second, &first}) {
    Fd client = TcpSocket(AF_INET6);
    REQUIRE(connect(client, listener->address.get(), listener->address.length) == 0);
    REQUIRE(WaitFor(listener->fd, POLLIN));
    Fd server(accept(listener->fd, nullptr, nullptr));
    Address local = LocalOf(server);
    REQUIRE(ScopeOf(local) == ScopeOf(listener->address));
    REQUIRE(SendAll(client, "here"));
    REQUIRE(ReceiveExactly(server, 4) == "here");
  }
}

TEST_CASE("names: whatever getaddrinfo gives leads to the listener", "[mixed]") {
  Listener listener = ListenAt(Any(AF_INET6));
  const std::string port = std::to_string(listener.address.port());
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  for (const char* host : {"127.0.0.1", "::1", "::ffff:127.0.0.1"}) {
    addrinfo* found = nullptr;
    REQUIRE(getaddrinfo(host, port.c_str(), &hints, &found) == 0);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> free_later(found, &freeaddrinfo);
    Fd client(socket(found->ai_family, found->ai_socktype, found->ai_protocol));
    REQUIRE(connect(client, found->ai_addr, found->ai_addrlen) == 0);
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(SendAll(client, host));
    REQUIRE(ReceiveExactly(server, strlen(host)) == host);
  }
}

TEST_CASE("names: /dev/fd and /proc/self/fd lead to a socket that cannot be opened") {
  Pair pair = MakePair();
  for (const char* directory : {"/dev/fd/", "/proc/self/fd/"}) {
    const std::string path = directory + std::to_string(pair.client);
    REQUIRE_ERRNO(open(path.c_str(), O_RDWR | O_CLOEXEC), ENXIO);
    struct stat status {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    REQUIRE(S_ISSOCK(status.st_mode));
  }
  REQUIRE(SendAll(pair.client, "as before"));
  REQUIRE(ReceiveExactly(pair.server, 9) == "as before");
}

TEST_CASE("names: a signalfd beside sockets, in poll and in epoll") {
  Pair pair = MakePair();
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  Fd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.fd = signals.get()}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, signals, &event) == 0);
  event.data.fd = pair.server;
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  pollfd both[2] = {{.fd = signals, .events = POLLIN, .revents = 0},
                    {.fd = pair.server, .events = POLLIN, .revents = 0}};
  REQUIRE(poll(both, 2, 0) == 0);
  REQUIRE(kill(getpid(), SIGUSR2) == 0);
  REQUIRE(poll(both, 2, kPatienceMs) == 1);
  REQUIRE(both[0].revents == POLLIN);
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.data.fd == signals);
  signalfd_siginfo info;
  REQUIRE(read(signals, &info, sizeof info) == sizeof info);
  REQUIRE(info.ssi_signo == SIGUSR2);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(poll(both, 2, kPatienceMs) == 1);
  REQUIRE(both[1].revents == POLLIN);
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.data.fd == pair.server);
}

TEST_CASE("names: errno is left alone by what succeeds") {
  Listener listener = Listen();
  const int kSentinel = 4711;
  errno = kSentinel;
  const auto untouched = [&](const char* call) {
    const int now = errno;
    INFO(call);
    REQUIRE(now == kSentinel);
    errno = kSentinel;
  };
  Fd client = TcpSocket();
  untouched("socket");
  errno = kSentinel;
  if (connect(client, listener.address.get(), listener.address.length) == 0) untouched("connect");
  Fd server(accept(listener.fd, nullptr, nullptr));
  untouched("accept");
  const std::string large = Pattern(400'000);
  auto sender = Async([&] {
    errno = kSentinel;
    return send(client, large.data(), large.size(), 0) == static_cast<ssize_t>(large.size()) &&
           errno == kSentinel;
  });
  std::string got(large.size(), '\0');
  errno = kSentinel;
  if (recv(server, got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(got.size()))
    untouched("recv");
  REQUIRE(Get(sender));
  errno = kSentinel;
  pollfd one{.fd = client, .events = POLLIN | POLLOUT, .revents = 0};
  if (poll(&one, 1, 0) == 1) untouched("poll");
  int value = 0;
  socklen_t length = sizeof value;
  if (getsockopt(client, SOL_SOCKET, SO_ERROR, &value, &length) == 0) untouched("getsockopt");
  if (setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &value, length) == 0) untouched("setsockopt");
  const int copy = dup(client);
  untouched("dup");
  if (shutdown(client, SHUT_WR) == 0) untouched("shutdown");
  if (recv(server, got.data(), 1, 0) == 0) untouched("recv at the end");
  if (close(copy) == 0) untouched("close");
  if (close(client.release()) == 0) untouched("the last close");
  if (close(server.release()) == 0) untouched("the other end's close");
}

}  // namespace
}  // namespace posix_test
