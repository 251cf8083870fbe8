// Every option and query of a TCP socket, beside the same on a socket that the kernel alone knows (made by
// bare system calls, so that under the preload it is the oracle): results, errno, lengths and what is read
// back have to be the same. Swept over all numbers that socket(7), tcp(7), ip(7) and ipv6(7) use and some
// more.
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <map>

#include "test/posix/options/option_twins.h"

namespace posix_test {
namespace {

// --- The table. What is not named is compared in full.

struct Option {
  int level;
  int name;
  bool operator<(const Option& other) const {
    return std::pair(level, name) < std::pair(other.level, other.name);
  }
};

enum class Compare {
  kLength,   // the value is each socket's own (a cookie, a processor, a time)
  kNotSet,   // would change more than the socket, or takes memory by address: only read
  kNothing,  // a known difference, or no business of a stream
};

const std::map<Option, Compare>& Exceptions() {
  static const std::map<Option, Compare> exceptions = {
      {{SOL_SOCKET, 49 /* SO_INCOMING_CPU */}, Compare::kLength},
      {{SOL_SOCKET, 55 /* SO_MEMINFO */}, Compare::kLength},
      {{SOL_SOCKET, 56 /* SO_INCOMING_NAPI_ID */}, Compare::kLength},
      {{SOL_SOCKET, 57 /* SO_COOKIE */}, Compare::kLength},
      {{SOL_SOCKET, 71 /* SO_NETNS_COOKIE */}, Compare::kLength},
      {{SOL_SOCKET, 28 /* SO_PEERNAME */}, Compare::kLength},  // each has a peer of its own
      {{SOL_SOCKET, SO_RCVBUF}, Compare::kLength},             // grows by itself
      {{SOL_SOCKET, SO_SNDBUF}, Compare::kLength},
      {{SOL_SOCKET, SO_PEEK_OFF}, Compare::kNothing},  // EOPNOTSUPP, as of kernels before 6.9
      {{SOL_SOCKET, 78 /* SO_DEVMEM_LINEAR */}, Compare::kNothing},
      {{SOL_SOCKET, 79}, Compare::kNothing},
      {{SOL_SOCKET, 80}, Compare::kNothing},
      {{IPPROTO_TCP, TCP_INFO}, Compare::kNothing},  // cases of their own
      {{IPPROTO_TCP, 26 /* TCP_CC_INFO */},
       Compare::kNothing},  // a link within the host has none to tell (README)
      {{IPPROTO_TCP, 24 /* TCP_TIMESTAMP */}, Compare::kLength},
      {{IPPROTO_TCP, TCP_MAXSEG}, Compare::kLength},
      {{IPPROTO_TCP, TCP_WINDOW_CLAMP}, Compare::kLength},
      {{IPPROTO_TCP, TCP_QUICKACK}, Compare::kLength},  // the kernel changes it as it goes
      {{IPPROTO_TCP, TCP_REPAIR}, Compare::kNothing},   // needs privilege, and would stop the link
      {{IPPROTO_TCP, 20}, Compare::kNothing},
      {{IPPROTO_TCP, 21}, Compare::kNothing},
      {{IPPROTO_TCP, 22}, Compare::kNothing},
      {{IPPROTO_TCP, 29}, Compare::kNothing},
      {{IPPROTO_TCP, 28 /* TCP_SAVED_SYN */}, Compare::kNotSet},
      {{IPPROTO_TCP, 31 /* TCP_ULP */}, Compare::kNothing},
      {{IPPROTO_TCP, 35 /* TCP_ZEROCOPY_RECEIVE */}, Compare::kNothing},  // a case of its own
      {{IPPROTO_TCP, 37 /* TCP_TX_DELAY */}, Compare::kNotSet},           // slows every packet down
      {{IPPROTO_TCP, 33 /* TCP_FASTOPEN_KEY */}, Compare::kNotSet},
      {{IPPROTO_IP, IP_MTU}, Compare::kNothing},  // known while the kernel has a route at hand
      {{SOL_SOCKET, 65 /* SO_TIMESTAMPING_NEW */},
       Compare::kNothing},  // says what others of its kind were set to last
      {{IPPROTO_IP, 52 /* IP_PROTOCOL */}, Compare::kLength},  // says the port
      {{IPPROTO_IPV6, IPV6_MTU}, Compare::kNothing},
      {{IPPROTO_IPV6, 1 /* IPV6_ADDRFORM */}, Compare::kNotSet},
      {{SOL_SOCKET, SO_BINDTODEVICE}, Compare::kNotSet},  // a case of its own
      {{SOL_SOCKET, SO_ATTACH_FILTER}, Compare::kNotSet},
      {{SOL_SOCKET, 44 /* SO_LOCK_FILTER */}, Compare::kNotSet},      // cannot be taken back
      {{SOL_SOCKET, 47 /* SO_MAX_PACING_RATE */}, Compare::kNotSet},  // stops the link
      {{SOL_SOCKET, 73 /* SO_RESERVE_MEM */}, Compare::kNotSet},
  };
  return exceptions;
}

bool Is(int level, int name, Compare compare) {
  const auto found = Exceptions().find({level, name});
  return found != Exceptions().end() && found->second == compare;
}

std::vector<Option> AllOptions(int family) {
  std::vector<Option> all;
  for (int name = 0; name < 96; ++name) {
    all.push_back({SOL_SOCKET, name});
    all.push_back({IPPROTO_TCP, name});
    all.push_back({IPPROTO_IP, name});
    if (family == AF_INET6) all.push_back({IPPROTO_IPV6, name});
  }
  all.push_back({IPPROTO_UDP, 1});
  all.push_back({1025, 80});
  all.push_back({-1, 1});
  return all;
}

std::string Describe(Stage stage, const Option& option, const std::string& what) {
  return std::string(Name(stage)) + ", level " + std::to_string(option.level) + " option " +
         std::to_string(option.name) + ", " + what;
}

void CompareGet(const Twins& twins, Stage stage, const Option& option, socklen_t length,
                Differences* differences) {
  if (Is(option.level, option.name, Compare::kNothing)) return;
  Outcome ours = GetOurs(twins.ours(stage), option.level, option.name, length);
  Outcome oracle = GetBare(twins.oracle(stage), option.level, option.name, length);
  if (Is(option.level, option.name, Compare::kLength)) ours.value = oracle.value = {};
  differences->Note(Describe(stage, option, "read with room for " + std::to_string(static_cast<int>(length))),
                    ours, oracle);
}

TEST_CASE("option table: what every option is at first") {
  const int family = GENERATE(AF_INET, AF_INET6);
  const Twins twins(family);
  Differences differences;
  for (const Stage stage : kStages) {
    for (const Option& option : AllOptions(family)) {
      for (const socklen_t length : {4u, 0u, 1u, 2u, 3u, 8u, 16u, 128u, ~0u})
        CompareGet(twins, stage, option, length, &differences);
    }
  }
  differences.Check();
}

TEST_CASE("option table: every option set to small and large numbers and read back") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Differences differences;
  for (const Stage stage : kStages) {
    const Twins twins(family);
    for (const Option& option : AllOptions(family)) {
      if (Is(option.level, option.name, Compare::kNothing) || Is(option.level, option.name, Compare::kNotSet))
        continue;
      for (const int value : {1, 0, 5, 64, 255, 256, 4096, 1 << 20, -1, 0x7fffffff, 0}) {
        const Outcome ours = SetOurs(twins.ours(stage), option.level, option.name, &value, sizeof value);
        const Outcome oracle = SetBare(twins.oracle(stage), option.level, option.name, &value, sizeof value);
        differences.Note(Describe(stage, option, "set to " + std::to_string(value)), ours, oracle);
        CompareGet(twins, stage, option, 4, &differences);
        CompareGet(twins, stage, option, 16, &differences);
      }
    }
  }
  differences.Check();
}

TEST_CASE("option table: lengths and addresses that are wrong, and structures") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Differences differences;
  for (const Stage stage : kStages) {
    const Twins twins(family);
    for (const Option& option : AllOptions(family)) {
      if (Is(option.level, option.name, Compare::kNothing) || Is(option.level, option.name, Compare::kNotSet))
        continue;
      const int one[16] = {1};
      for (const socklen_t length : {0u, 1u, 2u, 3u, 8u, 16u, 64u, ~0u}) {
        const Outcome ours = SetOurs(twins.ours(stage), option.level, option.name, one, length);
        const Outcome oracle = SetBare(twins.oracle(stage), option.level, option.name, one, length);
        differences.Note(
            Describe(stage, option, "set with length " + std::to_string(static_cast<int>(length))), ours,
            oracle);
        CompareGet(twins, stage, option, 16, &differences);
      }
      differences.Note(Describe(stage, option, "set from nowhere"),
                       SetOurs(twins.ours(stage), option.level, option.name, nullptr, 4),
                       SetBare(twins.oracle(stage), option.level, option.name, nullptr, 4));
      const auto nowhere = [&](auto get) {
        return Result([&] { return get(option.level, option.name, nullptr, nullptr); });
      };
      differences.Note(
          Describe(stage, option, "read to nowhere"),
          nowhere([&](auto... a) { return getsockopt(twins.ours(stage), a...); }),
          nowhere([&](auto... a) { return syscall(SYS_getsockopt, twins.oracle(stage), a...); }));
    }
  }
  differences.Check();
}

