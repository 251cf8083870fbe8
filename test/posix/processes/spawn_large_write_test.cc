// A program is started behind a large write that nobody has read yet: the connection is its, too. The peer
// reads when the program says that it has begun, and not before.
#include <spawn.h>
#include <sys/epoll.h>

#include <cstdlib>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

constexpr size_t kWritten = 200'000;    // TCP buffers as much
constexpr int kSocket = 9, kBegun = 8;  // the highest numbers that every shell can name

constexpr const char* kBegunNumber = "POSIX_TEST_BEGUN";

// --- What the other program does.

void SayBegun() {
  const char* const number = getenv(kBegunNumber);
  REQUIRE(number != nullptr);
  REQUIRE(write(atoi(number), "x", 1) == 1);
}

TEST_CASE("answer on an inherited descriptor", "[.inherited-answer]") {
  const int fd = InheritedNumber();
  REQUIRE(PeerOf(fd).ToString() == getenv("POSIX_TEST_PEER"));
  REQUIRE(GetOption(fd, SOL_SOCKET, SO_ERROR) == 0);
  SayBegun();
  REQUIRE(ReceiveExactly(fd, 5) == "word\n");
  REQUIRE(SendAll(fd, "got word\n"));
}

TEST_CASE("answer on an inherited descriptor that does not block", "[.inherited-patient-answer]") {
  const int fd = InheritedNumber();
  SetNonblocking(fd);
  SayBegun();
  std::string got;
  while (got.size() < 5 && WaitFor(fd, POLLIN)) {
    char room[5];
    const ssize_t n = recv(fd, room, sizeof room - got.size(), 0);
    if (n < 0) REQUIRE(errno == EAGAIN);
    if (n == 0) break;
    if (n > 0) got.append(room, static_cast<size_t>(n));
  }
  REQUIRE(got == "word\n");
  REQUIRE(SendAll(fd, "got word\n"));
}

TEST_CASE("answer on an inherited descriptor at edges", "[.inherited-edges]") {
  const int fd = InheritedNumber();
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0);
  uint32_t seen = epoll_wait(ep, &event, 1, 0) == 1 ? event.events : 0;
  SayBegun();
  while ((seen & (EPOLLIN | EPOLLOUT)) != (EPOLLIN | EPOLLOUT)) {
    REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
    seen |= event.events;
  }
  REQUIRE(ReceiveExactly(fd, 5) == "word\n");
  REQUIRE(SendAll(fd, "got word\n"));
}

TEST_CASE("close an inherited descriptor", "[.inherited-close]") {
  REQUIRE(close(InheritedNumber()) == 0);
  SayBegun();
}

TEST_CASE("shut an inherited descriptor down", "[.inherited-shut]") {
  const int fd = InheritedNumber();
  SayBegun();
  REQUIRE(shutdown(fd, SHUT_WR) == 0);
}

TEST_CASE("start another program on an inherited descriptor", "[.inherited-start]") {
  const int fd = InheritedNumber();
  Program next("[.inherited-answer]", fd);
  execve(next.path.c_str(), next.argv.data(), next.envp.data());
  FAIL();
}

// --- Starting it

constexpr const char* kCommand = "echo >&8; echo begun; read word <&9; echo got $word >&9";

