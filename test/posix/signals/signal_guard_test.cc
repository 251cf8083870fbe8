// Where the library's stand-in for SIG_DFL has to be, though something took it away or never put it there;
// and whom an end that is under way leaves no more to do.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <iterator>
#include <thread>

#include "test/posix/signals/ended_process.h"
#include "test/posix/twins.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

// By a client of the library's and by one that the kernel alone knows; neither waits for an answer.
TEST_CASE("terminated: no other thread takes on a client", "[refused]") {
  Pipe there, came_back;
  Fillers children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(
        std::make_unique<Filler>(std::vector{Filler::kPiece, Filler::kNothing}, [&](const auto&) {
          const Listener listener = Listen();
          std::thread([&, fd = listener.fd.get()] {
            (void)!accept(fd, nullptr, nullptr);
            (void)!write(came_back.out, "x", 1);
          }).detach();
          if (write(there.out, &listener.address, sizeof listener.address) == sizeof listener.address)
            Pause();
        }));
  }
  const BareFd bare = BareSocket(AF_INET);
  const Fd ours = TcpSocket();
  for (const bool by_library : {false, true}) {
    Filler& child = *children[by_library ? 1 : 0];
    child.Fill();
    Address address;
    REQUIRE(WaitFor(there.in, POLLIN));
    REQUIRE(read(there.in, &address, sizeof address) == sizeof address);
    REQUIRE(kill(child.pid(), SIGTERM) == 0);
    RequireEnding(child);
    if (by_library) {
      SetNonblocking(ours);
      (void)connect(ours, address.get(), address.length);
    } else {
      (void)syscall(SYS_connect, bare.get(), address.get(), address.length);
    }
    REQUIRE_FALSE(WaitFor(came_back.in, POLLIN, kQuietMs));
    RequireAll(child.peers[0], child.sent[0]);
    REQUIRE(EndedBy(Reap(child.pid()), SIGTERM));
    REQUIRE_FALSE(WaitFor(came_back.in, POLLIN, 0));
  }
}

// One for all threads, of which one has another: that nobody can know before.
TEST_CASE("terminated: with a filter that the kernel has refused") {
  Pipe set, refused;
  Filler child({Filler::kPiece}, [&](const auto&) {
    sock_filter all[] = {BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ALLOW)};
    sock_filter none[] = {BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS)};
    const sock_fprog for_one = {std::size(all), all}, for_all = {std::size(none), none};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
    std::thread([&] {
      if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &for_one) != 0 || write(set.out, "x", 1) != 1)
        return;
      Pause();
    }).detach();
    if (!set.Hear() ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &for_all) <= 0)
      return;
    if (write(refused.out, "x", 1) == 1) Pause();
  });
  child.Fill();
  REQUIRE(refused.Hear());
  RequireDelivers(child);
}

bool UnsharePids() { return unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0; }

// SIG_DFL protects the first process, but not its children. The connection is the first one's, from before.
TEST_CASE("terminated: a child of the first process of a PID namespace") {
  if (!ExitedWith(Reap(Fork([] { return UnsharePids() ? 0 : 1; })), 0))
    return sdp::test::Skipped("no PID namespaces here");
  Sendings();  // once for all
  Pipe told, go;
  // What the child has been, as its parent hands it on and that one's parent.
  const auto child = [&](int fd) {
    const size_t sent = FillWithPieces(fd, Filler::kPiece);
    if (write(told.out, &sent, sizeof sent) != sizeof sent || !go.Hear()) return 10;
    raise(SIGTERM);
    return 11;
  };
  const auto first = [&](const auto& connected) {
    if (getpid() != 1) return 20;
    const int fd = connected();
    if (fd < 0) return 21;
    const pid_t pid = fork();
    if (pid == 0) _exit(child(fd));
    close(fd);
    int ended = 0;
    if (waitpid(pid, &ended, 0) != pid) return 22;
    return EndedBy(ended, SIGTERM) ? 0 : 23;
  };
  Connecting outside([&](const auto& connected) {
    if (!UnsharePids()) return 30;
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(first(connected));
    }
    int ended = 0;
    if (waitpid(pid, &ended, 0) != pid || !WIFEXITED(ended)) return 31;
    return WEXITSTATUS(ended);
  });
  const Fd peer = std::move(outside.Accept(1).front());
  size_t sent = 0;
  REQUIRE(WaitFor(told.in, POLLIN));
  REQUIRE(read(told.in, &sent, sizeof sent) == sizeof sent);
  go.Tell();
  RequireAll(peer, sent);
  REQUIRE(ExitedWith(Reap(outside.pid()), 0));
}

}  // namespace
}  // namespace posix_test
