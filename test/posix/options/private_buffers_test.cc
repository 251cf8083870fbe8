// The receive Private Buffers that a program chooses for a connection, at level SOL_SDP, and that a stream
// has enlarged. Plain TCP knows nothing of either: there is nothing to compare with.
#include <tuple>

#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

constexpr int kLevelSdp = 1025;
constexpr int kThreshold = 80;
constexpr int kCount = 82;
constexpr int kSize = 83;

Fd NativeSocket() { return Fd(socket(27 /* AF_INET_SDP */, SOCK_STREAM, 0)); }

// False, said once, where nothing serves the family.
bool Tunable() {
  Fd fd = NativeSocket();
  if (fd >= 0) return true;
  REQUIRE(errno == EAFNOSUPPORT);
  sdp::test::Skipped("nothing serves AF_INET_SDP here");
  return false;
}

TEST_CASE("private buffers: what may be chosen, and when", "[native]") {
  if (!Tunable()) return;
  Fd fd = NativeSocket();
  REQUIRE(GetOption(fd, kLevelSdp, kThreshold) == -1);
  for (const int name : {kCount, kSize})
    REQUIRE(GetOption(fd, kLevelSdp, name) == 0);  // as suits the RNIC, which is not known yet
  for (const auto& [name, least, most] : {std::tuple{kThreshold, 1024, 1 << 20}, std::tuple{kCount, 3, 4096},
                                          std::tuple{kSize, 128, 1 << 20}}) {
    CAPTURE(name);
    for (const int value : {least - 1, most + 1, -1}) {
      REQUIRE_ERRNO(setsockopt(fd, kLevelSdp, name, &value, sizeof value), EINVAL);
    }
    REQUIRE_ERRNO(setsockopt(fd, kLevelSdp, name, &least, sizeof least - 1), EINVAL);
    REQUIRE_ERRNO(setsockopt(fd, kLevelSdp, name, nullptr, sizeof least), EFAULT);
    for (const int value : {least, most}) {
      SetOption(fd, kLevelSdp, name, value);
      REQUIRE(GetOption(fd, kLevelSdp, name) == value);
    }
  }
  SetOption(fd, kLevelSdp, kCount, 0);
  REQUIRE(GetOption(fd, kLevelSdp, kCount) == 0);
  int value = 0;
  REQUIRE_ERRNO(setsockopt(fd, kLevelSdp, 84, &value, sizeof value), ENOPROTOOPT);

  fd = NativeSocket();
  Address address = Loopback(AF_INET);
  REQUIRE(bind(fd, address.get(), address.length) == 0);
  REQUIRE(listen(fd, 8) == 0);
  address = LocalOf(fd);
  Pair pair;
  pair.client = NativeSocket();
  REQUIRE(connect(pair.client, address.get(), address.length) == 0);
  pair.server = Fd(accept(fd, nullptr, nullptr));
  for (const int end : {pair.client.get(), pair.server.get()}) {
    for (const int name : {kCount, kSize}) {
      value = 200;
      REQUIRE_ERRNO(setsockopt(end, kLevelSdp, name, &value, sizeof value), EISCONN);
    }
    SetOption(end, kLevelSdp, kThreshold, 4096);
  }
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
}

TEST_CASE("private buffers: each end has its own, a listener's are those of what it accepts", "[native]") {
  if (!Tunable()) return;
  const bool before_listen = GENERATE(true, false);
  Fd listening = NativeSocket();
  const auto choose = [&] {
    SetOption(listening, kLevelSdp, kCount, 5);
    SetOption(listening, kLevelSdp, kSize, 5000);
    SetOption(listening, kLevelSdp, kThreshold, 0);
  };
  if (before_listen) choose();
  Address address = Loopback(AF_INET);
  REQUIRE(bind(listening, address.get(), address.length) == 0);
  REQUIRE(listen(listening, 8) == 0);
  if (!before_listen) choose();
  Listener listener{std::move(listening), {}};
  listener.address = LocalOf(listener.fd);
  Fd client = NativeSocket();
  SetOption(client, kLevelSdp, kCount, 7);
  SetOption(client, kLevelSdp, kSize, 128);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(GetOption(server, kLevelSdp, kCount) == 5);
  REQUIRE(GetOption(server, kLevelSdp, kSize) == 5000);
  REQUIRE(GetOption(server, kLevelSdp, kThreshold) == 0);
  REQUIRE(GetOption(client, kLevelSdp, kCount) == 7);
  REQUIRE(GetOption(client, kLevelSdp, kSize) == 128);
  REQUIRE(GetOption(client, kLevelSdp, kThreshold) == -1);
  for (int i = 0; i < 50; ++i) {
    REQUIRE(SendAll(client, "question"));
    REQUIRE(ReceiveExactly(server, 8) == "question");
    REQUIRE(SendAll(server, std::string(110, 'a')));  // one message
    REQUIRE(ReceiveExactly(client, 110) == std::string(110, 'a'));
  }
  // That was no stream.
  REQUIRE(GetOption(server, kLevelSdp, kSize) == 5000);
  REQUIRE(GetOption(client, kLevelSdp, kSize) == 128);
}

