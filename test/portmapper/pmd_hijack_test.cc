// Local clients that lie, overreach or misbehave: each gets its refusal, nothing leaks, and the service goes
// on.
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>

#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"
#include "test/support/in_child.h"
#include "test/support/skipped.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

// One daemon for all of them: what one leaves behind shows in the next, and in the count of descriptors.
struct Attack {
  Attack() : before(CountDescriptors(pmd().pid())) {}
  ~Attack() {
    CHECK(Eventually([&] { return CountDescriptors(pmd().pid()) == before; }));
    CHECK(Ask(pmd().listen_address(), At("127.0.0.1:1")).state == QueryState::kDenied);
  }

  static const std::string& Path() {
    static const TempDir directory;
    static const std::string path = directory.Path("pmd.sock");
    return path;
  }
  static PmdProcess& pmd() {
    const std::string& path = Path();
    static PmdProcess process({"--listen", "127.0.0.1:0", "--socket", path});
    return process;
  }

  static Refusal Try(Bytes data, const std::vector<int>& descriptors) {
    const UniqueFd connection = ConnectLocal(Path());
    REQUIRE(SendLocal(connection.get(), data, descriptors));
    const auto reply = AwaitReply(connection.get());
    REQUIRE(reply.has_value());
    CHECK(AwaitEnd(connection.get()));
    return reply->refusal;
  }
  static Refusal Try(const std::vector<int>& descriptors) {
    return Try(Serialize(RegisterRequest{}), descriptors);
  }

  size_t before;
};

TEST_CASE("a socket that does not listen is refused", "[hijack]") {
  const Attack attack;
  const UniqueFd bound = TcpSocket("127.0.0.1:0", Listening::kNo);
  const UniqueFd listener = TcpSocket("127.0.0.1:0");
  CHECK(Attack::Try({bound.get(), listener.get()}) == Refusal::kNotTcpListener);
  CHECK(Attack::Try({listener.get(), bound.get()}) == Refusal::kNotTcpListener);
}

TEST_CASE("an SDP listener of another address is refused", "[hijack]") {
  const Attack attack;
  const UniqueFd listener = TcpSocket("127.0.0.1:0");
  const UniqueFd other = TcpSocket("127.0.0.2:0");
  const UniqueFd wildcard = TcpSocket("0.0.0.0:0");
  const UniqueFd v6 = TcpSocket("[::1]:0");
  CHECK(Attack::Try({listener.get(), other.get()}) == Refusal::kAddressMismatch);
  CHECK(Attack::Try({listener.get(), wildcard.get()}) == Refusal::kAddressMismatch);
  CHECK(Attack::Try({wildcard.get(), listener.get()}) == Refusal::kAddressMismatch);
  CHECK(Attack::Try({listener.get(), v6.get()}) == Refusal::kAddressMismatch);
  CHECK(Attack::Try({listener.get(), listener.get()}) == Refusal::kAddressMismatch);
}

