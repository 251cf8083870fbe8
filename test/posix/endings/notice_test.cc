// What a program hears of its peer from a call that is not about that: send of a reset, getpeername of an
// end, poll of a connect.
#include <netinet/tcp.h>
#include <sys/select.h>

#include "test/posix/support.h"

namespace posix_test {
namespace {

void Reset(Fd& fd) {
  const linger option{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(fd, SOL_SOCKET, SO_LINGER, &option, sizeof option) == 0);
  fd.reset();
}

TEST_CASE("notice: the first send after a reset fails, by a program that never receives", "[abort]") {
  for (const bool nonblocking : {false, true}) {
    for (const size_t size : {size_t{1}, size_t{100'000}, size_t{4'000'000}}) {
      CAPTURE(nonblocking, size);
      Pair pair = MakePair();
      SetNonblocking(pair.server, nonblocking);
      const std::string data(size, 'x');
      REQUIRE(send(pair.server, data.data(), 1, MSG_NOSIGNAL) == 1);
      Reset(pair.client);
      REQUIRE_ERRNO(send(pair.server, data.data(), size, MSG_NOSIGNAL), ECONNRESET);
      REQUIRE_ERRNO(send(pair.server, data.data(), size, MSG_NOSIGNAL), EPIPE);
    }
  }
}

TEST_CASE("notice: what was sent before a reset can be read although a send has heard of it", "[abort]") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "last words"));
  Reset(pair.client);
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), ECONNRESET);
  REQUIRE(ReceiveExactly(pair.server, 10) == "last words");
}

TEST_CASE("notice: a program that only sends hears soon of a peer that has closed", "[abort]") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "a request"));
  REQUIRE(ReceiveExactly(pair.server, 9) == "a request");
  pair.client.reset();
  int looks = 0, sends = 0;
  REQUIRE(Eventually([&] {
    if (looks++ % 10 != 0) return false;
    ++sends;
    return send(pair.server, "x", 1, MSG_NOSIGNAL) == -1;
  }));
  REQUIRE((errno == EPIPE || errno == ECONNRESET));
  REQUIRE(sends < 15);  // fewer than the buffers that even a peer without a program would offer
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
}

TEST_CASE("notice: a peer that has closed gets one send, and poll tells of the answer to it", "[abort]") {
  for (const bool server_closes : {false, true}) {
    CAPTURE(server_closes);
    Pair pair = MakePair();
    Fd& closes = server_closes ? pair.server : pair.client;
    Fd& stays = server_closes ? pair.client : pair.server;
    closes.reset();
    REQUIRE(Eventually([&] { return PollOne(stays, POLLIN | POLLRDHUP, 0) == (POLLIN | POLLRDHUP); }));
    REQUIRE(send(stays, "hello", 5, MSG_NOSIGNAL) == 5);
    REQUIRE(Eventually([&] { return (PollOne(stays, POLLIN, 0) & (POLLERR | POLLHUP)) != 0; }));
    REQUIRE_ERRNO(send(stays, "hello", 5, MSG_NOSIGNAL), EPIPE);
  }
}

TEST_CASE("notice: small sends to a peer that has closed fail soon once its refusal is here", "[abort]") {
  // TCP takes one. The library looks for the refusal at least every 256 small sends; 64 more are for those
  // that are under way when it comes.
  constexpr int kMostSends = 320;
  const bool used = GENERATE(false, true);
  CAPTURE(used);
  const auto sends = [&] {
    Pair pair = MakePair();
    if (used) {
      REQUIRE(SendAll(pair.client, "a request"));
      REQUIRE(ReceiveExactly(pair.server, 9) == "a request");
      REQUIRE(SendAll(pair.server, "an answer"));
      REQUIRE(ReceiveExactly(pair.client, 9) == "an answer");
    }
    pair.client.reset();
    REQUIRE(WaitFor(pair.server, POLLRDHUP));
    REQUIRE(send(pair.server, "four", 4, MSG_NOSIGNAL) == 4);
    // Any call on the socket would see the refusal, and is not to.
    REQUIRE(poll(nullptr, 0, kQuietMs) == 0);
    int taken = 0;
    while (taken <= kMostSends && send(pair.server, "four", 4, MSG_NOSIGNAL) == 4) ++taken;
    if (taken > kMostSends) return taken;
    const int error = errno;
    REQUIRE((error == EPIPE || error == ECONNRESET));
    REQUIRE_ERRNO(send(pair.server, "four", 4, MSG_NOSIGNAL), EPIPE);
    return taken;
  };
  // A busy machine may keep the refusal back.
  REQUIRE(OnceWithin(kMostSends + 1, sends));
}

