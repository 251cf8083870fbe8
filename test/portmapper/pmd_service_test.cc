// sdp-pmd from end to end: register, ask, and all the ways a registration ends.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <set>

#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"
#include "test/support/in_child.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

struct Pmd {
  explicit Pmd(std::vector<std::string> more = {"--listen", "127.0.0.1:0"})
      : process([&] {
          more.insert(more.end(), {"--socket", path});
          return more;
        }()) {}

  UniqueFd Register(const ListenerPair& pair) const {
    const auto fd = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
    REQUIRE(fd.has_value());
    return UniqueFd(*fd);
  }
  [[nodiscard]] QueryState StateOf(const ListenerPair& pair) const {
    return Ask(process.listen_address(), LocalAddress(pair.conventional.get())).state;
  }

  TempDir directory;
  std::string path = directory.Path("pmd.sock");
  PmdProcess process;
};

TEST_CASE("a registered listener is found, others are denied", "[pmd]") {
  const Pmd pmd;
  const ListenerPair pair("127.0.0.1");
  CHECK(pmd.StateOf(pair) == QueryState::kDenied);
  const UniqueFd registration = pmd.Register(pair);
  const Answer answer = Ask(pmd.process.listen_address(), LocalAddress(pair.conventional.get()));
  CHECK(answer.state == QueryState::kAccepted);
  CHECK(answer.sdp_address == LocalAddress(pair.sdp.get()));
  CHECK(Ask(pmd.process.listen_address(), LocalAddress(pair.sdp.get())).state == QueryState::kDenied);
}