// `pair.server` has been written to, and is kSocket here; who writes to kBegun has the client read.
class Written {
 public:
  explicit Written(bool answered = true) {
    remote_ = ServeClient([this, answered](int fd) {
      if ((answered && !SendAll(fd, "word\n")) || !begun_.Hear()) return 1;
      const std::string expected = Data() + (answered ? "got word\n" : "");
      const std::string got = ReceiveToEnd(fd);
      return got.size() == expected.size() && Hash(got) == Hash(expected) ? 0 : 2;
    });
    const std::string data = Data();
    REQUIRE(send(remote_.server, data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
    REQUIRE(setenv("POSIX_TEST_PEER", PeerOf(remote_.server).ToString().c_str(), 1) == 0);
    REQUIRE(setenv(kBegunNumber, std::to_string(kBegun).c_str(), 1) == 0);
    REQUIRE(dup2(begun_.out, kBegun) == kBegun);
    REQUIRE(dup2(remote_.server, kSocket) == kSocket);
    remote_.server.reset();
  }
  ~Written() {
    close(kBegun);
    close(kSocket);
  }
  static std::string Data() { return Pattern(kWritten, 7); }
  // A peer that never hears would keep the whole case from its end.
  void RequireRead(bool program_did_well) {
    if (!program_did_well) Kill(remote_.pid);
    REQUIRE(program_did_well);
    close(kSocket);
    REQUIRE(ExitedWith(Reap(remote_.pid), 0));
  }

 private:
  Pipe begun_;
  RemoteClient remote_;
};

pid_t Spawn(Program& program, const posix_spawn_file_actions_t* actions = nullptr) {
  pid_t pid = -1;
  REQUIRE(posix_spawn(&pid, program.path.c_str(), actions, nullptr, program.argv.data(),
                      program.envp.data()) == 0);
  return pid;
}

TEST_CASE("spawn: behind a large write that nobody has read a program has the connection") {
  constexpr const char* kPrograms[] = {"[.inherited-answer]", "[.inherited-patient-answer]",
                                       "[.inherited-edges]", "[.inherited-start]"};
  const char* const program = kPrograms[GENERATE(0, 1, 2, 3)];
  const bool rearranged = GENERATE(false, true);
  const bool parent_closes = GENERATE(false, true);
  Written written;
  Program other(program, rearranged ? 7 : kSocket);
  posix_spawn_file_actions_t actions;
  REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
  REQUIRE(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) == 0);
  if (rearranged) REQUIRE(posix_spawn_file_actions_adddup2(&actions, kSocket, 7) == 0);
  const pid_t pid = Spawn(other, &actions);
  REQUIRE(posix_spawn_file_actions_destroy(&actions) == 0);
  if (parent_closes) close(kSocket);
  written.RequireRead(ExitedWith(Reap(pid), 0));
}

TEST_CASE("spawn: a program that only closes what it has, or shuts it down, leaves the large write whole") {
  const bool closes = GENERATE(true, false);
  Written written(/*answered=*/false);
  Program other(closes ? "[.inherited-close]" : "[.inherited-shut]", kSocket);
  posix_spawn_file_actions_t actions;
  REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
  REQUIRE(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) == 0);
  const pid_t pid = Spawn(other, &actions);
  REQUIRE(posix_spawn_file_actions_destroy(&actions) == 0);
  written.RequireRead(ExitedWith(Reap(pid), 0));
}

TEST_CASE(
    "spawn: behind a large write that nobody has read the commands of system and popen have the connection") {
  const bool waits = GENERATE(false, true);
  Written written;
  if (waits) {
    written.RequireRead(ExitedWith(system(("{ " + std::string(kCommand) + "; } >/dev/null").c_str()), 0));
  } else {
    FILE* const stream = popen(kCommand, "r");
    REQUIRE(stream != nullptr);
    char line[16];
    const bool begun = fgets(line, sizeof line, stream) == std::string("begun\n");
    written.RequireRead(ExitedWith(pclose(stream), 0) && begun);
  }
}

TEST_CASE(
    "spawn: behind a large write that nobody has read the programs of vfork and fork have the connection") {
  const bool forks = GENERATE(false, true);
  Written written;
  Program other("[.inherited-answer]", kSocket);
  Fd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const pid_t pid = forks ? fork() : vfork();
  if (pid == 0) {
    dup2(null, 1);
    execve(other.path.c_str(), other.argv.data(), other.envp.data());
    _exit(100);
  }
  REQUIRE(pid > 0);
  written.RequireRead(ExitedWith(Reap(pid), 0));
}

// A process that starts programs beside a peer that reads nothing is not held up by it.
TEST_CASE("spawn: programs come and go behind a large write that nobody has read") {
  Written written(/*answered=*/false);
  for (int i = 0; i < 3; ++i) REQUIRE(ExitedWith(system("exit 0"), 0));
  REQUIRE(write(kBegun, "x", 1) == 1);
  written.RequireRead(true);
}

TEST_CASE("spawn: a program begins with the connection of a process that ends") {
  Pipe begun;
  Listener listener = Listen();
  const std::string data = Written::Data();
  const pid_t pid = Fork([&] {
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    if (send(client, data.data(), data.size(), 0) != static_cast<ssize_t>(data.size())) return 2;
    if (dup2(begun.out, kBegun) != kBegun || dup2(client, kSocket) != kSocket) return 3;
    client.reset();
    FILE* const stream = popen(kCommand, "r");
    char line[16];
    return stream != nullptr && fgets(line, sizeof line, stream) == std::string("begun\n")
               ? 0
               : 4;  // and nobody waits for its end
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd peer(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(peer, "word\n"));
  REQUIRE(begun.Hear());
  const std::string got = ReceiveToEnd(peer);
  REQUIRE(got.size() == data.size() + 9);
  REQUIRE(Hash(got) == Hash(data + "got word\n"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
