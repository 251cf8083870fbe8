// The host's daemon and programs of other users, on the real paths: in a mount namespace of its own, where
// /run is empty.
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <optional>
#include <vector>

#include "portmapper/abstract_address.h"
#include "portmapper/known_daemons.h"
#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"
#include "test/support/in_child.h"
#include "test/support/skipped.h"

namespace sdp::pm {
namespace {

using namespace test;
using sdp::test::InChild;
using namespace std::chrono_literals;

constexpr uid_t kSomebody = 4711;
constexpr uid_t kDaemonUser = 4712;

// This process, which has one thread, gets /run for itself.
bool TakeRun() {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/run", "tmpfs", 0, "mode=755") == 0;
}

char* NoEnvironment(const char*) { return nullptr; }

// What a program of the user `uid` does in listen(): 0 if it is registered, else 10 + the failure.
int ListenAs(uid_t uid) {
  const ListenerPair pair("127.0.0.1");
  return InChild([&] {
    if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) return 1;
    const auto paths = RegistrationPaths(geteuid(), NoEnvironment);
    const auto result = RegisterListener(paths, pair.conventional.get(), pair.sdp.get(), 5s);
    return result ? 0 : 10 + static_cast<int>(result.error().failure);
  });
}

#define NEEDS_ROOT() \
  if (geteuid() != 0) return sdp::test::Skipped("other users are root's business")

// Root of a container often may not mount.
#define NEEDS_OWN_RUN()                               \
  NEEDS_ROOT();                                       \
  if (InChild([] { return TakeRun() ? 0 : 1; }) != 0) \
  return sdp::test::Skipped("no right to mount a /run of its own")

TEST_CASE("a program of any user registers with root's daemon", "[pmd][users]") {
  NEEDS_OWN_RUN();
  CHECK(InChild([] {
          if (!TakeRun()) return 100;
          const mode_t previous = umask(0077);  // as a careful administrator's shell has it
          const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", kSystemSocketPath});
          umask(previous);
          if (pmd.ready_line().empty()) return 101;
          return ListenAs(kSomebody) == 0 && ListenAs(0) == 0 ? 0 : 102;
        }) == 0);
}

TEST_CASE("and with a daemon that runs as the user of its directory", "[pmd][users]") {
  NEEDS_OWN_RUN();
  CHECK(InChild([] {
          if (!TakeRun() || mkdir(kSystemSocketDirectory, 0755) != 0 ||
              chown(kSystemSocketDirectory, kDaemonUser, kDaemonUser) != 0) {
            return 100;
          }
          // The daemon inherits the user, as from a service manager.
          if (setresgid(0, kDaemonUser, 0) != 0 || setresuid(0, kDaemonUser, 0) != 0) return 101;
          PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", kSystemSocketPath, "--socket-mode", "0666"});
          if (setresuid(0, 0, 0) != 0 || setresgid(0, 0, 0) != 0) return 102;
          if (pmd.ready_line().empty()) return 103;
          if (ListenAs(kSomebody) != 0 || ListenAs(0) != 0) return 104;
          // Whoever takes the directory over is not followed.
          if (chown(kSystemSocketDirectory, kSomebody, kSomebody) != 0) return 105;
          if (ListenAs(kSomebody + 9) != 10 + static_cast<int>(RegistrarFailure::kNotTrusted)) return 106;
          pmd.Signal(SIGKILL);
          return 0;
        }) == 0);
}

TEST_CASE("another user's own daemon gets nobody's listeners but his", "[pmd][users]") {
  NEEDS_ROOT();
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  REQUIRE(chmod(directory.Path(".").c_str(), 0777) == 0);
  CHECK(InChild([&] {
          if (setresgid(0, kSomebody, 0) != 0 || setresuid(0, kSomebody, 0) != 0) return 100;
          const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path, "--socket-mode", "0666"});
          if (setresuid(0, 0, 0) != 0 || setresgid(0, 0, 0) != 0) return 101;
          if (pmd.ready_line().empty()) return 102;
          const ListenerPair pair("127.0.0.1");
          const auto as_root = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s);
          if (as_root || as_root.error().failure != RegistrarFailure::kNotTrusted) return 103;
          return InChild([&] {
            if (setresuid(kSomebody, kSomebody, kSomebody) != 0) return 1;
            return RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s) ? 0 : 2;
          });
        }) == 0);
}