TEST_CASE("option table: a stream goes on whatever was set") {
  Twins twins(AF_INET);
  for (const Option& option : AllOptions(AF_INET)) {
    if (Is(option.level, option.name, Compare::kNothing) || Is(option.level, option.name, Compare::kNotSet))
      continue;
    if (option.level == SOL_SOCKET &&
        (option.name == SO_RCVTIMEO || option.name == SO_SNDTIMEO || option.name == SO_RCVLOWAT))
      continue;
    for (const int fd : {twins.pair.client.get(), twins.pair.server.get()}) {
      for (const int value : {1, 0}) setsockopt(fd, option.level, option.name, &value, sizeof value);
    }
    INFO("level " << option.level << " option " << option.name);
    REQUIRE(SendAll(twins.pair.client, "to and fro"));
    REQUIRE(ReceiveExactly(twins.pair.server, 10) == "to and fro");
    REQUIRE(SendAll(twins.pair.server, "and back"));
    REQUIRE(ReceiveExactly(twins.pair.client, 8) == "and back");
  }
}

// What a program sets before it listens, or before it connects.
struct Setting {
  int level;
  int name;
  int value;
};
constexpr Setting kSettings[] = {
    {SOL_SOCKET, SO_KEEPALIVE, 1},
    {SOL_SOCKET, SO_OOBINLINE, 1},
    {SOL_SOCKET, SO_PRIORITY, 3},
    {SOL_SOCKET, SO_RCVLOWAT, 7},
    {SOL_SOCKET, SO_SNDBUF, 40000},
    {SOL_SOCKET, SO_RCVBUF, 50000},
    {SOL_SOCKET, SO_DONTROUTE, 1},
    {SOL_SOCKET, SO_ZEROCOPY, 1},
    {SOL_SOCKET, SO_BUSY_POLL, 0},
    {SOL_SOCKET, SO_REUSEADDR, 1},
    {SOL_SOCKET, SO_MARK, 7},
    {SOL_SOCKET, SO_TIMESTAMP, 1},
    {IPPROTO_TCP, TCP_NODELAY, 1},
    {IPPROTO_TCP, TCP_CORK, 1},
    {IPPROTO_TCP, TCP_KEEPIDLE, 33},
    {IPPROTO_TCP, TCP_KEEPINTVL, 5},
    {IPPROTO_TCP, TCP_KEEPCNT, 3},
    {IPPROTO_TCP, TCP_SYNCNT, 2},
    {IPPROTO_TCP, TCP_LINGER2, 9},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, 0},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 12345},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 9999},
    {IPPROTO_TCP, TCP_SAVE_SYN, 1},
    {IPPROTO_TCP, 36 /* TCP_INQ */, 1},
    {IPPROTO_IP, IP_TOS, 0x10},
    {IPPROTO_IP, IP_TTL, 44},
    {IPPROTO_IP, IP_RECVERR, 1},
    {IPPROTO_IP, IP_MTU_DISCOVER, 0},
    {IPPROTO_IP, IP_FREEBIND, 1},
};

