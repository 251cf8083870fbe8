// A million datagrams of noise: who asks in between is answered, as a rule at once, and the daemon does not
// grow.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"
#include "test/support/skipped.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

constexpr size_t kDatagrams = 1'000'000;
constexpr size_t kBatch = 64;
constexpr size_t kLargest = 128;
constexpr size_t kBetweenLooks = 8 * kBatch;
constexpr size_t kMostQueued = 64 << 10;  // well below what any system grants the daemon

size_t ResidentKib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, 6, "VmRSS:") == 0) return std::stoul(line.substr(6));
  }
  return 0;
}

// From the port that `source` names, or, where that is somebody's, from the next below it that is not.
UniqueFd UdpFrom(const std::string& source, const Endpoint& to) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Endpoint from = At(source);
  sockaddr_storage name;
  socklen_t length = ToSockaddr(from, &name);
  while (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    REQUIRE(errno == EADDRINUSE);
    REQUIRE(from.port > 600);
    --from.port;
    length = ToSockaddr(from, &name);
  }
  length = ToSockaddr(to, &name);
  REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  return fd;
}

// Bytes of memory that wait for the daemon at its UDP address, as the kernel counts them.
size_t Queued(const Endpoint& at) {
  char name[16];
  snprintf(name, sizeof name, ":%04X", at.port);
  std::ifstream table("/proc/net/udp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues;
    fields >> slot >> local >> remote >> state >> queues;
    if (local.size() > 5 && local.substr(local.size() - 5) == name)
      return std::stoul(queues.substr(queues.find(':') + 1), nullptr, 16);
  }
  return 0;
}

// Random bytes of random length; one in four is a PMReq but for random fields, so that the service has to
// answer. No faster than the daemon takes them: what the kernel drops of a full queue, questions among it,
// says how much of the machine others have, and nothing of the daemon.
void Flood(int fd, const Endpoint& to, size_t datagrams, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::array<std::array<uint64_t, kLargest / 8>, kBatch> bytes;
  std::array<iovec, kBatch> data;
  std::array<mmsghdr, kBatch> headers{};
  for (size_t sent = 0; sent < datagrams; sent += kBatch) {
    while (sent % kBetweenLooks == 0 && Queued(to) > kMostQueued) std::this_thread::yield();
    for (size_t i = 0; i < kBatch; ++i) {
      for (uint64_t& word : bytes[i]) word = random();
      const bool request = random() % 4 == 0;
      if (request) reinterpret_cast<std::byte&>(bytes[i][0]) = std::byte{0x04};
      data[i] = {bytes[i].data(), request ? kPmMessageSize : random() % (kLargest + 1)};
      headers[i].msg_hdr.msg_iov = &data[i];
      headers[i].msg_hdr.msg_iovlen = 1;
    }
    for (size_t done = 0; done < kBatch;) {
      const int n = sendmmsg(fd, headers.data() + done, kBatch - done, 0);
      done += static_cast<size_t>(std::max(n, 1));
    }
  }
}

