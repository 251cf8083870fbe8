// The host's daemon and programs of other users, on the real paths: in a mount namespace of its own, where
// /run is empty.
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <functional>

#include "portmapper/registrar.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"

namespace sdp::pm {
namespace {

using namespace test;
using namespace std::chrono_literals;

constexpr uid_t kSomebody = 4711;
constexpr uid_t kDaemonUser = 4712;

// Runs `body` in a child and returns what it returned; -1 if it died.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

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

#define NEEDS_ROOT()                                             \
  if (geteuid() != 0) {                                          \
    WARN("skipped: other users and mounts are root's business"); \
    return;                                                      \
  }

TEST_CASE("a program of any user registers with root's daemon", "[pmd][users]") {
  NEEDS_ROOT();
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
  NEEDS_ROOT();
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

// What a process in an empty root directory and of that user does in listen(), which knew the daemon of the user `known` before: as ListenAs.
int ListenInJailAs(uid_t uid, const TempDir& directory, const std::string& path, uid_t known) {
  const ListenerPair pair("127.0.0.1");
  return InChild([&] {
    const std::string jail = directory.Path("jail");
    (void)!mkdir(jail.c_str(), 0755);
    if (chroot(jail.c_str()) != 0 || chdir("/") != 0) return 2;
    if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) return 1;
    std::atomic<uid_t> known_daemon{known};
    RegistrarCalls calls;
    calls.known_daemon = &known_daemon;
    const auto result = RegisterListener(path, pair.conventional.get(), pair.sdp.get(), 5s, calls);
    return result ? 0 : 10 + static_cast<int>(result.error().failure);
  });
}

constexpr int kNobodyThere = 10 + static_cast<int>(RegistrarFailure::kNoDaemon);

TEST_CASE("a program in another root directory registers with root's daemon", "[pmd][users]") {
  NEEDS_ROOT();
  const TempDir directory;
  const std::string path = directory.Path("pmd.sock");
  CHECK(InChild([&] {
          const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", path});
          if (pmd.ready_line().empty()) return 101;
          return ListenInJailAs(0, directory, path, kNobody) == 0 && ListenInJailAs(kSomebody, directory, path, kNobody) == 0 ? 0 : 102;
        }) == 0);
  // With the daemon goes the name.
  CHECK(ListenInJailAs(0, directory, path, 0) == kNobodyThere);
}

TEST_CASE("in another root directory, too, the socket's mode says who may register, and the user who is trusted", "[pmd][users]") {
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
          if (ListenInJailAs(kSomebody, directory, path, kNobody) != kNobodyThere) return 2;
          if (ListenInJailAs(0, directory, path, kSomebody) != kNobodyThere) return 3;
          return ListenInJailAs(kDaemonUser, directory, path, kNobody) == 0 ? 0 : 4;
        }) == 0);
  CHECK(with_mode("0600", [&] {
          if (ListenInJailAs(kSomebody, directory, path, kDaemonUser) != kNobodyThere) return 1;
          if (ListenInJailAs(0, directory, path, kDaemonUser) != 0) return 2;
          return ListenInJailAs(kDaemonUser, directory, path, kNobody) == 0 ? 0 : 3;
        }) == 0);
}

}  // namespace
}  // namespace sdp::pm
