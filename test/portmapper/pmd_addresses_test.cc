// A socket for each address of the host beside the one for all, as addresses come and go.
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"
#include "test/support/skipped.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

// This thread, and what it starts, in a network namespace of its own, with nothing but a loopback.
class NetworkNamespace {
 public:
  NetworkNamespace()
      : old_(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)), entered_(unshare(CLONE_NEWNET) == 0) {}
  ~NetworkNamespace() {
    if (entered_) setns(old_.get(), CLONE_NEWNET);
  }
  NetworkNamespace(const NetworkNamespace&) = delete;
  NetworkNamespace& operator=(const NetworkNamespace&) = delete;
  [[nodiscard]] bool entered() const { return entered_; }
  static bool Ip(const std::string& arguments) { return std::system(("ip " + arguments).c_str()) == 0; }

 private:
  UniqueFd old_;
  bool entered_;
};

int Sockets(const PmdProcess& pmd) {
  const size_t before = pmd.Log().size();
  pmd.Signal(SIGUSR1);
  size_t at = std::string::npos;
  const bool written = Eventually([&] {
    at = pmd.Log().find("sockets ", before);
    return at != std::string::npos && pmd.Log().find("local:", at) != std::string::npos;
  });
  return written ? std::atoi(pmd.Log().c_str() + at + 8) : -1;
}

TEST_CASE("sockets follow the host's addresses", "[pmd]") {
  const NetworkNamespace network;
  if (!network.entered()) return sdp::test::Skipped("no right to make a network namespace");
  REQUIRE(NetworkNamespace::Ip("link set lo up"));
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const PmdProcess pmd({"--listen", "0.0.0.0:0", "--listen", "[::]:0", "--socket", path});
  const uint16_t port = pmd.listen_address(0).port;
  const uint16_t v6_port = pmd.listen_address(1).port;
  CHECK(Sockets(pmd) == 4);  // for all, and loopback, of both families
  const ListenerPair pair("[::]");
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  const UniqueFd keep(*registration);
  // Connected, so it takes an answer only from the address it asked.
  const auto ask = [&](const std::string& host, uint16_t mapper_port) {
    Endpoint mapper = At(host + ":0");
    Endpoint target = mapper;
    mapper.port = mapper_port;
    target.port = LocalAddress(pair.conventional.get()).port;
    return Ask(mapper, target).state;
  };
  CHECK(ask("127.0.0.1", port) == QueryState::kAccepted);
  CHECK(ask("127.0.0.2", port) == QueryState::kAccepted);  // of no interface, and yet ours
  CHECK(ask("[::1]", v6_port) == QueryState::kAccepted);

  REQUIRE(NetworkNamespace::Ip("addr add 10.9.8.7/32 dev lo"));
  REQUIRE(NetworkNamespace::Ip("addr add fd00::1/128 dev lo nodad"));
  CHECK(Eventually([&] { return Sockets(pmd) == 6; }));
  CHECK(ask("10.9.8.7", port) == QueryState::kAccepted);
  CHECK(ask("[fd00::1]", v6_port) == QueryState::kAccepted);

  REQUIRE(NetworkNamespace::Ip("addr del 10.9.8.7/32 dev lo"));
  CHECK(Eventually([&] { return Sockets(pmd) == 5; }));
  REQUIRE(NetworkNamespace::Ip("addr add 10.9.8.7/32 dev lo"));
  CHECK(Eventually([&] { return Sockets(pmd) == 6; }));
  CHECK(ask("10.9.8.7", port) == QueryState::kAccepted);
  CHECK(ask("127.0.0.1", port) == QueryState::kAccepted);

  // Nobody gets in beside them, not even of the same user.
  for (const char* host : {"0.0.0.0:", "127.0.0.1:", "10.9.8.7:"}) {
    PmdProcess second({"--listen", host + std::to_string(port), "--socket", directory.Path("second.sock")});
    CHECK(second.AwaitExit() == 1);
    CHECK(second.Log().find("is taken") != std::string::npos);
  }
}