struct stat RootDirectory() {
  struct stat root {};
  REQUIRE(lstat("/", &root) == 0);
  return root;
}

// What a process does in listen() that remembers these daemons, has then changed to an empty root directory
// and has become that user: as ListenAs.
int ListenInJailAs(uid_t uid, const TempDir& directory, const std::string& path, KnownDaemons& known,
                   Duration limit = 5s) {
  const ListenerPair pair("127.0.0.1");
  return InChild([&] {
    const std::string jail = directory.Path("jail");
    (void)!mkdir(jail.c_str(), 0755);
    if (chroot(jail.c_str()) != 0 || chdir("/") != 0) return 2;
    if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) return 1;
    RegistrarCalls calls;
    calls.known_daemons = &known;
    const auto result = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), limit, calls);
    return result ? 0 : 10 + static_cast<int>(result.error().failure);
  });
}

int ListenInJailAs(uid_t uid, const TempDir& directory, const std::string& path, uid_t daemon,
                   Duration limit = 5s) {
  KnownDaemons known;
  known.Remember(path, daemon, RootDirectory());
  return ListenInJailAs(uid, directory, path, known, limit);
}

constexpr int kNobodyThere = 10 + static_cast<int>(RegistrarFailure::kNoDaemon);

TEST_CASE("a program that has changed its root directory registers with root's daemon if it did before",
          "[pmd][users]") {
  NEEDS_ROOT();
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  REQUIRE(chmod(directory.Path(".").c_str(), 0755) == 0);
  CHECK(InChild([&] {
          const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path});
          if (pmd.ready_line().empty()) return 101;
          KnownDaemons known;
          if (ListenInJailAs(0, directory, path, known) != kNobodyThere) return 102;
          RegistrarCalls calls;
          calls.known_daemons = &known;
          const ListenerPair pair("127.0.0.1");
          const auto before = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s, calls);
          if (!before) return 103;
          close(*before);
          if (ListenInJailAs(0, directory, path, known) != 0 ||
              ListenInJailAs(kSomebody, directory, path, known) != 0)
            return 104;
          // The path's own rules hold, as they are now.
          if (chmod(directory.Path(".").c_str(), 0700) != 0 ||
              ListenInJailAs(kSomebody, directory, path, known) != kNobodyThere ||
              ListenInJailAs(0, directory, path, known) != 0) {
            return 105;
          }
          if (chmod(directory.Path(".").c_str(), 0755) != 0 || chmod(path.c_str(), 0600) != 0 ||
              ListenInJailAs(kSomebody, directory, path, known) != kNobodyThere) {
            return 106;
          }
          if (unlink(path.c_str()) != 0 || ListenInJailAs(0, directory, path, known) != kNobodyThere)
            return 107;
          return 0;
        }) == 0);
  // With the daemon goes the name.
  CHECK(ListenInJailAs(0, directory, path, 0) == kNobodyThere);
}

TEST_CASE(
    "in another root directory, too, the socket's mode says who may register, and the user who is trusted",
    "[pmd][users]") {
  NEEDS_ROOT();
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  REQUIRE(chmod(directory.Path(".").c_str(), 0777) == 0);
  const auto with_mode = [&](const char* mode, const std::function<int()>& body) {
    return InChild([&] {
      if (setresgid(0, kDaemonUser, 0) != 0 || setresuid(0, kDaemonUser, 0) != 0) return 100;
      const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path, "--socket-mode", mode});
      if (setresuid(0, 0, 0) != 0 || setresgid(0, 0, 0) != 0) return 101;
      return pmd.ready_line().empty() ? 102 : body();
    });
  };
  CHECK(with_mode("0666", [&] {
          if (ListenInJailAs(kSomebody, directory, path, kDaemonUser) != 0) return 1;
          if (ListenInJailAs(0, directory, path, kSomebody) != kNobodyThere) return 2;
          // The own user is nobody to trust for that alone.
          return ListenInJailAs(kDaemonUser, directory, path, 0) == kNobodyThere ? 0 : 3;
        }) == 0);
  CHECK(with_mode("0600", [&] {
          if (ListenInJailAs(kSomebody, directory, path, kDaemonUser) != kNobodyThere) return 1;
          if (ListenInJailAs(0, directory, path, kDaemonUser) != 0) return 2;
          return ListenInJailAs(kDaemonUser, directory, path, kDaemonUser) == 0 ? 0 : 3;
        }) == 0);
}

