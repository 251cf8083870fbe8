#include "test/support/in_child.h"

#include <fcntl.h>

#include <catch2/catch.hpp>

namespace sdp::test {
namespace {

void BeQuiet() {
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(null, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
}

TEST_CASE("a child exits with what its body returns") {
  CHECK(InChild([] { return 7; }) == 7);
}

TEST_CASE("a child whose body fails an assertion ends") {
  const auto fails = [] {
    BeQuiet();
    REQUIRE(false);
    return 0;
  };
  CHECK(InChild(fails) == kThrew);
}

TEST_CASE("a child that comes back into the test runner ends there") {
  const pid_t pid = fork();
  if (pid == 0) {
    BeQuiet();
    REQUIRE(false);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == kThrew));
}

}  // namespace
}  // namespace sdp::test
