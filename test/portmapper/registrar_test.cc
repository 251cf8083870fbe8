// The library's side of registration against daemons that are absent, slow, broken or not to be trusted.
#include "portmapper/registrar.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

UniqueFd Serve(const std::string& path, int backlog) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(fd.get(), backlog) == 0);
  return fd;
}

// A daemon that answers the next client with these bytes, or closes without a word if there are none.
std::thread AnswerOnce(int listener, std::vector<std::byte> bytes) {
  return std::thread([listener, bytes = std::move(bytes)] {
    const UniqueFd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    std::byte scratch[64];
    (void)!recv(client.get(), scratch, sizeof scratch, 0);
    if (!bytes.empty()) (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  });
}

RegistrarError Fails(const std::string& path, Duration limit, const RegistrarCalls& calls = {}) {
  const ListenerPair pair("127.0.0.1");
  const size_t before = CountDescriptors(getpid());
  const auto result = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), limit, calls);
  REQUIRE_FALSE(result.has_value());
  // The other side, a thread of ours, may still be closing.
  CHECK(Eventually([&] { return CountDescriptors(getpid()) == before; }));
  return result.error();
}

TEST_CASE("no daemon is told at once", "[registrar]") {
  const TempDir directory;
  CHECK(Fails(directory.Path("nothing"), 5s).failure == RegistrarFailure::kNoDaemon);
  { const UniqueFd dead = Serve(directory.Path("stale"), 1); }
  const RegistrarError stale = Fails(directory.Path("stale"), 5s);
  CHECK(stale.failure == RegistrarFailure::kNoDaemon);
  CHECK(stale.sys_errno == ECONNREFUSED);
}

TEST_CASE("a path that fits no socket address is refused", "[registrar]") {
  CHECK(Fails("", 5s).failure == RegistrarFailure::kBadPath);
  CHECK(Fails(std::string(108, 'x'), 5s).failure == RegistrarFailure::kBadPath);
}

TEST_CASE("a silent daemon costs no more than the limit", "[registrar]") {
  const TempDir directory;
  const UniqueFd listener = Serve(directory.Path("pmd"), 8);
  const auto start = std::chrono::steady_clock::now();
  CHECK(Fails(directory.Path("pmd"), 50ms).failure == RegistrarFailure::kTimeout);
  CHECK(std::chrono::steady_clock::now() - start >= 50ms);
}

TEST_CASE("a daemon whose backlog is full costs no more than the limit", "[registrar]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd");
  const UniqueFd listener = Serve(path, 0);
  const UniqueFd first = ConnectLocal(path);
  CHECK(Fails(path, 50ms).failure == RegistrarFailure::kTimeout);
}

TEST_CASE("answers that are none are told", "[registrar]") {
  const TempDir directory;
  const UniqueFd listener = Serve(directory.Path("pmd"), 8);
  const auto bytes = GENERATE(std::vector<std::byte>(), std::vector<std::byte>(1),
                              std::vector<std::byte>(8, std::byte{'S'}), std::vector<std::byte>(300));
  std::thread daemon = AnswerOnce(listener.get(), bytes);
  CHECK(Fails(directory.Path("pmd"), 5s).failure == RegistrarFailure::kBroken);
  daemon.join();
}

TEST_CASE("a refusal comes with the daemon's words", "[registrar]") {
  const TempDir directory;
  const UniqueFd listener = Serve(directory.Path("pmd"), 8);
  std::array<std::byte, kMaxReplySize> reply;
  const size_t size = Serialize({kLocalProtocolVersion, Refusal::kTooMany, "go away"}, reply);
  std::thread daemon =
      AnswerOnce(listener.get(), {reply.begin(), reply.begin() + static_cast<ptrdiff_t>(size)});
  const RegistrarError error = Fails(directory.Path("pmd"), 5s);
  daemon.join();
  CHECK(error.failure == RegistrarFailure::kRefused);
  CHECK(error.refusal == Refusal::kTooMany);
  CHECK(error.text == "go away");
}

int g_interruptions = 0;
bool Interrupt() {
  if (g_interruptions == 0) return false;
  --g_interruptions;
  errno = EINTR;
  return true;
}

TEST_CASE("signals in the middle do no harm", "[registrar]") {
  const TempDir directory;
  const UniqueFd listener = Serve(directory.Path("pmd"), 8);
  std::array<std::byte, kMaxReplySize> reply;
  const size_t size = Serialize(RegisterReply{}, reply);
  RegistrarCalls calls;
  SECTION("in connect") {
    calls.connect = [](int fd, const sockaddr* a, socklen_t l) {
      return Interrupt() ? -1 : ::connect(fd, a, l);
    };
  }
  SECTION("in sendmsg") {
    calls.sendmsg = [](int fd, const msghdr* m, int f) -> ssize_t {
      return Interrupt() ? -1 : ::sendmsg(fd, m, f);
    };
  }
  SECTION("in poll") {
    calls.poll = [](pollfd* p, nfds_t n, int t) { return Interrupt() ? -1 : ::poll(p, n, t); };
  }
  g_interruptions = 3;
  std::thread daemon =
      AnswerOnce(listener.get(), {reply.begin(), reply.begin() + static_cast<ptrdiff_t>(size)});
  const ListenerPair pair("127.0.0.1");
  const auto result =
      RegisterListener(directory.Path("pmd"), pair.conventional.get(), pair.sdp.get(), 5s, calls);
  daemon.join();
  REQUIRE(result.has_value());
  CHECK(g_interruptions == 0);
  close(*result);
}

TEST_CASE("every call that fails is told and nothing stays open", "[registrar]") {
  const TempDir directory;
  const UniqueFd listener = Serve(directory.Path("pmd"), 8);
  RegistrarCalls calls;
  RegistrarFailure expected{};
  SECTION("socket") {
    calls.socket = [](int, int, int) {
      errno = EMFILE;
      return -1;
    };
    expected = RegistrarFailure::kNoSocket;
  }
  SECTION("getsockopt") {
    calls.getsockopt = [](int, int, int, void*, socklen_t*) {
      errno = ENOPROTOOPT;
      return -1;
    };
    expected = RegistrarFailure::kNotTrusted;
  }
  SECTION("sendmsg") {
    calls.sendmsg = [](int, const msghdr*, int) -> ssize_t {
      errno = EPIPE;
      return -1;
    };
    expected = RegistrarFailure::kBroken;
  }
  SECTION("poll") {
    calls.poll = [](pollfd*, nfds_t, int) {
      errno = ENOMEM;
      return -1;
    };
    expected = RegistrarFailure::kBroken;
  }
  const RegistrarError error = Fails(directory.Path("pmd"), 5s, calls);
  CHECK(error.failure == expected);
  CHECK(error.sys_errno != 0);
}

TEST_CASE("a daemon of another user is not trusted", "[registrar]") {
  RegistrarCalls calls;
  calls.getsockopt = [](int fd, int level, int name, void* value, socklen_t* length) {
    const int result = ::getsockopt(fd, level, name, value, length);
    static_cast<ucred*>(value)->uid = geteuid() + 4711;
    return result;
  };
  const TempDir directory;
  const UniqueFd listener = Serve(directory.Path("pmd"), 8);
  const RegistrarError error = Fails(directory.Path("pmd"), 5s, calls);
  CHECK(error.failure == RegistrarFailure::kNotTrusted);
}

}  // namespace
}  // namespace sdp::pm