TEST_CASE("a million random datagrams cost nobody his answer", "[pmd][flood]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const auto began = std::chrono::steady_clock::now();
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path, "--limit-source", "5000"});
  const ListenerPair pair("127.0.0.1");
  const auto registration = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
  REQUIRE(registration.has_value());
  const UniqueFd keep(*registration);
  const Endpoint service = LocalAddress(pair.conventional.get());
  // Warm: the transactions have been used, all of them.
  const UniqueFd warmer = UdpFrom("127.0.0.3:0", pmd.listen_address());
  Flood(warmer.get(), pmd.listen_address(), 10'000, 1);
  REQUIRE(Ask(pmd.listen_address(), service).state == QueryState::kAccepted);
  const size_t before = ResidentKib(pmd.pid());

  const UniqueFd flooder = UdpFrom("127.0.0.2:0", pmd.listen_address());
  std::atomic<bool> flooding = true;
  std::thread flood([&, to = pmd.listen_address()] {  // which asserts: not in the thread
    Flood(flooder.get(), to, kDatagrams, 2);
    flooding = false;
  });
  size_t asked = 0;
  size_t answered = 0;
  std::vector<std::chrono::nanoseconds> took;
  while (flooding || asked == 0) {
    const auto start = std::chrono::steady_clock::now();
    ++asked;
    answered += Ask(pmd.listen_address(), service).state == QueryState::kAccepted ? 1 : 0;
    took.push_back(std::chrono::steady_clock::now() - start);
  }
  flood.join();
  std::sort(took.begin(), took.end());
  CAPTURE(asked, std::chrono::duration<double>(took.back()).count());
  CHECK(answered == asked);              // within the five seconds that Ask() waits
  CHECK(took[took.size() / 2] < 500ms);  // when it would ask again
  CHECK(ResidentKib(pmd.pid()) <= before + 256);

  pmd.Signal(SIGUSR1);
  REQUIRE(Eventually([&] { return pmd.Log().find("source-limit") != std::string::npos; }));
  const std::string log = pmd.Log();
  CHECK(log.find(" source-limit 0 ") == std::string::npos);
  // The alarm is raised, and not more than once a minute.
  const size_t first = log.find("datagrams not heard");
  REQUIRE(first != std::string::npos);
  CHECK(log.find("since the last line (it begins: a line in a minute counts the others)", first) !=
        std::string::npos);
  size_t lines = 0;
  for (size_t at = first; at != std::string::npos; at = log.find("datagrams not heard", at + 1)) ++lines;
  CHECK(lines <= 1 + static_cast<size_t>((std::chrono::steady_clock::now() - began) / 1min));
}

TEST_CASE("a question from a port below 1024 is not answered unless asked for", "[pmd][flood]") {
  if (geteuid() != 0) return sdp::test::Skipped("only root may send from a port below 1024");
  const TempDir directory;
  const bool wanted = GENERATE(false, true);
  std::vector<std::string> arguments = {"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd.sock")};
  if (wanted) arguments.emplace_back("--privileged-ports");
  const PmdProcess pmd(arguments);
  const UniqueFd low = UdpFrom("127.0.0.1:1011", pmd.listen_address());
  const Datagram question =
      Serialize({MessageType::kReq, PmTime(0), AssocHandle(1), At("127.0.0.1:9"), At("127.0.0.1:80")});
  REQUIRE(send(low.get(), question.data(), question.size(), 0) == 48);
  // What is asked later is answered later.
  CHECK(Ask(pmd.listen_address(), At("127.0.0.1:80")).state == QueryState::kDenied);
  Datagram answer;
  CHECK((recv(low.get(), answer.data(), answer.size(), MSG_DONTWAIT) == 48) == wanted);
}

TEST_CASE("what is no message is dropped before it is queued, and counted", "[pmd][flood]") {
  const TempDir directory;
  const std::string listen_on = GENERATE("127.0.0.1:0", "[::1]:0");
  CAPTURE(listen_on);
  const PmdProcess pmd({"--listen", listen_on, "--socket", directory.Path("pmd.sock")});
  const Endpoint address = pmd.listen_address();
  const UniqueFd fd(
      socket(address.version == IpVersion::kV4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(address, &name);
  REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  const PmMessage request{MessageType::kReq, PmTime(0), AssocHandle(1), At("127.0.0.1:9"),
                          At("127.0.0.1:80")};
  Datagram datagram = Serialize(request);
  int dropped = 0;
  const auto give = [&](size_t size) {
    std::array<std::byte, 64> bytes{};
    std::copy(datagram.begin(), datagram.end(), bytes.begin());
    REQUIRE(send(fd.get(), bytes.data(), size, 0) == static_cast<ssize_t>(size));
    ++dropped;
  };
  for (const size_t size : {0, 1, 47, 49, 64}) give(size);
  for (const uint8_t first : {0x00, 0x05, 0x07, 0x14, 0x34, 0x44, 0x84, 0xc6}) {
    datagram[0] = std::byte{first};
    give(kPmMessageSize);
  }
  CHECK(Ask(address, Endpoint{address.version, address.address, 80}).state == QueryState::kDenied);
  pmd.Signal(SIGUSR1);
  CHECK(Eventually([&] {
    return pmd.Log().find("dropped-by-kernel " + std::to_string(dropped) + " ") != std::string::npos;
  }));
  CHECK(pmd.Log().find("malformed 0 misdirected 0") != std::string::npos);
}

}  // namespace
}  // namespace sdp::pm
