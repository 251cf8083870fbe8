// close_range with flags, tables of descriptors that are shared no more, and what dup3 and fcntl make of
// strange wishes.
#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/wait.h>

#include "test/posix/sanitizers.h"
#include "test/posix/twins.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

constexpr int kBase = 400;

// A connection with one end, or a listener, moved up there, so that a range holds nothing else.
void MoveTo(Fd& fd, int number) {
  REQUIRE(dup2(fd, number) == number);
  fd.reset();
}

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// In a program that this process becomes; 0 for yes.
int HasAfterExec(int fd) {
  const std::string question = "test -e /proc/self/fd/" + std::to_string(fd);
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", question.c_str(), nullptr);
    _exit(127);
  }
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("descriptors: close_range marks sockets for exec") {
  Listener listener = Listen();
  const Address address = listener.address;
  Pair pair = ConnectTo(listener);
  MoveTo(pair.client, kBase);
  MoveTo(listener.fd, kBase + 1);
  Fd unmarked(fcntl(pair.server, F_DUPFD, kBase + 50));
  REQUIRE(close_range(kBase, kBase + 10, CLOSE_RANGE_CLOEXEC) == 0);
  REQUIRE((fcntl(kBase, F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE((fcntl(kBase + 1, F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE((fcntl(unmarked, F_GETFD) & FD_CLOEXEC) == 0);
  REQUIRE(HasAfterExec(kBase) == 1);
  REQUIRE(HasAfterExec(kBase + 1) == 1);
  REQUIRE(HasAfterExec(unmarked) == 0);
  REQUIRE(SendAll(kBase, "marked"));
  REQUIRE(ReceiveExactly(pair.server, 6) == "marked");
  listener.fd.reset(kBase + 1);
  listener.address = address;
  Pair next = ConnectTo(listener);
  REQUIRE(SendAll(next.client, "next"));
  REQUIRE(ReceiveExactly(next.server, 4) == "next");
  close(kBase);
  REQUIRE(ReceiveToEnd(pair.server).empty());
}

TEST_CASE("descriptors: close_range refuses flags that it does not know, and closes nothing") {
  Pair pair = MakePair();
  MoveTo(pair.client, kBase);
  REQUIRE_ERRNO(close_range(kBase, kBase + 10, 1u << 7), EINVAL);
  REQUIRE_ERRNO(close_range(kBase + 10, kBase, CLOSE_RANGE_CLOEXEC), EINVAL);
  REQUIRE_ERRNO(close_range(kBase + 10, kBase, CLOSE_RANGE_UNSHARE), EINVAL);
  REQUIRE(IsOpen(kBase));
  REQUIRE((fcntl(kBase, F_GETFD) & FD_CLOEXEC) == 0);
  REQUIRE(SendAll(kBase, "x"));
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  close(kBase);
}

// Work that goes on behind the program's back: a connect that does not block, and bytes that a closed socket
// has yet to send.
int WorksBehindTheBack() {
  Listener listener = Listen();
  Pair pair;
  pair.client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  if (connect(pair.client, listener.address.get(), listener.address.length) != 0 && errno != EINPROGRESS)
    return 11;
  pair.server.reset(accept(listener.fd, nullptr, nullptr));
  if (pair.server < 0 || !WaitFor(pair.client, POLLOUT)) return 12;
  const size_t sent = Fill(pair.client);
  pair.client.reset();
  return ReceiveToEnd(pair.server).size() == sent ? 0 : 13;
}

// A process with one thread shares its descriptors with nobody: to unshare them changes nothing.
TEST_CASE("descriptors: close_range that unshares, in a process alone") {
  if (kUnderTsan) return Impossible(why::kThread);
  const int flags = GENERATE(static_cast<int>(CLOSE_RANGE_UNSHARE),
                             static_cast<int>(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC));
  const pid_t pid = Child([flags] {
    if (const int failed = WorksBehindTheBack(); failed != 0) return failed;
    Pair pair = MakePair();
    MoveTo(pair.client, kBase);
    if (close_range(kBase, kBase + 10, flags) != 0) return 1;
    const bool marks = (flags & CLOSE_RANGE_CLOEXEC) != 0;
    if (IsOpen(kBase) != marks) return 2;
    if (marks && (fcntl(kBase, F_GETFD) != FD_CLOEXEC || !SendAll(kBase, "last") || close(kBase) != 0))
      return 3;
    if (ReceiveToEnd(pair.server) != (marks ? "last" : "")) return 4;
    return WorksBehindTheBack();
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// Whether the kernel lets a process of one thread do that: a container's filter may refuse it.
bool MayUnshare(int what) {
  const pid_t pid = fork();
  if (pid == 0) _exit(syscall(SYS_unshare, what) == 0 ? 0 : 1);
  return ExitedWith(Reap(pid), 0);
}

TEST_CASE("descriptors: unshare of descriptors, in a process alone") {
  if (kUnderTsan) return Impossible(why::kThread);
  if (!MayUnshare(CLONE_FILES)) return sdp::test::Skipped("no unshare here");
  const pid_t pid = Child([] {
    if (const int failed = WorksBehindTheBack(); failed != 0) return failed;
    Pair pair = MakePair();
    if (unshare(CLONE_FILES) != 0) return 1;
    pair.client.reset();
    if (!ReceiveToEnd(pair.server).empty()) return 2;
    return WorksBehindTheBack();
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// The kernel refuses that to a process with more than one thread.
TEST_CASE("descriptors: a process with one thread may enter a user namespace with its connections") {
  if (kUnderTsan) return Impossible(why::kThread);
  if (!MayUnshare(CLONE_NEWUSER)) return sdp::test::Skipped("no user namespaces here");
  const pid_t pid = Child([] {
    if (const int failed = WorksBehindTheBack(); failed != 0) return failed;
    Pair pair = MakePair();
    if (unshare(CLONE_NEWUSER) != 0) return 1;
    if (!SendAll(pair.client, "as nobody") || ReceiveExactly(pair.server, 9) != "as nobody") return 2;
    pair.client.reset();
    if (!ReceiveToEnd(pair.server).empty()) return 3;
    return 0;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("descriptors: dup, dup2, dup3 and F_DUPFD of numbers that are none, or too large") {
  Pair pair = MakePair();
  const int limit = static_cast<int>(sysconf(_SC_OPEN_MAX));
  for (const int bad : {-1, limit, limit + 7, 0x7fffffff}) {
    INFO(bad);
    REQUIRE_ERRNO(dup2(pair.client, bad), EBADF);
    REQUIRE_ERRNO(dup3(pair.client, bad, O_CLOEXEC), EBADF);
    REQUIRE_ERRNO(fcntl(pair.client, F_DUPFD, bad), EINVAL);
    REQUIRE_ERRNO(fcntl(pair.client, F_DUPFD_CLOEXEC, bad), EINVAL);
    REQUIRE_ERRNO(dup2(bad, pair.client), EBADF);
    REQUIRE_ERRNO(dup3(bad, pair.client, 0), EBADF);
    REQUIRE_ERRNO(dup(bad), EBADF);
  }
  REQUIRE_ERRNO(dup3(pair.client, pair.client, O_CLOEXEC), EINVAL);
  REQUIRE_ERRNO(dup3(pair.client, kBase, O_NONBLOCK), EINVAL);
  REQUIRE_ERRNO(dup3(-1, -1, 0), EINVAL);
  REQUIRE_ERRNO(dup2(-1, -1), EBADF);
  REQUIRE(SendAll(pair.client, "as before"));
  REQUIRE(ReceiveExactly(pair.server, 9) == "as before");
}

TEST_CASE("descriptors: flags of a number are its own, those of the socket all its numbers'") {
  Pair pair = MakePair();
  Fd copy(fcntl(pair.client, F_DUPFD_CLOEXEC, kBase));
  REQUIRE(fcntl(copy, F_GETFD) == FD_CLOEXEC);
  REQUIRE(fcntl(pair.client, F_GETFD) == 0);
  REQUIRE(dup3(pair.client, copy, 0) == copy);
  REQUIRE(fcntl(copy, F_GETFD) == 0);
  REQUIRE(fcntl(copy, F_SETFD, ~0) == 0);
  REQUIRE(fcntl(copy, F_GETFD) == FD_CLOEXEC);
  REQUIRE(dup2(copy, copy) == copy);
  REQUIRE(fcntl(copy, F_GETFD) == FD_CLOEXEC);
  REQUIRE(fcntl(copy, F_SETFL, O_NONBLOCK) == 0);
  char c;
  REQUIRE_ERRNO(recv(pair.client, &c, 1, 0), EAGAIN);
  REQUIRE(fcntl(pair.client, F_SETFL, 0) == 0);
  REQUIRE((fcntl(copy, F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("descriptors: whatever fcntl is asked of a socket, in each of its states") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  Fd fresh = TcpSocket();
  BarePair bare = BareConnection(AF_INET, BareSocket(AF_INET));
  BareFd bare_fresh = BareSocket(AF_INET);
  std::string differences;
  for (const auto& [ours, oracle, who] : {std::tuple(fresh.get(), bare_fresh.get(), "new"),
                                          std::tuple(listener.fd.get(), bare.listener.get(), "listening"),
                                          std::tuple(pair.client.get(), bare.client.get(), "client"),
                                          std::tuple(pair.server.get(), bare.server.get(), "server")}) {
    const auto compare = [&, ours = ours, oracle = oracle, who = std::string(who)](int command,
                                                                                   long argument) {
      errno = 0;
      flock again{};  // the first answer overwrites the question
      again.l_type = F_RDLCK;
      const long mine = fcntl(ours, command, argument);
      const int my_error = errno;
      errno = 0;
      const long theirs =
          syscall(SYS_fcntl, oracle, command,
                  command == F_GETLK && argument != 0 ? reinterpret_cast<long>(&again) : argument);
      if (mine == theirs && my_error == errno) return;
      differences += "\n  " + who + ", command " + std::to_string(command) + " with " +
                     std::to_string(argument) + ": " + std::to_string(mine) + " " +
                     strerrorname_np(my_error) + ", where TCP says " + std::to_string(theirs) + " " +
                     strerrorname_np(errno);
    };
    for (const int flags : {O_NONBLOCK, O_NONBLOCK | O_WRONLY | O_APPEND, O_APPEND | O_NOATIME,
                            ~0 & ~(O_ASYNC | O_DIRECT), 0}) {
      compare(F_SETFL, flags);
      compare(F_GETFL, 0);
    }
    compare(F_SETFL, O_DIRECT);
    compare(F_SETFL, 0);
    f_owner_ex owner{.type = F_OWNER_TID, .pid = 0};
    f_owner_ex nobody{.type = static_cast<decltype(owner.type)>(77), .pid = 0};
    uint64_t hint = 1;
    for (const int command : {F_GETFD, F_GETOWN, F_GETSIG, F_GETLEASE, F_NOTIFY, F_GETPIPE_SZ, F_SETPIPE_SZ,
                              F_ADD_SEALS, F_GET_SEALS, F_SETLEASE, 9999, -1})
      compare(command, 0);
    for (const int command : {F_GETLK, F_SETLK, F_OFD_GETLK, F_OFD_SETLK}) {
      flock lock{};
      lock.l_type = F_RDLCK;
      compare(command, reinterpret_cast<long>(&lock));
    }
    for (const int command : {F_GETLK, F_SETLK, F_GETOWN_EX, F_SETOWN_EX}) compare(command, 0);
    compare(F_SETOWN_EX, reinterpret_cast<long>(&nobody));
    compare(F_SETOWN_EX, reinterpret_cast<long>(&owner));
    compare(F_GETOWN_EX, reinterpret_cast<long>(&owner));
    compare(F_GET_RW_HINT, reinterpret_cast<long>(&hint));
    compare(F_SET_RW_HINT, reinterpret_cast<long>(&hint));
    compare(F_SETSIG, 99);
    compare(F_SETSIG, -1);
    compare(F_DUPFD, -1);
    compare(F_DUPFD, 1L << 30);
  }
  INFO(differences);
  REQUIRE(differences.empty());
  REQUIRE(SendAll(pair.client, "as before"));
  REQUIRE(ReceiveExactly(pair.server, 9) == "as before");
}

}  // namespace
}  // namespace posix_test
