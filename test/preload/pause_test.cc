#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <string>

#include "preload/unbounded_poll.h"
#include "test/support/eventually.h"
#include "test/support/in_child.h"
#include "test/support/skipped.h"

namespace sdp::preload {
namespace {

constexpr int kCannot = 77;

bool ForbidRestarts() {
  sock_filter instructions[] = {BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr)),
                                BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, SYS_restart_syscall, 0, 1),
                                BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS),
                                BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = 4, .filter = instructions};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Or it has ended.
bool Sleeps(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name;
  char state = 'Z';
  file >> number >> name >> state;
  return state == 'S' || state == 'Z';
}

TEST_CASE("A pause may be stopped and continued behind a filter that forbids restart_syscall") {
  const pid_t child = test::ForkChild([] {
    if (!ForbidRestarts()) return kCannot;
    Pause(std::chrono::milliseconds(300));
    return 0;
  });
  REQUIRE(child > 0);
  REQUIRE(test::Eventually([child] { return Sleeps(child); }));
  kill(child, SIGSTOP);
  int status = 0;
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  if (WIFSTOPPED(status)) {
    kill(child, SIGCONT);
    REQUIRE(waitpid(child, &status, 0) == child);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) {
    return test::Skipped("no seccomp filters here");
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace sdp::preload
