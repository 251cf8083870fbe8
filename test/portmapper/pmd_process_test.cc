// sdp-pmd as a process: start, restart, stop, and what it says when it cannot.
#include "test/portmapper/pmd_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

bool Exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("it says where it is reached, once", "[pmd]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--socket", path});
  const std::string expected = "sdp-pmd: ready, " + pmd.listen_address(0).ToString() + " " +
                               pmd.listen_address(1).ToString() + ", " + path;
  CHECK(pmd.ready_line() == expected);
  CHECK(pmd.listen_address(0).port != 0);
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == (geteuid() == 0 ? 0666 : 0600));
}

TEST_CASE("SIGTERM and SIGINT stop it cleanly", "[pmd]") {
  const int signal = GENERATE(SIGTERM, SIGINT);
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path});
  REQUIRE(Exists(path));
  pmd.Signal(signal);
  CHECK(pmd.AwaitExit() == 0);
  CHECK_FALSE(Exists(path));
}

TEST_CASE("a client sees the daemon go", "[pmd]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const ListenerPair pair("127.0.0.1");
  PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path});
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  const UniqueFd fd(*registration);
  pmd.Signal(GENERATE(SIGTERM, SIGKILL));
  pmd.AwaitExit();
  CHECK(AwaitEnd(fd.get()));
}

TEST_CASE("it replaces the socket that a killed daemon left", "[pmd]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  PmdProcess killed({"--listen", "127.0.0.1:0", "--socket", path});
  killed.Signal(SIGKILL);
  CHECK(killed.AwaitExit() == -1);
  REQUIRE(Exists(path));
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path});
  CHECK_FALSE(pmd.ready_line().empty());
  const ListenerPair pair("127.0.0.1");
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  close(*registration);
}

TEST_CASE("it does not take a running daemon's socket, and leaves it alone when it fails", "[pmd]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const PmdProcess running({"--listen", "127.0.0.1:0", "--socket", path});
  PmdProcess second({"--listen", "127.0.0.1:0", "--socket", path});
  CHECK(second.AwaitExit() == 1);
  CHECK(second.ready_line().empty());
  CHECK(Contains(second.Log(), "another sdp-pmd is running: it answers on " + path));
  const ListenerPair pair("127.0.0.1");
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  close(*registration);
}

TEST_CASE("it removes no file that is not a socket", "[pmd]") {
  const TempDir directory;
  const std::string path = directory.Path("precious");
  std::ofstream(path) << "data";
  PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path});
  CHECK(pmd.AwaitExit() == 1);
  CHECK(Contains(pmd.Log(), "exists and is not a socket"));
  CHECK(Exists(path));
}

TEST_CASE("it does not unlink a socket that is no longer its own", "[pmd]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  PmdProcess first({"--listen", "127.0.0.1:0", "--socket", path});
  REQUIRE(unlink(path.c_str()) == 0);
  const PmdProcess second({"--listen", "127.0.0.1:0", "--socket", path});
  first.Signal(SIGTERM);
  CHECK(first.AwaitExit() == 0);
  CHECK(Exists(path));
}

TEST_CASE("an address of another host is explained", "[pmd]") {
  const TempDir directory;
  PmdProcess pmd({"--listen", "192.0.2.1:0", "--socket", directory.Path("pmd.sock")});
  CHECK(pmd.AwaitExit() == 1);
  CHECK(Contains(pmd.Log(), "192.0.2.1:0: this host has no such address"));
}

TEST_CASE("a taken UDP port is explained", "[pmd]") {
  const TempDir directory;
  const PmdProcess running({"--listen", "127.0.0.1:0", "--socket", directory.Path("a.sock")});
  PmdProcess second({"--listen", running.listen_address().ToString(), "--socket", directory.Path("b.sock")});
  CHECK(second.AwaitExit() == 1);
  CHECK(Contains(second.Log(), "UDP port " + std::to_string(running.listen_address().port) + " is taken"));
  CHECK(Contains(second.Log(), "by process " + std::to_string(running.pid()) + " (sdp-pmd) of user "));
  CHECK(Contains(second.Log(), "--listen"));
  CHECK_FALSE(Exists(directory.Path("b.sock")));
}

TEST_CASE("--ready-fd is written to and closed", "[pmd]") {
  const TempDir directory;
  int ends[2];
  REQUIRE(pipe(ends) == 0);  // inherited: not close-on-exec
  const UniqueFd from_pmd(ends[0]);
  UniqueFd to_pmd(ends[1]);
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd.sock"), "--ready-fd",
                        std::to_string(to_pmd.get())});
  to_pmd.Reset();
  std::string text(16, '\0');
  REQUIRE(read(from_pmd.get(), text.data(), text.size()) == 6);
  CHECK(text.substr(0, 6) == "ready\n");
  CHECK(read(from_pmd.get(), text.data(), text.size()) == 0);
}

TEST_CASE("SIGUSR1 shows registrations and counters", "[pmd]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path});
  const ListenerPair pair("127.0.0.1");
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  const UniqueFd fd(*registration);
  CHECK(Ask(pmd.listen_address(), LocalAddress(pair.conventional.get())).state == QueryState::kAccepted);
  pmd.Signal(SIGUSR1);
  const std::string line = LocalAddress(pair.conventional.get()).ToString() + " -> " +
                           LocalAddress(pair.sdp.get()).ToString() + " (user " + std::to_string(geteuid()) +
                           " process " + std::to_string(getpid()) + ")";
  CHECK(Eventually([&] { return Contains(pmd.Log(), line) && Contains(pmd.Log(), "requests 1 "); }));
}

TEST_CASE("bad options are refused with a message", "[pmd]") {
  const TempDir directory;
  const auto arguments =
      GENERATE(std::vector<std::string>{"--listen", "nonsense"}, std::vector<std::string>{"--pmtime", "256"},
               std::vector<std::string>{"--log-level", "loud"}, std::vector<std::string>{"--frobnicate"});
  std::vector<std::string> all = {"--socket", directory.Path("pmd.sock")};
  all.insert(all.end(), arguments.begin(), arguments.end());
  PmdProcess pmd(all);
  CHECK(pmd.AwaitExit() > 0);
  CHECK_FALSE(pmd.Log().empty());
}

TEST_CASE("--pmtime is what clients are told", "[pmd]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path, "--pmtime", "131"});
  const ListenerPair pair("127.0.0.1");
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  const UniqueFd fd(*registration);
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(pmd.listen_address(), &name);
  const Datagram question = Serialize({MessageType::kReq, PmTime(0), AssocHandle(1), At("127.0.0.1:9"),
                                       LocalAddress(pair.conventional.get())});
  REQUIRE(sendto(udp.get(), question.data(), question.size(), 0, reinterpret_cast<const sockaddr*>(&name),
                 length) == 48);
  Datagram answer;
  REQUIRE(recv(udp.get(), answer.data(), answer.size(), 0) == 48);
  CHECK(Parsed(answer).pm_time == PmTime(131));
}

}  // namespace
}  // namespace sdp::pm
