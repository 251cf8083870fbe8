// The daemon's local side without a process around it: bounds, time-outs in virtual time, and what is done
// with strange descriptors.
#include "portmapper/daemon/local_server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include "portmapper/daemon/foreign_descriptors.h"
#include "portmapper/daemon/listener_watch.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

struct Fixture {
  explicit Fixture(LocalServerOptions options = {}) {
    SetLogLevel(LogLevel::kError);
    options.path = path;
    auto opened = LocalServer::Open(options, &server);
    REQUIRE(opened.ok());
    local = *std::move(opened);
  }

  // Lets the server do all there is to do now.
  void Settle(Time now) {
    for (int i = 0; i < 4; ++i) local->HandleReadable(now);
    local->HandleTimeout(now);
  }
  UniqueFd Register(const ListenerPair& pair, Time now) {
    UniqueFd connection = ConnectLocal(path);
    REQUIRE(SendLocal(connection.get(), Serialize(RegisterRequest{}),
                      std::vector<int>{pair.conventional.get(), pair.sdp.get()}));
    Settle(now);
    REQUIRE(AwaitReply(connection.get())->refusal == Refusal::kNone);
    return connection;
  }

  TempDir directory;
  std::string path = directory.Path("pmd.sock");
  PmServer server;
  std::unique_ptr<LocalServer> local;
};

TEST_CASE("a client that says nothing has until its limit", "[local_server]") {
  Fixture f;
  const UniqueFd connection = ConnectLocal(f.path);
  f.Settle(Ms(5000));
  CHECK(f.local->clients() == 1);
  CHECK(f.local->NextTimeout() == Ms(6000));
  f.Settle(Ms(5999));
  CHECK(f.local->clients() == 1);
  f.Settle(Ms(6000));
  CHECK(f.local->clients() == 0);
  CHECK(f.local->counters().dropped == 1);
  CHECK(AwaitEnd(connection.get()));
}

