#include "tools/sdp-run/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sdp::run {
namespace {

constexpr int kReadyTimeoutMs = 5000;
constexpr auto kStopTimeout = std::chrono::seconds(2);

// The port mapper must not outlive this process, even when that is killed.
[[noreturn]] void BecomeDaemon(const std::string& program, const std::string& socket_path, int ready_fd,
                               pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(0);
  // Not in the terminal's foreground group: Ctrl-C ends the program, and the port mapper after it.
  setpgid(0, 0);
  fcntl(ready_fd, F_SETFD, 0);
  int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);  // which is the program's
  std::string fd_text = std::to_string(ready_fd);
  execl(program.c_str(), program.c_str(), "--log-level", "error", "--socket", socket_path.c_str(),
        "--ready-fd", fd_text.c_str(), nullptr);
  fprintf(stderr, "sdp-run: cannot run %s: %s\n", program.c_str(), strerror(errno));
  _exit(127);
}

// Readiness is a byte; an end without one means that the daemon has ended.
bool WaitForReady(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  if (poll(&entry, 1, kReadyTimeoutMs) != 1) return false;
  char byte;
  return read(fd, &byte, 1) == 1;
}

// Waits for the child with SIGCHLD blocked; false on time-out.
bool WaitUpTo(pid_t pid, std::chrono::nanoseconds timeout) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  auto deadline = std::chrono::steady_clock::now() + timeout;
  while (waitpid(pid, nullptr, WNOHANG) == 0) {
    auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    timespec wait{.tv_sec = left / std::chrono::seconds(1),
                  .tv_nsec = (left % std::chrono::seconds(1)) / std::chrono::nanoseconds(1)};
    sigtimedwait(&child, nullptr, &wait);
  }
  return true;
}

sigset_t Block(std::initializer_list<int> signals) {
  sigset_t set, before;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, &before);
  return before;
}

[[noreturn]] void DieBy(int signal_number) {
  rlimit none{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);  // the program has dumped its own
  signal(signal_number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  raise(signal_number);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  _exit(128 + signal_number);
}

// Handles one SIGCHLD: true when the program has ended, with its wait status.
bool Reap(pid_t pid, int* status) {
  int got;
  while (waitpid(pid, &got, WNOHANG | WUNTRACED) == pid) {
    if (WIFSTOPPED(got)) {
      raise(SIGSTOP);  // for the shell's job control; SIGCONT reaches the whole group
      continue;
    }
    *status = got;
    return true;
  }
  return false;
}

}  // namespace

std::string PrivateDaemon::Start(const std::string& program) {
  char name[] = "/tmp/sdp-run-XXXXXX";
  if (mkdtemp(name) == nullptr) return std::string("cannot make a directory in /tmp: ") + strerror(errno);
  directory_ = name;
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return std::string("cannot make a pipe: ") + strerror(errno);
  Block({SIGCHLD});  // before there is a child, so that its end is not missed
  pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    BecomeDaemon(program, socket_path(), pipe_fds[1], parent);
  }
  close(pipe_fds[1]);
  bool ready = pid_ > 0 && WaitForReady(pipe_fds[0]);
  close(pipe_fds[0]);
  return ready ? "" : program + " did not become ready";
}

void PrivateDaemon::Stop() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    if (!WaitUpTo(pid_, kStopTimeout)) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }
  if (!directory_.empty()) {
    unlink(socket_path().c_str());
    rmdir(directory_.c_str());
    directory_.clear();
  }
}

int RunAsChild(const std::vector<char*>& arguments, PrivateDaemon* daemon) {
  const std::initializer_list<int> kSignals = {SIGCHLD, SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM,
                                               SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP};
  Block(kSignals);
  sigset_t watched;
  sigemptyset(&watched);
  for (int signal : kSignals) sigaddset(&watched, signal);

  pid_t pid = fork();
  if (pid < 0) {
    fprintf(stderr, "sdp-run: cannot fork: %s\n", strerror(errno));
    return 125;
  }
  if (pid == 0) {
    sigprocmask(SIG_UNBLOCK, &watched, nullptr);
    _exit(Execute(arguments));
  }
  int status = 0;
  while (!Reap(pid, &status)) {
    siginfo_t info{};
    if (sigwaitinfo(&watched, &info) < 0 || info.si_signo == SIGCHLD) continue;
    // What the terminal sends, it has sent to the program as well.
    if (info.si_code <= 0) kill(pid, info.si_signo);
  }
  daemon->Stop();
  if (WIFSIGNALED(status)) DieBy(WTERMSIG(status));
  return WEXITSTATUS(status);
}

int Execute(const std::vector<char*>& arguments) {
  execvp(arguments.front(), arguments.data());
  int error = errno;
  fprintf(stderr, "sdp-run: cannot run %s: %s\n", arguments.front(), strerror(error));
  return error == ENOENT ? 127 : 126;
}

}  // namespace sdp::run
