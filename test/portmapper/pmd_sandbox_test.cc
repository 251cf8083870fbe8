// What the daemon may still do once it serves, and what it tells the service manager.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "portmapper/daemon/service_manager.h"
#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"
#include "test/support/skipped.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

// What /proc says of a process, such as "Uid" and the words behind it.
std::string StatusOf(pid_t pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, field.size() + 2, field + ":\t") == 0) return line.substr(field.size() + 2);
  }
  return {};
}

constexpr bool Sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

TEST_CASE("it gains no rights and makes no other system calls", "[pmd][sandbox]") {
  const TempDir directory;
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd.sock")});
  REQUIRE_FALSE(pmd.ready_line().empty());
  CHECK(StatusOf(pmd.pid(), "NoNewPrivs") == "1");
  if (Sanitized()) return sdp::test::SkippedInPart("no filter of system calls beside a sanitizer's run time");
  CHECK(StatusOf(pmd.pid(), "Seccomp") == "2");
  const PmdProcess open({"--listen", "127.0.0.1:0", "--socket", directory.Path("b.sock"), "--no-seccomp"});
  REQUIRE_FALSE(open.ready_line().empty());
  CHECK(StatusOf(open.pid(), "Seccomp") == "0");
}

TEST_CASE("it runs with its output thrown away", "[pmd][sandbox]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path}, PmdProcess::Output::kNowhere);
  REQUIRE(Eventually([&] { return access(path.c_str(), F_OK) == 0; }));
  pmd.Signal(SIGUSR1);  // it prints its counters
  REQUIRE(Eventually([&] { return pmd.Log().find("udp:") != std::string::npos; }));
  pmd.Signal(SIGTERM);
  CHECK(pmd.AwaitExit() == 0);
}

TEST_CASE("root's daemon becomes another user and serves all the same", "[pmd][sandbox]") {
  if (geteuid() != 0) return sdp::test::Skipped("only root can become another user");
  const TempDir directory;
  const std::string registry = directory.Path("registry");
  std::ofstream(registry) << "";
  REQUIRE(chmod(directory.Path(".").c_str(), 0755) == 0);
  const std::string path = directory.Path("pmd.sock");
  PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path, "--user", "nobody", "--registry", registry});
  REQUIRE_FALSE(pmd.ready_line().empty());
  const std::string uid = StatusOf(pmd.pid(), "Uid");
  CHECK(uid.find("65534\t65534\t65534\t65534") == 0);
  CHECK(StatusOf(pmd.pid(), "Gid").find("65534\t65534\t65534\t65534") == 0);
  CHECK(StatusOf(pmd.pid(), "Groups").find_first_not_of(" \t") == std::string::npos);
  for (const char* set : {"CapEff", "CapPrm", "CapInh", "CapAmb"})
    CHECK(StatusOf(pmd.pid(), set) == "0000000000000000");

  // Root's program trusts it: it was root who bound the socket. And it notices a listener that goes, as
  // before.
  ListenerPair pair("127.0.0.1");
  const Endpoint service = LocalAddress(pair.conventional.get());
  const auto result = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(result.has_value());
  const UniqueFd keep(*result);
  CHECK(Ask(pmd.listen_address(), service).state == QueryState::kAccepted);
  std::ofstream(registry) << "map 127.0.0.1:80 to 127.0.0.1:7000\n";
  pmd.Signal(SIGHUP);
  CHECK(Eventually(
      [&] { return Ask(pmd.listen_address(), At("127.0.0.1:80")).state == QueryState::kAccepted; }));
  pair.conventional.Reset();
  CHECK(Eventually([&] { return Ask(pmd.listen_address(), service).state == QueryState::kDenied; }));
  pmd.Signal(SIGTERM);
  CHECK(pmd.AwaitExit() == 0);
}

TEST_CASE("a user who is not there, or not ours to be, is told", "[pmd][sandbox]") {
  const TempDir directory;
  PmdProcess pmd(
      {"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd.sock"), "--user", "no-such-user"});
  CHECK(pmd.AwaitExit() == 2);
  CHECK(pmd.Log().find("no user no-such-user") != std::string::npos);
}