TEST_CASE("a user who registers again and again does not fill the log", "[local_server]") {
  Fixture f;
  SetLogLevel(LogLevel::kInfo);
  const ListenerPair pair("127.0.0.1");
  const UniqueFd log(memfd_create("log", MFD_CLOEXEC));
  const UniqueFd before(dup(STDERR_FILENO));
  dup2(log.get(), STDERR_FILENO);
  const auto register_and_end = [&](Time now) {
    f.Register(pair, now);
    f.Settle(now);
  };
  for (int i = 0; i < 300; ++i) register_and_end(Ms(100'000));
  register_and_end(Ms(110'000));
  dup2(before.get(), STDERR_FILENO);
  std::string text(1 << 20, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(pread(log.get(), text.data(), text.size(), 0), 0)));
  CHECK(std::count(text.begin(), text.end(), '\n') == 202);
  CHECK(text.find(" (400 more lines suppressed)\n") != std::string::npos);
}

TEST_CASE("a registered client has no limit, and does not keep silent ones alive", "[local_server]") {
  Fixture f;
  const ListenerPair pair("127.0.0.1");
  const UniqueFd registered = f.Register(pair, Ms(0));
  const UniqueFd silent = ConnectLocal(f.path);
  f.Settle(Ms(10));
  CHECK(f.local->clients() == 2);
  f.Settle(Ms(100000));
  CHECK(f.local->clients() == 1);
  CHECK(f.server.registrations().size() == 1);
  CHECK(f.local->NextTimeout() == kNever);
}

TEST_CASE("a greeting is answered, once, and buys no time", "[local_server]") {
  Fixture f;
  const ListenerPair pair("127.0.0.1");
  const UniqueFd connection = ConnectLocal(f.path);
  REQUIRE(SendLocal(connection.get(), Serialize(Greeting{}), {}));
  f.Settle(Ms(5000));
  CHECK(AwaitReply(connection.get())->refusal == Refusal::kNone);
  CHECK(f.server.registrations().size() == 0);
  CHECK(f.local->NextTimeout() == Ms(6000));
  SECTION("the request follows") {
    REQUIRE(SendLocal(connection.get(), Serialize(RegisterRequest{}),
                      std::vector<int>{pair.conventional.get(), pair.sdp.get()}));
    f.Settle(Ms(5999));
    CHECK(AwaitReply(connection.get())->refusal == Refusal::kNone);
    CHECK(f.server.registrations().size() == 1);
    CHECK(f.local->NextTimeout() == kNever);
  }
  SECTION("the time is over") {
    f.Settle(Ms(6000));
    CHECK(f.local->clients() == 0);
    CHECK(AwaitEnd(connection.get()));
  }
  SECTION("another greeting is refused") {
    REQUIRE(SendLocal(connection.get(), Serialize(Greeting{}), {}));
    f.Settle(Ms(5001));
    CHECK(AwaitReply(connection.get())->refusal == Refusal::kBadVersion);
    CHECK(AwaitEnd(connection.get()));
  }
}

TEST_CASE("a greeting has no descriptors", "[local_server]") {
  Fixture f;
  const ListenerPair pair("127.0.0.1");
  const UniqueFd connection = ConnectLocal(f.path);
  REQUIRE(SendLocal(connection.get(), Serialize(Greeting{}), std::vector<int>{pair.conventional.get()}));
  f.Settle(Ms(0));
  CHECK(AwaitReply(connection.get())->refusal == Refusal::kBadVersion);
  CHECK(f.local->clients() == 0);
}

TEST_CASE("clients above the bounds are told and dropped", "[local_server]") {
  LocalServerOptions options;
  SECTION("of one user") { options.max_clients_per_user = 2; }
  SECTION("of all") { options.max_clients = 2; }
  Fixture f(options);
  const ListenerPair pair("127.0.0.1");
  UniqueFd first = f.Register(pair, Ms(0));
  const UniqueFd second = f.Register(ListenerPair("127.0.0.1"), Ms(0));
  const UniqueFd third = ConnectLocal(f.path);
  f.Settle(Ms(1));
  CHECK(AwaitReply(third.get())->refusal == Refusal::kTooMany);
  CHECK(AwaitEnd(third.get()));
  CHECK(f.local->clients() == 2);
  first.Reset();
  f.Settle(Ms(2));
  CHECK(f.local->clients() == 1);
  const UniqueFd fourth = f.Register(pair, Ms(3));
}

TEST_CASE("a kernel RNIC's listener is proven by the conventional one", "[local_server]") {
  Fixture f;
  const auto said = [&](const std::string& conventional, std::string_view sdp, size_t descriptors) {
    const ListenerPair pair(conventional);
    const UniqueFd connection = ConnectLocal(f.path);
    const int fds[2] = {pair.conventional.get(), pair.sdp.get()};
    Endpoint address = At(sdp);
    if (address.port == 1) address.port = LocalAddress(pair.conventional.get()).port;
    REQUIRE(SendLocal(connection.get(), Serialize(RnicRequest{address}), std::span(fds, descriptors)));
    f.Settle(Ms(0));
    return AwaitReply(connection.get())->refusal;
  };
  CHECK(said("127.0.0.1", "127.0.0.1:7", 1) == Refusal::kNone);
  CHECK(said("0.0.0.0", "127.0.0.1:7", 1) == Refusal::kNone);
  CHECK(said("[::]", "127.0.0.1:7", 1) == Refusal::kNone);
  CHECK(said("[::]", "[::1]:7", 1) == Refusal::kNone);
  CHECK(said("[::ffff:127.0.0.1]", "127.0.0.1:7", 1) == Refusal::kNone);
  CHECK(said("127.0.0.1", "127.0.0.2:7", 1) == Refusal::kAddressMismatch);
  CHECK(said("0.0.0.0", "[::1]:7", 1) == Refusal::kAddressMismatch);
  CHECK(said("0.0.0.0", "0.0.0.0:7", 1) == Refusal::kAddressMismatch);
  CHECK(said("0.0.0.0", "224.0.0.1:7", 1) == Refusal::kAddressMismatch);
  CHECK(said("0.0.0.0", "192.0.2.77:7", 1) == Refusal::kAddressMismatch);  // not this host's
  CHECK(said("0.0.0.0", "127.0.0.1:0", 1) == Refusal::kAddressMismatch);
  CHECK(said("0.0.0.0", "127.0.0.1:1", 1) == Refusal::kAddressMismatch);  // the conventional port itself
  CHECK(said("0.0.0.0", "127.0.0.1:7", 0) == Refusal::kBadDescriptors);
  CHECK(said("0.0.0.0", "127.0.0.1:7", 2) == Refusal::kBadDescriptors);
}

TEST_CASE("a listener that closed is noticed by whoever asks for it", "[local_server]") {
  Fixture f;
  const auto address = GENERATE("127.0.0.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]");
  CAPTURE(address);
  ListenerPair pair(address);
  const UniqueFd connection = f.Register(pair, Ms(0));
  const RegistrationId id = f.server.registrations().List().at(0).first;
  CHECK(f.local->VerifyAlive(id, Ms(1000)));
  pair.conventional.Reset();
  CHECK(f.local->VerifyAlive(id, Ms(1005)));  // looked at 5 ms ago
  CHECK_FALSE(f.local->VerifyAlive(id, Ms(1010)));
  CHECK(f.server.registrations().size() == 0);
  CHECK(f.local->counters().vanished == 1);
  CHECK(f.local->clients() == 0);
  CHECK(AwaitEnd(connection.get()));
}

TEST_CASE("a closed member of an SO_REUSEPORT group is told from the open ones", "[local_server]") {
  Fixture f;
  ListenerPair pair("127.0.0.1");
  const std::string address = LocalAddress(pair.conventional.get()).ToString();
  std::vector<UniqueFd> group;
  for (int i = 0; i < 20; ++i) group.push_back(TcpSocket(address));
  const UniqueFd connection = f.Register(pair, Ms(0));
  const RegistrationId id = f.server.registrations().List().at(0).first;
  CHECK(f.local->VerifyAlive(id, Ms(1000)));
  pair.conventional.Reset();
  CHECK_FALSE(f.local->VerifyAlive(id, Ms(2000)));
}

TEST_CASE("a listener that shut down no longer listens", "[local_server]") {
  Fixture f;
  const ListenerPair pair("127.0.0.1");
  const UniqueFd connection = f.Register(pair, Ms(0));
  const RegistrationId id = f.server.registrations().List().at(0).first;
  REQUIRE(shutdown(pair.conventional.get(), SHUT_RD) == 0);
  CHECK_FALSE(f.local->VerifyAlive(id, Ms(1000)));
}

TEST_CASE("without netlink /proc tells the same", "[local_server]") {
  const auto address = GENERATE("127.0.0.1", "[::]", "[::ffff:127.0.0.1]");
  ListenerPair pair(address);
  const auto netns = OwnNetworkNamespace();
  REQUIRE(netns.ok());
  const auto proof = ProveListener(std::vector<int>{pair.conventional.get(), pair.sdp.get()}, *netns);
  REQUIRE(proof.has_value());
  CHECK(ListensAccordingToProc(proof->conventional));
  CHECK(ListenerWatch().StillListening(proof->conventional));
  pair.conventional.Reset();
  CHECK_FALSE(ListensAccordingToProc(proof->conventional));
  CHECK_FALSE(ListenerWatch().StillListening(proof->conventional));
}

TEST_CASE("a log limiter lets a burst through and counts the rest", "[log]") {
  LogLimiter limiter(2);
  uint64_t suppressed = 99;
  CHECK(limiter.Allow(Ms(100000), &suppressed));
  CHECK(suppressed == 0);
  CHECK(limiter.Allow(Ms(100001), &suppressed));
  for (int i = 0; i < 5; ++i) CHECK_FALSE(limiter.Allow(Ms(100002), &suppressed));
  CHECK(limiter.Allow(Ms(110000), &suppressed));
  CHECK(suppressed == 5);
}

TEST_CASE("a log line is for people, for the journal or for programs", "[log]") {
  constexpr int64_t kThen = 1'795'248'000'123'456'789;
  const auto format = [](LogFormat f, LogLevel level, bool journal) {
    return FormatLogLine(f, level, "a \"b\" \\ c\nd", kThen, 7, journal);
  };
  CHECK(format(LogFormat::kText, LogLevel::kInfo, false) == "sdp-pmd: a \"b\" \\ c\nd\n");
  CHECK(format(LogFormat::kText, LogLevel::kError, true) == "<3>sdp-pmd: error: a \"b\" \\ c\nd\n");
  CHECK(format(LogFormat::kLogfmt, LogLevel::kDebug, true) ==
        "time=2026-11-21T08:00:00.123Z level=debug pid=7 msg=\"a \\\"b\\\" \\\\ c\\u000ad\"\n");
  CHECK(format(LogFormat::kJson, LogLevel::kInfo, false) ==
        "{\"time\":\"2026-11-21T08:00:00.123Z\",\"level\":\"info\",\"pid\":7,\"msg\":\"a \\\"b\\\" \\\\ "
        "c\\u000ad\"}\n");
}

TEST_CASE("the socket is unlinked at the end", "[local_server]") {
  Fixture f;
  CHECK(access(f.path.c_str(), F_OK) == 0);
  f.local.reset();
  CHECK(access(f.path.c_str(), F_OK) != 0);
}

TEST_CASE("strange descriptors are closed in the background and counted until they are", "[foreign]") {
  ForeignDescriptors foreign;
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]);
  foreign.Close(ends[1], 1000);
  char c;
  CHECK(read(reader.get(), &c, 1) == 0);  // the end comes when the writer is closed
  CHECK(Eventually([&] { return foreign.Pending(1000) == 0; }));
  CHECK(foreign.Pending(1001) == 0);
}

TEST_CASE("internet sockets are closed at once", "[foreign]") {
  ForeignDescriptors foreign;
  const size_t before = CountDescriptors(getpid());
  UniqueFd tcp = TcpSocket("127.0.0.1:0");
  foreign.Close(tcp.Release(), 1000);
  CHECK(CountDescriptors(getpid()) == before);
  CHECK(foreign.Pending(1000) == 0);
}

}  // namespace
}  // namespace sdp::pm