TEST_CASE("option table: what is set on a listener, before or after it listens, its connections have") {
  const bool before = GENERATE(true, false);
  Listener listener{TcpSocket(), Loopback(AF_INET)};
  BareFd bare = BareSocket(AF_INET);
  const auto set_all = [&](int ours, int oracle) {
    for (const Setting& s : kSettings) {
      CHECK(SetOurs(ours, s.level, s.name, &s.value, sizeof s.value) ==
            SetBare(oracle, s.level, s.name, &s.value, sizeof s.value));
    }
    const timeval time{.tv_sec = 3, .tv_usec = 500000};
    REQUIRE(setsockopt(ours, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) == 0);
    REQUIRE(syscall(SYS_setsockopt, oracle, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) == 0);
    const linger ling{.l_onoff = 1, .l_linger = 4};
    REQUIRE(setsockopt(ours, SOL_SOCKET, SO_LINGER, &ling, sizeof ling) == 0);
    REQUIRE(syscall(SYS_setsockopt, oracle, SOL_SOCKET, SO_LINGER, &ling, sizeof ling) == 0);
  };
  if (before) set_all(listener.fd, bare.get());
  REQUIRE(bind(listener.fd, listener.address.get(), listener.address.length) == 0);
  REQUIRE(listen(listener.fd, 8) == 0);
  listener.address = LocalOf(listener.fd);
  bare = BareListener(AF_INET, std::move(bare));
  if (!before) set_all(listener.fd, bare.get());

  Pair pair = ConnectTo(listener);
  Address address;
  REQUIRE(syscall(SYS_getsockname, bare.get(), address.get(), &address.length) == 0);
  const BareFd client = BareSocket(AF_INET);
  REQUIRE(syscall(SYS_connect, client.get(), address.get(), address.length) == 0);
  const BareFd server(syscall(SYS_accept, bare.get(), nullptr, nullptr));

  Differences differences;
  for (const Option& option : AllOptions(AF_INET)) {
    if (Is(option.level, option.name, Compare::kNothing)) continue;
    for (const auto& [ours_fd, oracle_fd, who] :
         {std::tuple(pair.server.get(), server.get(), "accepted"),
          std::tuple(listener.fd.get(), bare.get(), "the listener")}) {
      Outcome ours = GetOurs(ours_fd, option.level, option.name, 16);
      Outcome oracle = GetBare(oracle_fd, option.level, option.name, 16);
      const bool buffer =
          option.level == SOL_SOCKET && (option.name == SO_RCVBUF || option.name == SO_SNDBUF);
      const bool syn = option.level == IPPROTO_TCP && option.name == TCP_SAVED_SYN;
      if (syn) ours.value = oracle.value = {};
      if (!buffer && Is(option.level, option.name, Compare::kLength)) ours.value = oracle.value = {};
      differences.Note(std::string(who) + ", level " + std::to_string(option.level) + " option " +
                           std::to_string(option.name),
                       ours, oracle);
    }
  }
  differences.Check();
  REQUIRE(SendAll(pair.client, "a listener's legacy"));
  REQUIRE(ReceiveExactly(pair.server, 19) == "a listener's legacy");
}

TEST_CASE("option table: what is set before connect stays") {
  Listener listener = Listen();
  Fd client = TcpSocket();
  const BareFd bare_listener = BareListener(AF_INET, BareSocket(AF_INET));
  const BareFd bare = BareSocket(AF_INET);
  for (const Setting& s : kSettings) {
    CHECK(SetOurs(client, s.level, s.name, &s.value, sizeof s.value) ==
          SetBare(bare.get(), s.level, s.name, &s.value, sizeof s.value));
  }
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Address address;
  REQUIRE(syscall(SYS_getsockname, bare_listener.get(), address.get(), &address.length) == 0);
  REQUIRE(syscall(SYS_connect, bare.get(), address.get(), address.length) == 0);
  Differences differences;
  for (const Setting& s : kSettings) {
    differences.Note("level " + std::to_string(s.level) + " option " + std::to_string(s.name),
                     GetOurs(client, s.level, s.name, 16), GetBare(bare.get(), s.level, s.name, 16));
  }
  differences.Check();
}

}  // namespace
}  // namespace posix_test