TEST_CASE("notice: a peer that has closed refuses what is sent, and whatever is called next tells",
          "[abort]") {
  for (const bool polls : {true, false}) {
    CAPTURE(polls);
    Pair pair = MakePair();
    pair.client.reset();
    REQUIRE(WaitFor(pair.server, POLLRDHUP));
    REQUIRE(send(pair.server, "x", 1, MSG_NOSIGNAL) == 1);
    const auto refused = [&] {
      if (polls) return (PollOne(pair.server, POLLIN, 0) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP);
      tcp_info info{};
      socklen_t length = sizeof info;
      return getsockopt(pair.server, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
             info.tcpi_state == TCP_CLOSE;
    };
    REQUIRE(Eventually(refused));
    REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
    char c;
    REQUIRE(recv(pair.server, &c, 1, 0) == 0);
  }
}

TEST_CASE("notice: getpeername after a reset is ENOTCONN", "[abort]") {
  Pair pair = MakePair();
  Address peer;
  REQUIRE(getpeername(pair.server, peer.get(), &peer.length) == 0);
  REQUIRE(SendAll(pair.client, "data that nobody reads"));
  Reset(pair.client);
  REQUIRE_ERRNO(getpeername(pair.server, peer.get(), &peer.length), ENOTCONN);
  REQUIRE(ReceiveExactly(pair.server, 4) == "data");
}

TEST_CASE("notice: getpeername while the peer has only half closed, and while both have not") {
  Pair pair = MakePair();
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.server, POLLIN));
  Address peer;
  REQUIRE(getpeername(pair.server, peer.get(), &peer.length) == 0);
  REQUIRE(peer.port() == LocalOf(pair.client).port());
  REQUIRE(getpeername(pair.client, peer.get(), &peer.length) == 0);
}

TEST_CASE("notice: a poll for both sides of a socket that is always writable sees what comes in") {
  Pair pair = MakePair();
  for (const bool use_select : {false, true}) {
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(Eventually([&] {
      if (use_select) {
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(pair.server.get(), &in);
        FD_SET(pair.server.get(), &out);
        REQUIRE(select(pair.server + 1, &in, &out, nullptr, nullptr) >= 1);
        REQUIRE(FD_ISSET(pair.server.get(), &out));
        return FD_ISSET(pair.server.get(), &in) != 0;
      }
      pollfd both{pair.server, POLLIN | POLLOUT, 0};
      REQUIRE(poll(&both, 1, kPatienceMs) == 1);
      REQUIRE((both.revents & POLLOUT) != 0);
      return (both.revents & POLLIN) != 0;
    }));
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  }
}

TEST_CASE("notice: a connect and its accept come to an end in one thread that only polls") {
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  for (int round = 0; round < 20; ++round) {
    Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
    if (connect(client, listener.address.get(), listener.address.length) != 0) REQUIRE(errno == EINPROGRESS);
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(server >= 0);
    // The accepted end is writable all the time: nobody sleeps in these polls, and they have to get the
    // connect on all the same.
    REQUIRE(Eventually([&] {
      pollfd fds[2] = {{client, POLLOUT, 0}, {server, POLLIN | POLLOUT, 0}};
      REQUIRE(poll(fds, 2, kPatienceMs) >= 1);
      return (fds[0].revents & POLLOUT) != 0;
    }));
    REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
  }
}

}  // namespace
}  // namespace posix_test