// Whoever has taken a path's abstract name; empty if he cannot have it.
UniqueFd Squatter(const std::string& path, int backlog) {
  sockaddr_un address;
  const socklen_t length = AbstractAddress(path, &address);
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool listens = length != 0 &&
                       bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                       listen(fd.get(), backlog) == 0;
  return listens ? std::move(fd) : UniqueFd();
}

// How many have come to it; -1 if one has said anything.
int Visitors(int squatter) {
  for (int count = 0;; ++count) {
    const UniqueFd visitor(accept4(squatter, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!visitor) return count;
    char byte;
    if (recv(visitor.get(), &byte, 1, 0) > 0) return -1;
  }
}

TEST_CASE("without a change of root the name is never asked", "[pmd][users]") {
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const UniqueFd squatter = Squatter(path, 8);
  REQUIRE(squatter);
  KnownDaemons known;
  RegistrarCalls calls;
  calls.known_daemons = &known;
  const ListenerPair pair("127.0.0.1");
  const auto listen = [&] {
    const auto result = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s, calls);
    return !result && result.error().failure == RegistrarFailure::kNoDaemon;
  };
  CHECK(listen());
  known.Remember(path, geteuid(), RootDirectory());
  CHECK(listen());
  // Nor for what is known of another path.
  struct stat elsewhere = RootDirectory();
  ++elsewhere.st_ino;
  known.Remember(path + "2", geteuid(), elsewhere);
  CHECK(listen());
  CHECK(Visitors(squatter.get()) == 0);
}

TEST_CASE("a squatter of another user after the change of root gets nothing", "[pmd][users]") {
  NEEDS_ROOT();
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  REQUIRE(chmod(directory.Path(".").c_str(), 0755) == 0);
  CHECK(InChild([&] {
          if (setresuid(0, kSomebody, 0) != 0) return 100;
          const UniqueFd squatter = Squatter(path, 8);
          if (setresuid(0, 0, 0) != 0 || !squatter) return 101;
          if (ListenInJailAs(0, directory, path, 0) != kNobodyThere) return 102;
          // Of this very user, who is not the daemon's.
          if (ListenInJailAs(kSomebody, directory, path, 0) != kNobodyThere) return 103;
          return Visitors(squatter.get()) == 2 ? 0 : 104;
        }) == 0);
}

TEST_CASE("nobody waits for a full backlog at the name", "[pmd][users]") {
  NEEDS_ROOT();
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  const UniqueFd squatter = Squatter(path, 0);
  REQUIRE(squatter);
  sockaddr_un address;
  const socklen_t length = AbstractAddress(path, &address);
  std::vector<UniqueFd> crowd;
  do crowd.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  while (connect(crowd.back().get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
         crowd.size() < 100);
  REQUIRE(errno == EAGAIN);
  CHECK(ListenInJailAs(0, directory, path, 0, std::chrono::hours(1)) == kNobodyThere);
}

TEST_CASE("what is known of daemons is bounded, and the last registration counts", "[registrar]") {
  KnownDaemons known;
  struct stat here {
  }, there{};
  here.st_ino = 1;
  there.st_ino = 2;
  CHECK_FALSE(known.OutOfReach("/a", here));
  known.Remember("/a", 7, here);
  CHECK_FALSE(known.OutOfReach("/a", here));
  CHECK(known.OutOfReach("/a", there) == std::optional<uid_t>(7));
  CHECK_FALSE(known.OutOfReach("/b", there));
  known.Remember("/a", 8, there);
  CHECK_FALSE(known.OutOfReach("/a", there));
  CHECK(known.OutOfReach("/a", here) == std::optional<uid_t>(8));
  for (const char* path : {"/b", "/c", "/d", "/e"}) known.Remember(path, 9, here);
  CHECK(known.OutOfReach("/d", there) == std::optional<uid_t>(9));
  CHECK_FALSE(known.OutOfReach("/e", there));
  CHECK(known.OutOfReach("/a", here) == std::optional<uid_t>(8));
}

}  // namespace
}  // namespace sdp::pm