TEST_CASE("the registration's descriptor is closed by exec", "[pmd]") {
  const Pmd pmd;
  const ListenerPair pair("127.0.0.1");
  const UniqueFd registration = pmd.Register(pair);
  CHECK((fcntl(registration.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("IPv6 and wildcard listeners are found by the address that is asked", "[pmd]") {
  const Pmd pmd({"--listen", "0.0.0.0:0", "--listen", "[::]:0"});
  const uint16_t v4_port = pmd.process.listen_address(0).port;
  const uint16_t v6_port = pmd.process.listen_address(1).port;
  // [::] is dual-stack by default.
  const ListenerPair pair("[::]");
  const UniqueFd registration = pmd.Register(pair);
  const uint16_t port = LocalAddress(pair.conventional.get()).port;
  const uint16_t sdp_port = LocalAddress(pair.sdp.get()).port;

  // A connected client takes an answer only from the very address it asked.
  for (const uint8_t last : {1, 2, 77}) {
    const Endpoint host{IpVersion::kV4, {127, 0, 0, last}, v4_port};
    const Answer answer = Ask(host, {IpVersion::kV4, host.address, port});
    CHECK(answer.state == QueryState::kAccepted);
    CHECK(answer.sdp_address == Endpoint{IpVersion::kV4, host.address, sdp_port});
  }
  Endpoint v6 = At("[::1]:1");
  v6.port = v6_port;
  Endpoint target = At("[::1]:1");
  target.port = port;
  const Answer answer = Ask(v6, target);
  CHECK(answer.state == QueryState::kAccepted);
  target.port = sdp_port;
  CHECK(answer.sdp_address == target);
}

TEST_CASE("a registration ends with its descriptor", "[pmd]") {
  const Pmd pmd;
  const ListenerPair pair("127.0.0.1");
  UniqueFd registration = pmd.Register(pair);
  CHECK(pmd.StateOf(pair) == QueryState::kAccepted);
  registration.Reset();
  CHECK(Eventually([&] { return pmd.StateOf(pair) == QueryState::kDenied; }));
}

TEST_CASE("a registration ends with its process, however it dies", "[pmd]") {
  const Pmd pmd;
  const ListenerPair pair("127.0.0.1");
  const pid_t child = sdp::test::ForkChild([&] {
    (void)!RegisterListener(pmd.path, pair.conventional.get(), pair.sdp.get(), 5s).has_value();
    return pause();
  });
  CHECK(Eventually([&] { return pmd.StateOf(pair) == QueryState::kAccepted; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(Eventually([&] { return pmd.StateOf(pair) == QueryState::kDenied; }));
}

TEST_CASE("a registration follows fork and ends with the last holder", "[pmd]") {
  const Pmd pmd;
  const ListenerPair pair("127.0.0.1");
  UniqueFd registration = pmd.Register(pair);
  const pid_t child = sdp::test::ForkChild(pause);
  registration.Reset();
  CHECK(pmd.StateOf(pair) == QueryState::kAccepted);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(Eventually([&] { return pmd.StateOf(pair) == QueryState::kDenied; }));
}

TEST_CASE("the daemon keeps nobody's port open, and a closed listener answers for nobody", "[pmd]") {
  const Pmd pmd;
  ListenerPair attacker("127.0.0.1");
  const Endpoint address = LocalAddress(attacker.conventional.get());
  const UniqueFd registration = pmd.Register(attacker);
  CHECK(Ask(pmd.process.listen_address(), address).state == QueryState::kAccepted);
  // The attacker lets the port go but keeps registration and SDP listener; somebody else gets the port.
  attacker.conventional.Reset();
  const UniqueFd victim(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(address, &name);
  REQUIRE(bind(victim.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  REQUIRE(listen(victim.get(), 1) == 0);
  CHECK(Eventually([&] { return Ask(pmd.process.listen_address(), address).state == QueryState::kDenied; }));
  CHECK(AwaitEnd(registration.get()));
  CHECK(pmd.process.Log().find("no longer listens") != std::string::npos);
}

TEST_CASE("of an SO_REUSEPORT group each listener answers, until it closes", "[pmd]") {
  const Pmd pmd;
  ListenerPair first("127.0.0.1");
  const Endpoint address = LocalAddress(first.conventional.get());
  const UniqueFd first_registration = pmd.Register(first);
  ListenerPair second("127.0.0.1");
  second.conventional = TcpSocket(address.ToString());
  const UniqueFd second_registration = pmd.Register(second);

  const auto ask = [&] { return Ask(pmd.process.listen_address(), address).sdp_address; };
  std::set<uint16_t> seen;
  for (int i = 0; i < 64; ++i) seen.insert(ask().port);
  CHECK(seen == std::set<uint16_t>{LocalAddress(first.sdp.get()).port, LocalAddress(second.sdp.get()).port});
  first.conventional.Reset();
  // Its registration ends when a question meets it.
  CHECK(Eventually([&] {
    (void)ask();
    char c;
    return recv(first_registration.get(), &c, 1, MSG_DONTWAIT) == 0;
  }));
  for (int i = 0; i < 16; ++i) CHECK(ask() == LocalAddress(second.sdp.get()));
}

TEST_CASE("datagrams that are no request have no answer, and the service goes on", "[pmd]") {
  const Pmd pmd;
  const ListenerPair pair("127.0.0.1");
  const UniqueFd registration = pmd.Register(pair);
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(pmd.process.listen_address(), &name);
  REQUIRE(connect(udp.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  const Endpoint target = LocalAddress(pair.conventional.get());
  Datagram datagram = Serialize({MessageType::kReq, PmTime(0), AssocHandle(5), At("127.0.0.1:9"), target});
  std::vector<std::byte> longer(datagram.begin(), datagram.end());
  longer.resize(1400);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{47}, size_t{49}, longer.size()}) {
    REQUIRE(send(udp.get(), longer.data(), size, 0) == static_cast<ssize_t>(size));
  }
  for (const MessageType type : {MessageType::kAccept, MessageType::kAck, MessageType::kDeny}) {
    datagram = Serialize({type, PmTime(0), AssocHandle(5), At("127.0.0.1:9"), target});
    REQUIRE(send(udp.get(), datagram.data(), datagram.size(), 0) == 48);
  }
  // One socket's datagrams come in order: the first answer is that of the last question.
  datagram = Serialize({MessageType::kReq, PmTime(0), AssocHandle(6), At("127.0.0.1:9"), target});
  REQUIRE(send(udp.get(), datagram.data(), datagram.size(), 0) == 48);
  std::array<std::byte, 64> buffer;
  REQUIRE(recv(udp.get(), buffer.data(), buffer.size(), 0) == 48);
  CHECK(Parse(Bytes(buffer).first(48))->handle == AssocHandle(6));
}

TEST_CASE("many questions at once are all answered", "[pmd]") {
  const Pmd pmd;
  const ListenerPair pair("127.0.0.1");
  const UniqueFd registration = pmd.Register(pair);
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(pmd.process.listen_address(), &name);
  REQUIRE(connect(udp.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  constexpr uint16_t kQuestions = 100;
  for (uint16_t i = 1; i <= kQuestions; ++i) {
    const Datagram question = Serialize({MessageType::kReq,
                                         PmTime(0),
                                         AssocHandle(i),
                                         {IpVersion::kV4, {127, 0, 0, 1}, i},
                                         LocalAddress(pair.conventional.get())});
    REQUIRE(send(udp.get(), question.data(), question.size(), 0) == 48);
  }
  std::set<uint64_t> answered;
  std::array<std::byte, 64> buffer;
  for (uint16_t i = 0; i < kQuestions; ++i) {
    REQUIRE(recv(udp.get(), buffer.data(), buffer.size(), 0) == 48);
    answered.insert(Parse(Bytes(buffer).first(48))->handle.value());
  }
  CHECK(answered.size() == kQuestions);
}

}  // namespace
}  // namespace sdp::pm