TEST_CASE("[::] with IPv4 and [::] without are not the same exposure", "[hijack]") {
  const Attack attack;
  const UniqueFd dual = TcpSocket("[::]:0");
  const UniqueFd v6_only(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  REQUIRE(setsockopt(v6_only.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0);
  REQUIRE(listen(v6_only.get(), 1) == 0);
  CHECK(Attack::Try({v6_only.get(), dual.get()}) == Refusal::kAddressMismatch);
}

TEST_CASE("what is no TCP socket is refused", "[hijack]") {
  const Attack attack;
  const UniqueFd listener = TcpSocket("127.0.0.1:0");
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const UniqueFd local(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const int fd : {udp.get(), local.get(), event.get(), file.get()}) {
    CHECK(Attack::Try({fd, listener.get()}) == Refusal::kNotTcpListener);
    CHECK(Attack::Try({listener.get(), fd}) == Refusal::kNotTcpListener);
  }
}

TEST_CASE("any number of descriptors but two is refused, and all are closed", "[hijack]") {
  const Attack attack;
  const UniqueFd listener = TcpSocket("127.0.0.1:0");
  for (const size_t count : {0, 1, 3, 20, 253}) {
    CHECK(Attack::Try(std::vector<int>(count, listener.get())) == Refusal::kBadDescriptors);
  }
}

TEST_CASE("bad messages are refused, with descriptors or without", "[hijack]") {
  const Attack attack;
  const UniqueFd listener = TcpSocket("127.0.0.1:0");
  const std::vector<int> none;
  const std::vector<int> two = {listener.get(), listener.get()};
  auto request = Serialize(RegisterRequest{});
  for (const auto& descriptors : {none, two}) {
    CHECK(Attack::Try(std::vector<std::byte>(1), descriptors) == Refusal::kBadMessage);
    CHECK(Attack::Try(std::vector<std::byte>(kRegisterRequestSize, std::byte{0xff}), descriptors) ==
          Refusal::kBadMessage);
    CHECK(Attack::Try(std::vector<std::byte>(60000, std::byte{'S'}), descriptors) == Refusal::kBadMessage);
    request[5] = std::byte{2};
    CHECK(Attack::Try(request, descriptors) == Refusal::kBadVersion);
  }
}

TEST_CASE("a listener of another network namespace is refused", "[hijack]") {
  const Attack attack;
  // In a namespace of one's own every port is free.
  const int code = sdp::test::InChild([] {
    if (unshare(CLONE_NEWNET) != 0) return 77;
    const ListenerPair pair("0.0.0.0");
    const auto result = RegisterListener(Attack::Path(), pair.conventional.get(), pair.sdp.get(), 5s);
    return !result && result.error().refusal == Refusal::kOtherNamespace ? 0 : 1;
  });
  if (code == 77) return sdp::test::Skipped("no right to make a network namespace");
  CHECK(code == 0);
}

TEST_CASE("a client that says nothing is dropped", "[hijack]") {
  const Attack attack;
  const UniqueFd connection = ConnectLocal(Attack::Path());
  CHECK(AwaitEnd(connection.get()));
}

TEST_CASE("a second message ends the registration", "[hijack]") {
  const Attack attack;
  const ListenerPair pair("127.0.0.1");
  const UniqueFd connection = ConnectLocal(Attack::Path());
  const std::vector<int> descriptors = {pair.conventional.get(), pair.sdp.get()};
  const auto request = Serialize(RegisterRequest{});
  REQUIRE(SendLocal(connection.get(), request, descriptors));
  CHECK(AwaitReply(connection.get())->refusal == Refusal::kNone);
  REQUIRE(SendLocal(connection.get(), request, descriptors));
  CHECK(AwaitEnd(connection.get()));
  CHECK(Ask(Attack::pmd().listen_address(), LocalAddress(pair.conventional.get())).state ==
        QueryState::kDenied);
}

TEST_CASE("messages still under way when a client is dropped leak nothing", "[hijack]") {
  const Attack attack;
  const UniqueFd listener = TcpSocket("127.0.0.1:0");
  const UniqueFd connection = ConnectLocal(Attack::Path());
  const std::vector<int> descriptors(20, listener.get());
  const auto request = Serialize(RegisterRequest{});
  // The first one is refused; the connection may end before the last is sent.
  for (int i = 0; i < 50 && SendLocal(connection.get(), request, descriptors); ++i) {
  }
  CHECK(AwaitReply(connection.get())->refusal == Refusal::kBadDescriptors);
  CHECK(AwaitEnd(connection.get()));
}

TEST_CASE("a socket that lingers over unsent data does not hold the daemon", "[hijack]") {
  const Attack attack;
  const UniqueFd listener = TcpSocket("127.0.0.1:0");
  UniqueFd lingering(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(LocalAddress(listener.get()), &name);
  REQUIRE(connect(lingering.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  const linger hour{1, 3600};
  REQUIRE(setsockopt(lingering.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof hour) == 0);
  const std::vector<std::byte> data(65536);
  while (send(lingering.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
  }
  // While the daemon is stopped, our own descriptor goes: its copies are then the last.
  const UniqueFd connection = ConnectLocal(Attack::Path());
  Attack::pmd().Signal(SIGSTOP);
  int status = 0;
  REQUIRE(waitpid(Attack::pmd().pid(), &status, WUNTRACED) == Attack::pmd().pid());
  const int fd = lingering.get();
  REQUIRE(SendLocal(connection.get(), Serialize(RegisterRequest{}), std::vector<int>{fd, fd}));
  lingering.Reset();
  Attack::pmd().Signal(SIGCONT);
  CHECK(AwaitReply(connection.get())->refusal == Refusal::kNotTcpListener);
}

}  // namespace
}  // namespace sdp::pm
