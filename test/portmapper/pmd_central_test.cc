// A central PMSP and accepting hosts, as processes on loopback: hosts announce, clients ask the PMSP.
#include <sys/socket.h>

#include <csignal>
#include <fstream>

#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// An accepting host: its daemon, and a program of it that listens.
struct Host {
  Host(const TempDir& directory, const std::string& name, const std::string& address, const Endpoint& central,
       const std::vector<std::string>& more = {})
      : path(directory.Path(name)), pair(address), pmd(Arguments(path, central, more)) {
    const auto result = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
    REQUIRE(result.has_value());
    registration = UniqueFd(*result);
  }
  static std::vector<std::string> Arguments(const std::string& path, const Endpoint& central,
                                            const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--listen",  "127.0.0.1:0",      "--socket",   path,
                                          "--central", central.ToString(), "--lifetime", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  [[nodiscard]] Endpoint service() const { return LocalAddress(pair.conventional.get()); }
  [[nodiscard]] Endpoint sdp() const { return LocalAddress(pair.sdp.get()); }

  std::string path;
  ListenerPair pair;
  PmdProcess pmd;
  UniqueFd registration;
};

bool EventuallyAnswers(const PmdProcess& central, const Endpoint& service, const Endpoint& sdp) {
  return Eventually([&] {
    const Answer answer = Ask(central.listen_address(), service);
    return answer.state == QueryState::kAccepted && answer.sdp_address == sdp;
  });
}
bool EventuallyDenies(const PmdProcess& central, const Endpoint& service) {
  return Eventually([&] { return Ask(central.listen_address(), service).state == QueryState::kDenied; });
}

TEST_CASE("a central port mapper answers for hosts that announce to it", "[pmd][central]") {
  const TempDir directory;
  const std::string registry = directory.Path("registry");
  Write(registry, "host 127.0.0.1 127.0.0.2 127.0.0.3\n");
  const PmdProcess central({"--listen", "127.0.0.1:0", "--socket", directory.Path("central"), "--serve",
                            "127.0.0.0/8", "--registry", registry});
  REQUIRE_FALSE(central.ready_line().empty());
  Host two(directory, "two", "127.0.0.2", central.listen_address());
  Host three(directory, "three", "127.0.0.3", central.listen_address());
  CHECK(EventuallyAnswers(central, two.service(), two.sdp()));
  CHECK(EventuallyAnswers(central, three.service(), three.sdp()));
  CHECK(Ask(central.listen_address(), At("127.0.0.2:1")).state == QueryState::kDenied);

  SECTION("a listener that closes is taken back") {
    two.registration.Reset();
    CHECK(EventuallyDenies(central, two.service()));
  }
  SECTION("one whose program keeps the registration too") {
    const Endpoint service = two.service();
    two.pair.conventional.Reset();
    CHECK(EventuallyDenies(central, service));
  }
  SECTION("a daemon that stops takes everything back") {
    two.pmd.Signal(SIGTERM);
    CHECK(two.pmd.AwaitExit() == 0);
    CHECK(EventuallyDenies(central, two.service()));
  }
  SECTION("a daemon that dies is noticed by its silence") {
    two.pmd.Signal(SIGKILL);
    two.pmd.AwaitExit();
    CHECK(EventuallyDenies(central, two.service()));
  }
  SECTION("a new listener is announced at once") {
    const ListenerPair pair("127.0.0.2");
    const auto result = RegisterListener(two.path, pair.conventional.get(), pair.sdp.get(), 5s);
    REQUIRE(result.has_value());
    const UniqueFd keep(*result);
    CHECK(EventuallyAnswers(central, LocalAddress(pair.conventional.get()), LocalAddress(pair.sdp.get())));
  }
  // The others are not touched.
  CHECK(EventuallyAnswers(central, three.service(), three.sdp()));
}

TEST_CASE("a listener on the wildcard is announced with the host's addresses", "[pmd][central]") {
  const TempDir directory;
  const std::string registry = directory.Path("registry");
  Write(registry, "host 127.0.0.1 127.0.0.2\n");
  const PmdProcess central({"--listen", "127.0.0.1:0", "--socket", directory.Path("central"), "--serve",
                            "127.0.0.0/8", "--registry", registry});
  const Host host(directory, "host", "0.0.0.0", central.listen_address(),
                  {"--address", "127.0.0.1", "--address", "127.0.0.2"});
  for (const char* address : {"127.0.0.1", "127.0.0.2"}) {
    Endpoint service = At(std::string(address) + ":1");
    Endpoint sdp = service;
    service.port = host.service().port;
    sdp.port = host.sdp().port;
    CHECK(EventuallyAnswers(central, service, sdp));
  }
  CHECK(Ask(central.listen_address(), Endpoint{IpVersion::kV4, {127, 0, 0, 3}, host.service().port}).state ==
        QueryState::kDenied);
}

TEST_CASE("a central port mapper that comes back is told everything again", "[pmd][central]") {
  const TempDir directory;
  const std::string path = directory.Path("central");
  PmdProcess first({"--listen", "127.0.0.1:0", "--socket", path, "--serve", "127.0.0.1"});
  const Endpoint address = first.listen_address();
  const Host host(directory, "host", "127.0.0.1", address);
  REQUIRE(EventuallyAnswers(first, host.service(), host.sdp()));
  first.Signal(SIGKILL);
  first.AwaitExit();
  const PmdProcess second({"--listen", address.ToString(), "--socket", path, "--serve", "127.0.0.1"});
  CHECK(EventuallyAnswers(second, host.service(), host.sdp()));
}

TEST_CASE("a service fails over to the host that is left, and back", "[pmd][central]") {
  const TempDir directory;
  const std::string registry = directory.Path("registry");
  Write(registry, "host 127.0.0.1 127.0.0.2 127.0.0.3\n");
  const PmdProcess central({"--listen", "127.0.0.1:0", "--socket", directory.Path("central"), "--serve",
                            "127.0.0.0/8", "--registry", registry});
  auto two = std::make_unique<Host>(directory, "two", "127.0.0.2", central.listen_address());
  const Host three(directory, "three", "127.0.0.3", central.listen_address());
  const Endpoint service = At("127.0.0.100:80");
  CHECK(Ask(central.listen_address(), service).state == QueryState::kDenied);
  // The administrator writes the service down, and says so.
  Write(registry, "host 127.0.0.1 127.0.0.2 127.0.0.3\nbalance 127.0.0.100:80 over " +
                      two->service().ToString() + "\nbalance 127.0.0.100:80 over " +
                      three.service().ToString() + " priority 1\n");
  central.Signal(SIGHUP);
  CHECK(EventuallyAnswers(central, service, two->sdp()));
  two->pmd.Signal(SIGKILL);
  CHECK(EventuallyAnswers(central, service, three.sdp()));
}

TEST_CASE("hosts named by --serve stand for other addresses", "[pmd][central]") {
  const TempDir directory;
  const std::string registry = directory.Path("registry");
  Write(registry, "host 127.0.0.1 127.0.0.2 127.0.0.3\n");
  const PmdProcess central({"--listen", "127.0.0.1:0", "--socket", directory.Path("central"), "--serve",
                            "127.0.9.0/24=127.0.0.2,127.0.0.3", "--registry", registry});
  auto two = std::make_unique<Host>(directory, "two", "127.0.0.2", central.listen_address());
  const Host three(directory, "three", "127.0.0.3", central.listen_address());
  const auto asked = [](const Endpoint& service) {
    return Endpoint{IpVersion::kV4, {127, 0, 9, 1}, service.port};
  };
  CHECK(EventuallyAnswers(central, asked(two->service()), two->sdp()));
  CHECK(EventuallyAnswers(central, asked(three.service()), three.sdp()));
  CHECK(EventuallyAnswers(central, three.service(), three.sdp()));  // under its own address, too
  const Endpoint of_two = asked(two->service());
  two->pmd.Signal(SIGKILL);
  CHECK(EventuallyDenies(central, of_two));
}

TEST_CASE("a bad registry is told with its line, and changes nothing", "[pmd][central]") {
  const TempDir directory;
  const std::string registry = directory.Path("registry");
  Write(registry, "map 127.0.0.1:80 to 127.0.0.1:7000\nmap 127.0.0.1:81 127.0.0.1:7001\n");
  PmdProcess failed({"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd"), "--registry", registry});
  CHECK(failed.AwaitExit() == 1);
  CHECK(Contains(failed.Log(), registry + ":2:18: expected \"to\""));

