// The flags of a receive, and receives of nothing.
#include <sys/uio.h>

#include "test/posix/support.h"

namespace posix_test {
namespace {

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
  if (flags == 0)
    REQUIRE(Eventually([&] { return recv(pair.server, room.data(), room.size(), MSG_PEEK) == 1000; }));
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

}  // namespace
}  // namespace posix_test
