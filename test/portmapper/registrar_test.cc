// The library's side of registration against daemons that are absent, slow, broken or not to be trusted.
#include "portmapper/registrar.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/support/in_child.h"
#include "test/support/skipped.h"

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

// A daemon that answers the next client's greeting and its request with these bytes, or closes without a word
// if there are none.
std::thread AnswerOnce(int listener, std::vector<std::byte> bytes) {
  return std::thread([listener, bytes = std::move(bytes)] {
    const UniqueFd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    std::byte scratch[64];
    for (int i = 0; i < 2 && recv(client.get(), scratch, sizeof scratch, 0) > 0 && !bytes.empty(); ++i)
      (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
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

// Whether a socket without options can have the address.
bool MayBind(const Endpoint& endpoint) {
  const int family = endpoint.version == IpVersion::kV4 ? AF_INET : AF_INET6;
  const UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(endpoint, &name);
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0;
}

TEST_CASE("a daemon that stands still does not keep the listeners open", "[registrar]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd");
  const UniqueFd listener = Serve(path, 8);
  const auto address = GENERATE("127.0.0.1", "[::1]");
  CAPTURE(address);
  Endpoint conventional;
  Endpoint sdp;
  {
    const ListenerPair pair(address);
    conventional = LocalAddress(pair.conventional.get());
    sdp = LocalAddress(pair.sdp.get());
    CHECK_FALSE(MayBind(conventional));
    const auto result = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 50ms);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().failure == RegistrarFailure::kTimeout);
  }
  CHECK(MayBind(conventional));
  CHECK(MayBind(sdp));
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

TEST_CASE("a daemon that knows no greeting gets the request alone", "[registrar]") {
  const TempDir directory;
  const UniqueFd listener = Serve(directory.Path("pmd"), 8);
  std::vector<size_t> heard;  // descriptors that came with each message
  std::thread daemon([&] {
    for (const Refusal answer : {Refusal::kBadVersion, Refusal::kNone}) {
      const UniqueFd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::byte scratch[64];
      iovec data{scratch, sizeof scratch};
      alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
      msghdr message{};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      (void)!recvmsg(client.get(), &message, MSG_CMSG_CLOEXEC);
      const cmsghdr* rights = CMSG_FIRSTHDR(&message);
      heard.push_back(rights == nullptr ? 0 : (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      for (size_t i = 0; i < heard.back(); ++i) close(reinterpret_cast<const int*>(CMSG_DATA(rights))[i]);
      std::array<std::byte, kMaxReplySize> reply;
      const size_t size = Serialize({kLocalProtocolVersion, answer, ""}, reply);
      (void)!send(client.get(), reply.data(), size, MSG_NOSIGNAL);
    }
  });
  const ListenerPair pair("127.0.0.1");
  const auto result = RegisterListener(directory.Path("pmd"), pair.conventional.get(), pair.sdp.get(), 5s);
  daemon.join();
  REQUIRE(result.has_value());
  CHECK(heard == std::vector<size_t>{0, 2});
  close(*result);
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

// There the kernel shows all users, this program's own too, by one number.
TEST_CASE("where a user namespace maps no user, nobody is this user", "[registrar]") {
  const TempDir directory;
  const UniqueFd listener = Serve(directory.Path("pmd"), 8);
  const int failure = sdp::test::InChild([&] {
    if (unshare(CLONE_NEWUSER) != 0) return sdp::test::kThrew;
    return static_cast<int>(Fails(directory.Path("pmd"), 50ms).failure);
  });
  if (failure == sdp::test::kThrew) return sdp::test::Skipped("no user namespaces here");
  CHECK(failure == static_cast<int>(RegistrarFailure::kNotTrusted));
}

// Connects to `g_path` whatever was asked for, and describes /run and /run/sdp as `g_run` and `g_sdp`.
std::string g_path;
struct stat g_run, g_sdp;
uid_t g_peer;
RegistrarCalls OnASystem() {
  RegistrarCalls calls;
  calls.connect = [](int fd, const sockaddr*, socklen_t) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(g_path.begin(), g_path.end(), address.sun_path);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  };
  calls.getsockopt = [](int fd, int level, int name, void* value, socklen_t* length) {
    const int result = ::getsockopt(fd, level, name, value, length);
    static_cast<ucred*>(value)->uid = g_peer;
    return result;
  };
  calls.lstat = [](const char* path, struct stat* out) {
    *out = std::string(path) == "/run" ? g_run : g_sdp;
    return std::string(path) == "/run" || std::string(path) == "/run/sdp" ? 0 : -1;
  };
  return calls;
}

TEST_CASE("the host's daemon may run as the user root gave its directory to", "[registrar]") {
  const uid_t user = geteuid() + 4711;
  g_peer = user;
  g_run = {};
  g_run.st_mode = S_IFDIR | 0755;
  g_sdp = g_run;
  g_sdp.st_uid = user;
  bool trusted = false;
  std::string path = kSystemSocketPath;
  SECTION("it may") { trusted = true; }
  SECTION("but not another user") { g_sdp.st_uid = user + 1; }
  SECTION("nor where others can write") { g_sdp.st_mode |= 0020; }
  SECTION("nor where others can make the directory") { g_run.st_mode |= 01002; }
  SECTION("nor in somebody's directory") { g_run.st_uid = user; }
  SECTION("nor behind a link") { g_sdp.st_mode = S_IFLNK | 0755; }
  SECTION("nor on another path") { path = "/run/user/pmd.sock"; }

  const TempDir directory;
  g_path = directory.Path("pmd");
  const UniqueFd listener = Serve(g_path, 8);
  const ListenerPair pair("127.0.0.1");
  if (!trusted) {
    CHECK(Fails(path, 5s, OnASystem()).failure == RegistrarFailure::kNotTrusted);
    return;
  }
  std::array<std::byte, kMaxReplySize> reply;
  const size_t size = Serialize(RegisterReply{}, reply);
  std::thread daemon =
      AnswerOnce(listener.get(), {reply.begin(), reply.begin() + static_cast<ptrdiff_t>(size)});
  const auto result = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s, OnASystem());
  daemon.join();
  REQUIRE(result.has_value());
  close(*result);
}

TEST_CASE("of several paths the first with a trusted daemon serves", "[registrar]") {
  const TempDir directory;
  const std::string absent = directory.Path("absent");
  const std::string stale = directory.Path("stale");
  const std::string live = directory.Path("live");
  { const UniqueFd dead = Serve(stale, 1); }
  const UniqueFd listener = Serve(live, 8);
  const ListenerPair pair("127.0.0.1");
  const auto attempt = [&](const std::vector<std::string>& paths) {
    return RegisterListener(paths, pair.conventional.get(), pair.sdp.get(), 5s);
  };

  std::array<std::byte, kMaxReplySize> reply;
  size_t size = Serialize(RegisterReply{}, reply);
  const auto answer = [&] {
    return AnswerOnce(listener.get(), {reply.begin(), reply.begin() + static_cast<ptrdiff_t>(size)});
  };
  std::thread daemon = answer();
  const auto result = attempt({absent, stale, std::string(200, 'x'), live});
  daemon.join();
  REQUIRE(result.has_value());
  close(*result);

  // A daemon that says no has decided.
  size = Serialize({kLocalProtocolVersion, Refusal::kTooMany, "no"}, reply);
  daemon = answer();
  CHECK(attempt({live, absent}).error().failure == RegistrarFailure::kRefused);
  daemon.join();

  CHECK(attempt({absent, stale}).error().sys_errno == ECONNREFUSED);
  CHECK(attempt({stale, absent}).error().sys_errno == ECONNREFUSED);
  CHECK(attempt({absent}).error().sys_errno == ENOENT);
  CHECK_FALSE(attempt({}).has_value());
}

}  // namespace
}  // namespace sdp::pm