  Write(registry, "map 127.0.0.1:80 to 127.0.0.1:7000\n");
  const PmdProcess pmd(
      {"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd"), "--registry", registry});
  const auto answers = [&] { return Ask(pmd.listen_address(), At("127.0.0.1:80")).sdp_address; };
  CHECK(answers() == At("127.0.0.1:7000"));
  Write(registry, "nonsense\n\nserve here\n");
  pmd.Signal(SIGHUP);
  CHECK(Eventually([&] { return Contains(pmd.Log(), "the registry stays as it was\n"); }));
  // A line for each mistake.
  for (const char* place : {":1:1: expected", ":3:7: expected"})
    CHECK(Contains(pmd.Log(), "sdp-pmd: error: " + registry + place));
  CHECK(answers() == At("127.0.0.1:7000"));
  Write(registry, "map 127.0.0.1:80 to 127.0.0.1:7001\n");
  pmd.Signal(SIGHUP);
  CHECK(Eventually([&] { return answers() == At("127.0.0.1:7001"); }));
}

TEST_CASE("an access list and a pool deny as they should", "[pmd][central]") {
  const TempDir directory;
  const std::string registry = directory.Path("registry");
  Write(
      registry,
      "deny 127.0.0.1 to *:81\nmap 127.0.0.1:80 to 127.0.0.1:7000-7001\nmap 127.0.0.1:81 to 127.0.0.1:7100\n"
      "pmtime 0 for *:80\n");
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd"), "--registry", registry,
                        "--ack-timeout", "600000"});
  CHECK(Ask(pmd.listen_address(), At("127.0.0.1:81")).state == QueryState::kDenied);
  // These clients never say PMAck.
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(pmd.listen_address(), &name);
  REQUIRE(connect(udp.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  const auto ask = [&](uint64_t handle, uint16_t port) {
    Endpoint cp = At("127.0.0.1:1");
    cp.port = port;
    const Datagram question =
        Serialize({MessageType::kReq, PmTime(0), AssocHandle(handle), cp, At("127.0.0.1:80")});
    REQUIRE(send(udp.get(), question.data(), question.size(), 0) == 48);
    Datagram answer;
    REQUIRE(recv(udp.get(), answer.data(), answer.size(), 0) == 48);
    return Parsed(answer);
  };
  const PmMessage first = ask(1, 4001);
  CHECK(first.type == MessageType::kAccept);
  CHECK(first.pm_time == PmTime(0));
  CHECK(ask(1, 4001) == first);  // a duplicate
  const PmMessage second = ask(2, 4002);
  CHECK(second.type == MessageType::kAccept);
  CHECK(second.ap.port != first.ap.port);
  CHECK(ask(3, 4003).type == MessageType::kDeny);
  // The PMAck makes room.
  PmMessage ack = first;
  ack.type = MessageType::kAck;
  ack.pm_time = PmTime(0);
  const Datagram datagram = Serialize(ack);
  REQUIRE(send(udp.get(), datagram.data(), datagram.size(), 0) == 48);
  CHECK(ask(4, 4004).ap.port == first.ap.port);
}

TEST_CASE("options that make no sense are refused with what to type instead", "[pmd][central]") {
  const TempDir directory;
  struct Row {
    std::vector<std::string> arguments;
    const char* message;
  };
  const Row row =
      GENERATE(Row{{"--serve", "10.0.0.1/8"}, "10.0.0.0/8"},
               Row{{"--serve", "10.0.0.0/8=host"}, "10.0.0.9=10.0.0.1,10.0.0.2"},
               Row{{"--central", "host"}, "an IP address"}, Row{{"--central", "0.0.0.0"}, "an IP address"},
               Row{{"--address", "10.0.0.1:80"}, "an IP address"}, Row{{"--lifetime", "0"}, "--lifetime"},
               Row{{"--registry", "/nonexistent"}, "/nonexistent"},
               Row{{"--registry", "/dev/null"}, "regular file"}, Row{{"--ack-timeout", "1"}, "--ack-timeout"},
               Row{{"--listen", "127.255.255.255"}, "--listen 127.255.255.255:3935: a broadcast address"},
               Row{{"--listen", "255.255.255.255"}, "an IP address of this host"},
               Row{{"--metrics", "0.0.0.0:80"}, "loopback"},
               Row{{"--socket", ""}, "--socket : a socket's path has 1 to 107 bytes"},
               Row{{"--socket", std::string(200, 'x')}, "a socket's path has 1 to 107 bytes"});
  CAPTURE(row.arguments);
  std::vector<std::string> all = {"--listen", "127.0.0.1:0"};
  if (row.arguments[0] != "--socket") all.insert(all.end(), {"--socket", directory.Path("pmd")});
  all.insert(all.end(), row.arguments.begin(), row.arguments.end());
  PmdProcess pmd(all);
  // What is wrong with a file is no mistake of usage.
  CHECK(pmd.AwaitExit() == (row.arguments[0] == "--registry" ? 1 : 2));
  CHECK(Contains(pmd.Log(), row.message));
}

}  // namespace
}  // namespace sdp::pm