// A service manager's socket.
struct Manager {
  Manager() : fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = directory.Path("notify");
    std::copy(path.begin(), path.end(), address.sun_path);
    REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~Manager() {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
  // The next message; empty after 10 s without one.
  [[nodiscard]] std::string Hear() const {
    pollfd readable{fd.get(), POLLIN, 0};
    if (poll(&readable, 1, 10000) != 1) return {};
    std::string text(4096, '\0');
    const ssize_t length = recv(fd.get(), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
    return text;
  }
  TempDir directory;
  UniqueFd fd;
};

TEST_CASE("the service manager hears of readiness, reload, life and end", "[pmd][sandbox]") {
  const Manager manager;
  setenv("WATCHDOG_USEC", "100000", 1);
  PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", manager.directory.Path("pmd.sock")});
  const std::string ready = manager.Hear();
  CHECK(ready.find("READY=1\nSTATUS=127.0.0.1:") == 0);
  for (int i = 0; i < 3; ++i) CHECK(manager.Hear() == "WATCHDOG=1");
  pmd.Signal(SIGHUP);
  std::string message;
  while ((message = manager.Hear()) == "WATCHDOG=1") {
  }
  CHECK(message.find("RELOADING=1\nMONOTONIC_USEC=") == 0);
  CHECK(manager.Hear().find("READY=1\n") == 0);
  pmd.Signal(SIGTERM);
  while ((message = manager.Hear()) == "WATCHDOG=1") {
  }
  CHECK(message == "STOPPING=1");
  CHECK(pmd.AwaitExit() == 0);
}

const char* g_socket = nullptr;
const char* g_watchdog = nullptr;
const char* g_watchdog_pid = nullptr;
char* Environment(const char* name) {
  const std::string_view variable = name;
  const char* value = variable == "NOTIFY_SOCKET"   ? g_socket
                      : variable == "WATCHDOG_USEC" ? g_watchdog
                      : variable == "WATCHDOG_PID"  ? g_watchdog_pid
                                                    : nullptr;
  return const_cast<char*>(value);
}

TEST_CASE("without a service manager, or with a strange one, nothing is said", "[sandbox]") {
  const std::string long_path = "/" + std::string(200, 'x');
  for (const char* path :
       {static_cast<const char*>(nullptr), "", "relative", "@", "/nonexistent/notify", long_path.c_str()}) {
    g_socket = path;
    ServiceManager manager(Environment);
    CHECK_FALSE(manager.IsThere());
    CHECK(manager.NextTimeout() == kNever);
    manager.Ready("x");
    manager.Reloading(Ms(1));
    manager.Stopping();
    manager.HandleTimeout(Ms(1));
  }
}

TEST_CASE("the watchdog is fed twice as often as it bites, and only if it is ours", "[sandbox]") {
  const Manager there;
  const std::string path = there.directory.Path("notify");
  const std::string pid = std::to_string(getpid());
  g_socket = path.c_str();
  g_watchdog = "2000000";
  g_watchdog_pid = pid.c_str();
  ServiceManager ours(Environment);
  ours.HandleTimeout(Ms(5000));
  CHECK(ours.NextTimeout() == Ms(6000));
  ours.HandleTimeout(Ms(5999));
  CHECK(ours.NextTimeout() == Ms(6000));
  ours.HandleTimeout(Ms(6001));
  CHECK(ours.NextTimeout() == Ms(7001));
  CHECK(there.Hear() == "WATCHDOG=1");
  CHECK(there.Hear() == "WATCHDOG=1");
  g_watchdog_pid = "1";
  CHECK(ServiceManager(Environment).NextTimeout() == kNever);
  g_watchdog_pid = nullptr;
  for (const char* strange : {"", "-5", "x", "0", "99999999999999999999999"}) {
    g_watchdog = strange;
    CHECK(ServiceManager(Environment).NextTimeout() == kNever);
  }
}

}  // namespace
}  // namespace sdp::pm