TEST_CASE("private buffers: a stream has them enlarged, one way or both", "[native]") {
  if (!Tunable()) return;
  const bool both = GENERATE(false, true);
  Fd listening = NativeSocket();
  SetOption(listening, kLevelSdp, kCount, 6);
  SetOption(listening, kLevelSdp, kSize, 1000);
  Address address = Loopback(AF_INET);
  REQUIRE(bind(listening, address.get(), address.length) == 0);
  REQUIRE(listen(listening, 8) == 0);
  Listener listener{std::move(listening), {}};
  listener.address = LocalOf(listener.fd);
  Fd client = NativeSocket();
  SetOption(client, kLevelSdp, kSize, 2000);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  const auto stream = [](int from, uint32_t seed) {
    for (uint32_t i = 0; i < 40; ++i) {
      if (!SendAll(from, Pattern(100'000, seed + i))) return false;
    }
    return true;
  };
  const auto read = [](int to, uint32_t seed) {
    for (uint32_t i = 0; i < 40; ++i) {
      if (ReceiveExactly(to, 100'000) != Pattern(100'000, seed + i)) return false;
    }
    return true;
  };
  auto there = Async([&] { return stream(client, 1); });
  auto read_there = Async([&] { return read(server, 1); });
  if (both) {
    auto back = Async([&] { return stream(server, 1000); });
    auto read_back = Async([&] { return read(client, 1000); });
    REQUIRE(Get(back));
    REQUIRE(Get(read_back));
  }
  REQUIRE(Get(there));
  REQUIRE(Get(read_there));
  // A kernel RNIC's program wishes for 32 KiB of payload, the embedded one for 63.
  REQUIRE(GetOption(server, kLevelSdp, kSize) >= 32 * 1024);
  REQUIRE(GetOption(client, kLevelSdp, kSize) >= (both ? 32 * 1024 : 2000));
  if (!both) REQUIRE(GetOption(client, kLevelSdp, kSize) == 2000);
}

TEST_CASE("private buffers: a child that accepts has what was chosen for the listener", "[native]") {
  if (!Tunable()) return;
  Fd listening = NativeSocket();
  SetOption(listening, kLevelSdp, kCount, 9);
  SetOption(listening, kLevelSdp, kSize, 3000);
  Address address = Loopback(AF_INET);
  REQUIRE(bind(listening, address.get(), address.length) == 0);
  REQUIRE(listen(listening, 8) == 0);
  address = LocalOf(listening);
  const pid_t child = Child([&] {
    Fd server(accept(listening, nullptr, nullptr));
    if (server < 0 || GetOption(server, kLevelSdp, kCount) != 9 ||
        GetOption(server, kLevelSdp, kSize) != 3000)
      return 1;
    return SendAll(server, "begin") && ReceiveExactly(server, 1'000'000) == Pattern(1'000'000) ? 0 : 2;
  });
  Fd client = NativeSocket();
  REQUIRE(connect(client, address.get(), address.length) == 0);
  REQUIRE(ReceiveExactly(client, 5) == "begin");
  REQUIRE(SendAll(client, Pattern(1'000'000)));
  REQUIRE(ExitedWith(Reap(child), 0));
}

}  // namespace
}  // namespace posix_test
