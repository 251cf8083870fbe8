// The helper's list of tasks, and its look for other threads: values, without a thread.
#include "preload/socket/helper_tasks.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <new>
#include <string>

#include "preload/real_calls.h"
#include "preload/socket/last_thread.h"

namespace sdp::preload {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1h};

// Returns what it is told to, and notes when it ran.
class Scripted final : public HelperTask {
 public:
  explicit Scripted(Socket* owner = nullptr) : owner_(owner) {}
  HelperWait Run(Time now) override {
    runs.push_back(now);
    if (out_of_memory) throw std::bad_alloc();
    return next;
  }
  Socket* owner() override { return owner_; }

  HelperWait next{.done = true};
  bool out_of_memory = false;
  std::vector<Time> runs;

 private:
  Socket* const owner_;
};

SocketRef NewSocket() { return SocketRef(Socket::New(AF_INET, real.socket(AF_INET, SOCK_STREAM, 0))); }

std::string Stat(const std::string& name, char state, int threads, int status) {
  return "77 (" + name + ") " + state + " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 " + std::to_string(threads) +
         " 18 19 20 " + std::to_string(status) + "\n";
}

}  // namespace

TEST_CASE("TaskList: a task runs at its deadline, not before") {
  TaskList list;
  Scripted task;
  list.Add(&task, kStart);
  list.RunReady({}, kStart - 1ns);
  CHECK(task.runs.empty());
  list.RunReady({}, kStart);
  CHECK(task.runs == std::vector<Time>{kStart});
  CHECK(list.TakeDone().empty());  // the library's own: no owner's reference to give back
  CHECK(list.empty());
}

TEST_CASE("TaskList: a task runs when its descriptor is ready, and poll's answers fit to the right tasks") {
  TaskList list;
  Scripted sleeping;
  Scripted polling;
  sleeping.next = {.deadline = kStart + 1h};
  polling.next = {.fd = 7, .events = POLLIN, .deadline = kStart + 2h};
  list.Add(&sleeping, kStart);
  list.Add(&polling, kStart);
  list.RunReady({}, kStart);
  std::vector<pollfd> fds;
  CHECK(list.AppendPolled(&fds) == kStart + 1h);
  REQUIRE(fds.size() == 1);
  CHECK(fds[0].fd == 7);
  CHECK(fds[0].events == POLLIN);

  list.RunReady(fds, kStart + 1s);
  CHECK(polling.runs.size() == 1);
  fds[0].revents = POLLIN;
  list.RunReady(fds, kStart + 1s);
  CHECK(polling.runs.size() == 2);
  CHECK(sleeping.runs.size() == 1);
}

TEST_CASE("TaskList: a task that has found no memory runs again soon") {
  TaskList list;
  Scripted task;
  task.out_of_memory = true;
  list.Add(&task, kStart);
  list.RunReady({}, kStart);
  CHECK(list.TakeDone().empty());
  std::vector<pollfd> fds;
  CHECK(list.AppendPolled(&fds) == kStart + 50ms);
}

TEST_CASE("TaskList: what sockets own is taken out and moved back, and its owners are given back when done") {
  TaskList list;
  const SocketRef socket = NewSocket();
  Scripted own;
  Scripted owned(socket.get());
  list.Add(&own, kStart);
  list.Add(&owned, kStart + 1s);
  CHECK(list.AnyOwned());
  CHECK(list.NextLook(kStart, 10ms) == kStart + 1s);  // the library's own task is a thread's alone

  TaskList taken = list.TakeOwned();
  CHECK_FALSE(list.AnyOwned());
  CHECK_FALSE(list.empty());
  CHECK(list.NextLook(kStart, 10ms) == kNever);
  CHECK(taken.AnyOwned());
  std::vector<SocketRef> owners;
  taken.AppendOwners(&owners);
  list.AppendOwners(&owners);
  REQUIRE(owners.size() == 1);
  CHECK(owners[0].get() == socket.get());

  owned.next = {.fd = 7, .events = POLLIN};
  taken.RunReady({}, kStart + 1s);
  CHECK(taken.NextLook(kStart + 1s, 10ms) == kStart + 1s + 10ms);
  owned.next = {.done = true};
  std::vector<pollfd> fds;
  taken.AppendPolled(&fds);
  fds[0].revents = POLLIN;
  taken.RunReady(fds, kStart + 2s);
  list.Append(&taken);
  CHECK(taken.empty());
  CHECK(list.TakeDone() == std::vector<Socket*>{socket.get()});
  CHECK_FALSE(list.AnyOwned());
}

TEST_CASE("StatusBeforeLastThread: only where the first thread has ended and one other is left") {
  CHECK(StatusBeforeLastThread(Stat("program", 'Z', 2, 3 << 8).c_str()) == 3);
  CHECK(StatusBeforeLastThread(Stat("program", 'Z', 2, 0).c_str()) == 0);
  CHECK(StatusBeforeLastThread(Stat("a) Z 1 (b", 'Z', 2, 1 << 8).c_str()) == 1);
  CHECK_FALSE(StatusBeforeLastThread(Stat("program", 'Z', 3, 0).c_str()).has_value());
  CHECK_FALSE(StatusBeforeLastThread(Stat("program", 'S', 2, 0).c_str()).has_value());
  CHECK_FALSE(StatusBeforeLastThread("77 (cut off").has_value());
  CHECK_FALSE(StatusBeforeLastThread("").has_value());
}

TEST_CASE("LastThreadWatch: a process whose first thread lives is not at its end") {
  CHECK(ThreadsOfProcess() >= 1);
  LastThreadWatch watch;
  CHECK_FALSE(watch.Look(kStart).has_value());
}

}  // namespace sdp::preload
