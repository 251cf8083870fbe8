// Children of a test program. A child never returns into the test runner: what its body throws ends it
// with 99.
#ifndef SDP_TEST_SUPPORT_IN_CHILD_H_
#define SDP_TEST_SUPPORT_IN_CHILD_H_

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace sdp::test {

constexpr int kThrew = 99;

// Forks. The child runs `body` and exits with what it returned. Returns the child's number, -1 if there is
// none.
inline pid_t ForkChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  int code = kThrew;
  try {
    code = body();
  } catch (...) {  // a failed REQUIRE has been printed
  }
  _exit(code);
}

// Runs `body` in a child and waits for it. Returns what it returned, -1 if the child died or could not be
// had.
inline int InChild(const std::function<int()>& body) {
  const pid_t pid = ForkChild(body);
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace sdp::test

#endif  // SDP_TEST_SUPPORT_IN_CHILD_H_
