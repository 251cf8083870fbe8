// What costs nothing while nothing happens.
#include <dirent.h>

#include <atomic>
#include <chrono>
#include <fstream>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

// How often the threads of this process, but for the caller, have gone to sleep.
int Sleeps() {
  int total = 0;
  DIR* const tasks = opendir("/proc/self/task");
  REQUIRE(tasks != nullptr);
  while (const dirent* const task = readdir(tasks)) {
    const std::string name = task->d_name;
    if (name[0] == '.' || name == std::to_string(gettid())) continue;
    std::ifstream status("/proc/self/task/" + name + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("voluntary_ctxt_switches:", 0) == 0) total += std::stoi(line.substr(line.find(':') + 1));
    }
  }
  closedir(tasks);
  return total;
}

TEST_CASE("fork: a connection that is closed under a sleeping receive, and open in a child, costs no processor time") {
  Pair pair = MakePair();
  std::atomic<pid_t> tid{0};
  auto sleeper = Async([&, fd = pair.server.get()] {
    tid = gettid();
    char c;
    return recv(fd, &c, 1, 0);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  Pipe over;
  const pid_t pid = Fork([&] {
    over.out.reset();
    pair.client.reset();
    return over.HearEnd() ? 0 : 1;
  });
  pair.server.reset();
  REQUIRE(StillRunning(sleeper));
  const int before = Sleeps();
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(StillRunning(sleeper, 1000));
  const int sleeps = Sleeps() - before;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  REQUIRE(sleeps < 15 * seconds.count());
  REQUIRE(SendAll(pair.client, "x"));
  Get(sleeper);
  over.out.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