TEST_CASE("sockets follow the addresses of a daemon that is no longer root", "[pmd]") {
  const NetworkNamespace network;
  if (!network.entered()) return sdp::test::Skipped("no right to make a network namespace");
  REQUIRE(NetworkNamespace::Ip("link set lo up"));
  const TempDir directory;
  REQUIRE(chmod(directory.Path(".").c_str(), 0755) == 0);
  const std::string path = directory.Path("pmd.sock");
  const PmdProcess pmd({"--listen", "0.0.0.0:0", "--listen", "[::]:0", "--socket", path, "--user", "nobody"});
  CHECK(Sockets(pmd) == 4);
  REQUIRE(NetworkNamespace::Ip("addr add 10.9.8.7/32 dev lo"));
  REQUIRE(NetworkNamespace::Ip("addr add fd00::1/128 dev lo nodad"));
  CHECK(Eventually([&] { return Sockets(pmd) == 6; }));
  const ListenerPair pair("0.0.0.0");
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  const UniqueFd keep(*registration);
  Endpoint mapper = At("10.9.8.7:0");
  Endpoint target = mapper;
  mapper.port = pmd.listen_address(0).port;
  target.port = LocalAddress(pair.conventional.get()).port;
  CHECK(Ask(mapper, target).state == QueryState::kAccepted);
  REQUIRE(NetworkNamespace::Ip("addr del 10.9.8.7/32 dev lo"));
  CHECK(Eventually([&] { return Sockets(pmd) == 5; }));
}

TEST_CASE("a host whose address comes later announces its services by it", "[pmd][central]") {
  const NetworkNamespace network;  // without any address yet
  if (!network.entered()) return sdp::test::Skipped("no right to make a network namespace");
  const TempDir directory;
  REQUIRE(chmod(directory.Path(".").c_str(), 0755) == 0);
  const PmdProcess central({"--listen", "0.0.0.0:0", "--socket", directory.Path("central"), "--user",
                            "nobody", "--serve", "10.0.0.0/8"});
  Endpoint mapper = At("10.0.0.1:0");
  mapper.port = central.listen_address().port;
  const std::string path = directory.Path("host");
  const PmdProcess host({"--listen", "0.0.0.0:0", "--socket", path, "--user", "nobody", "--central",
                         mapper.ToString(), "--lifetime", "1"});
  REQUIRE_FALSE(host.ready_line().empty());
  const ListenerPair pair("0.0.0.0");
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  const UniqueFd keep(*registration);

  REQUIRE(NetworkNamespace::Ip("link set lo up"));
  REQUIRE(NetworkNamespace::Ip("addr add 10.0.0.1/32 dev lo"));
  Endpoint service = mapper;
  service.port = LocalAddress(pair.conventional.get()).port;
  Endpoint sdp = mapper;
  sdp.port = LocalAddress(pair.sdp.get()).port;
  CHECK(Eventually([&] {
    const Answer answer = Ask(mapper, service);
    return answer.state == QueryState::kAccepted && answer.sdp_address == sdp;
  }));
}

TEST_CASE("without --listen it is port 3935 of all addresses", "[pmd]") {
  const NetworkNamespace network;
  if (!network.entered()) return sdp::test::Skipped("no right to make a network namespace");
  REQUIRE(NetworkNamespace::Ip("link set lo up"));
  const TempDir directory;
  const PmdProcess pmd({"--socket", directory.Path("pmd.sock")});
  CHECK(pmd.ready_line().find("ready, 0.0.0.0:3935 [::]:3935, ") != std::string::npos);
  CHECK(Ask(At("127.0.0.1:3935"), At("127.0.0.1:1")).state == QueryState::kDenied);
}

TEST_CASE("one address asked for is one socket", "[pmd]") {
  const TempDir directory;
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd.sock")});
  CHECK(Sockets(pmd) == 1);
}

}  // namespace
}  // namespace sdp::pm
