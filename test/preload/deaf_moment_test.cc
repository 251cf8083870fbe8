// What a socket in a race hears while it is given up, on loopback.
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "preload/socket/address.h"
#include "preload/socket/connect_attempt.h"
#include "test/support/eventually.h"

namespace sdp::preload {
namespace {

struct Socket {
  explicit Socket(int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) : fd(fd) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(fd); }
  int fd;
};

struct Listener : Socket {
  Listener() {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0);
    REQUIRE(listen(fd, 0) == 0);
    address = LocalAddress(fd);
  }
  // Whether the kernel has answered a client's SYN and waits for the acknowledgement.
  [[nodiscard]] bool HasHalfOpen() const {
    std::ifstream table("/proc/net/tcp");
    char local[20];
    std::snprintf(local, sizeof local, " 0100007F:%04X ", Port(address));
    for (std::string line; std::getline(table, line);) {
      if (line.find(local) != std::string::npos && line.find(" 03 ") != std::string::npos) return true;
    }
    return false;
  }
  Address address;
};

bool Readable(int fd, int milliseconds) {
  pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, milliseconds) == 1;
}

int InstructionsOfFilter(int fd) {
  socklen_t count = 0;
  REQUIRE(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, nullptr, &count) == 0);
  return static_cast<int>(count);
}

TEST_CASE("deaf moment: a connect that is given up in it is not accepted, though it is answered meanwhile",
          "[connection_race]") {
  const Listener listener;
  const Socket first;
  const Socket given_up;
  ConnectWithoutBlocking(first.fd, listener.address);
  REQUIRE(Readable(listener.fd, 60000));
  // The queue is full, so the kernel ignores this one until there is room.
  ConnectWithoutBlocking(given_up.fd, listener.address);
  REQUIRE_FALSE(ConnectResult(given_up.fd));
  DeafMoment deaf(given_up.fd);
  const Socket accepted(accept(listener.fd, nullptr, nullptr));
  REQUIRE(accepted.fd >= 0);
  REQUIRE(test::Eventually([&] { return listener.HasHalfOpen(); }));
  CHECK_FALSE(ConnectResult(given_up.fd));
  Unconnect(given_up.fd);
  deaf.End();
  CHECK(test::Eventually([&] { return !listener.HasHalfOpen(); }));
  CHECK_FALSE(Readable(listener.fd, 0));
}

TEST_CASE("deaf moment: a connect that was answered before goes on behind it", "[connection_race]") {
  const Listener listener;
  const Socket client;
  ConnectWithoutBlocking(client.fd, listener.address);
  REQUIRE(Readable(listener.fd, 60000));
  const Socket accepted(accept(listener.fd, nullptr, nullptr));
  {
    const DeafMoment deaf(client.fd);
    CHECK(ConnectResult(client.fd) == 0);
    CHECK(InstructionsOfFilter(client.fd) == 1);
    REQUIRE(send(accepted.fd, "x", 1, 0) == 1);
    CHECK_FALSE(Readable(client.fd, 0));
  }
  CHECK(InstructionsOfFilter(client.fd) == 0);
  CHECK(Readable(client.fd, 60000));
}

TEST_CASE("deaf moment: the program's own filter stays", "[connection_race]") {
  const Socket socket;
  sock_filter all[] = {BPF_STMT(BPF_LD | BPF_IMM, 0), BPF_STMT(BPF_RET | BPF_K, 0xffff)};
  const sock_fprog program{.len = 2, .filter = all};
  REQUIRE(setsockopt(socket.fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
  {
    const DeafMoment deaf(socket.fd);
    CHECK(InstructionsOfFilter(socket.fd) == 2);
  }
  CHECK(InstructionsOfFilter(socket.fd) == 2);
}

}  // namespace
}  // namespace sdp::preload
