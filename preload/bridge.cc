#include "preload/bridge.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include "preload/bridge_pump.h"
#include "preload/entry_points.h"
#include "preload/hidden_fds.h"
#include "preload/inheritance.h"
#include "preload/log.h"

namespace sdp::preload {
namespace {

// Options that a program may have set on its connection, or may read, and that the near end has like any
// other socket.
constexpr struct {
  int level;
  int name;
} kOptions[] = {{SOL_SOCKET, SO_LINGER},   {SOL_SOCKET, SO_RCVTIMEO},  {SOL_SOCKET, SO_SNDTIMEO},
                {SOL_SOCKET, SO_RCVLOWAT}, {SOL_SOCKET, SO_OOBINLINE}, {SOL_SOCKET, SO_KEEPALIVE},
                {IPPROTO_TCP, TCP_NODELAY}};

// How long a bridge that is not needed may take to end.
constexpr int kPatienceMs = 1000;

struct Name {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

void SetPort(Name& name, in_port_t port) {
  if (name.storage.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(name.storage).sin_port = port;
  if (name.storage.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(name.storage).sin6_port = port;
}

void Close(int* fd) {
  if (*fd >= 0) real.close(*fd);
  *fd = -1;
}

// Makes the two ends, close-on-exec, of a TCP connection at the address in `local`.
bool MakePair(Name local, int* near_end, int* far_end) {
  const int family = local.storage.ss_family;
  SetPort(local, 0);
  int listener = real.socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  *near_end = real.socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Name at, mine;
  bool made = listener >= 0 && *near_end >= 0 && real.bind(listener, local.get(), local.length) == 0 &&
              real.listen(listener, 8) == 0 && real.getsockname(listener, at.get(), &at.length) == 0 &&
              real.connect(*near_end, at.get(), at.length) == 0 &&
              real.getsockname(*near_end, mine.get(), &mine.length) == 0;
  // Another process may have connected to the port.
  for (int strangers = 0; made && *far_end < 0 && strangers < 8; ++strangers) {
    Name peer;
    *far_end = real.accept4(listener, peer.get(), &peer.length, SOCK_CLOEXEC);
    if (*far_end < 0) break;
    if (peer.length != mine.length || std::memcmp(&peer.storage, &mine.storage, peer.length) != 0)
      Close(far_end);
  }
  made = made && *far_end >= 0;
  Close(&listener);
  if (!made) Close(near_end);
  return made;
}

// Gives the near end what the program expects of its connection.
void Imitate(Socket& socket, int fd, int near_end) {
  for (const auto& option : kOptions) {
    char value[16];
    socklen_t length = sizeof value;
    if (socket.GetSockOpt(fd, option.level, option.name, value, &length) == 0)
      real.setsockopt(near_end, option.level, option.name, value, length);
  }
  real.fcntl(near_end, F_SETFL, socket.VisibleStatusFlags(real.fcntl(fd, F_GETFL)));
}

// Runs `run` in the child of a child, with the application's signals held off. So no process has to wait for
// the bridge, and none can.
template <typename Run>
bool ForkTwice(Run run) {
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  sigset_t pending;
  sigpending(&pending);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) run();
    real._exit(grandchild < 0 ? 1 : 0);
  }
  const KeepErrno keep;
  int status = 0;
  // There is no status if the process does not wait for children.
  if (child > 0 && waitpid(child, &status, 0) < 0) status = 0;
  if (sigismember(&pending, SIGCHLD) == 0) {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGCHLD);
    const timespec none{};
    siginfo_t ended{};
    // The signal may also have announced a child of the application's that ended meanwhile.
    if (sigtimedwait(&ours, nullptr, &none) == SIGCHLD &&
        waitid(P_ALL, 0, &ended, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0)
      kill(getpid(), SIGCHLD);
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return child > 0 && status == 0;
}

// Closes all of the application's descriptors in the bridge except `kept`.
void CloseAllBut(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = 0;
  for (const int fd : kept) {
    if (static_cast<unsigned>(fd) > first) SDP_ENTRY(close_range)(first, static_cast<unsigned>(fd) - 1, 0);
    first = static_cast<unsigned>(fd) + 1;
  }
  SDP_ENTRY(close_range)(first, ~0U, 0);
}

void LeaveTheApplication() {
  setsid();
  for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_NAME, "sdp-bridge");
  prctl(PR_SET_PDEATHSIG, 0);
  (void)!chdir("/");
}

}  // namespace

void Bridge::Collect(const std::vector<SpawnMove>& moves) {
  std::map<Socket*, std::vector<int>> open;
  FdTable::ForEach([&](int fd, Socket* socket) {
    if ((real.fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 &&
        std::none_of(moves.begin(), moves.end(), [fd](SpawnMove move) { return move.fd == fd; }))
      return;
    if (!socket->IsStream()) return;
    auto& descriptors = open[socket];
    if (descriptors.empty()) socket->Ref();
    descriptors.push_back(fd);
  });
  for (auto& [socket, descriptors] : open) {
    Span span;
    span.socket = SocketRef(socket);
    span.descriptors = std::move(descriptors);
    for (const int fd : span.descriptors) {
      span.flags.push_back((real.fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
      const bool moved = std::any_of(moves.begin(), moves.end(),
                                     [fd](SpawnMove m) { return m.fd == fd && m.number == STDIN_FILENO; });
      span.standard_input = span.standard_input || moved || fd == STDIN_FILENO;
    }
    spans_.push_back(std::move(span));
  }
}

bool Bridge::Start() {
  bool any = false;
  for (Span& span : spans_) {
    Name local;
    const int fd = span.descriptors.front();
    if (!IsConnection(*span.socket.get())) continue;
    if (span.socket->GetSockName(fd, local.get(), &local.length) != 0 ||
        !MakePair(local, &span.near_end, &span.far_end))
      continue;
    Imitate(*span.socket.get(), fd, span.near_end);
    any = true;
  }
  int go[2];
  if (!any || real.socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, go) != 0) return any ? false : true;
  const bool started = ForkTwice([&] { Run(go[0]); });
  real.close(go[0]);
  if (started) {
    go_ = go[1];
  } else {
    real.close(go[1]);
  }
  return started;
}

Bridge::Bridge(const std::vector<SpawnMove>& moves) {
  AwaitConnects();
  Collect(moves);
  if (!Start()) {
    SDP_LOG(kError, "no bridge for the SDP connections of the next program: %s", strerrordesc_np(errno));
    for (Span& span : spans_) Close(&span.near_end);
  }
  LockSockets();
  for (Span& span : spans_) {
    Close(&span.far_end);
    if (span.near_end < 0) span.near_end = real.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (size_t i = 0; i < span.descriptors.size(); ++i) {
      span.saved.push_back(HiddenFds::Duplicate(span.descriptors[i]));
      // A descriptor that could not be put back later stays, and does not go to the program.
      if (span.saved.back() < 0) {
        real.fcntl(span.descriptors[i], F_SETFD, FD_CLOEXEC);
      } else if (span.near_end >= 0) {
        real.dup3(span.near_end, span.descriptors[i], span.flags[i]);
      }
    }
    Close(&span.near_end);
  }
}

Bridge::Bridge(int fd) : replaces_(false) {
  Span span;
  span.socket = FdTable::Get(fd);
  span.descriptors = {fd};
  if (span.socket) spans_.push_back(std::move(span));
}

int Bridge::Build(int fd) {
  Bridge bridge(fd);
  if (bridge.spans_.empty() || !bridge.Start()) return -1;
  Close(&bridge.go_);
  return std::exchange(bridge.spans_.front().near_end, -1);
}

Bridge::~Bridge() {
  const KeepErrno keep;
  for (Span& span : spans_) {
    Close(&span.near_end);
    Close(&span.far_end);
  }
  if (replaces_) PutBack();
  if (go_ >= 0) {
    // As long as the bridge exists, it counts as a holder of the connections.
    if (!begun_) {
      (void)!real.write(go_, "x", 1);
      pollfd gone{.fd = go_, .events = POLLIN, .revents = 0};
      real.poll(&gone, 1, kPatienceMs);
    }
    real.close(go_);
  }
}

void Bridge::PutBack() {
  for (Span& span : spans_) {
    for (size_t i = 0; i < span.descriptors.size(); ++i) {
      if (span.saved[i] < 0) {
        real.fcntl(span.descriptors[i], F_SETFD, (span.flags[i] & O_CLOEXEC) != 0 ? FD_CLOEXEC : 0);
        continue;
      }
      real.dup3(span.saved[i], span.descriptors[i], span.flags[i]);
      HiddenFds::Close(span.saved[i]);
    }
  }
  UnlockSockets();
}

void Bridge::Run(int go) {
  LeaveTheApplication();
  std::vector<int> kept = {go};
  for (const Span& span : spans_) {
    if (span.far_end < 0) continue;
    kept.push_back(span.descriptors.front());
    kept.push_back(span.far_end);
  }
  CloseAllBut(kept);
  char word;
  ssize_t told;
  while ((told = real.read(go, &word, 1)) < 0 && errno == EINTR) {
  }
  if (told != 0) real._exit(0);
  std::vector<BridgePump> pumps;
  for (const Span& span : spans_) {
    if (span.far_end < 0) continue;
    pumps.emplace_back(span.descriptors.front(), span.far_end, span.standard_input);
  }
  std::vector<pollfd> fds;
  while (!pumps.empty()) {
    fds.resize(2 * pumps.size());
    int timeout = -1;
    for (size_t i = 0; i < pumps.size(); ++i) {
      const int wait = pumps[i].Wait(&fds[2 * i]);
      if (wait >= 0) timeout = timeout < 0 ? wait : std::min(timeout, wait);
    }
    SDP_ENTRY(poll)(fds.data(), fds.size(), timeout);
    for (BridgePump& pump : pumps) pump.Step();
    std::erase_if(pumps, [](const BridgePump& pump) { return pump.over(); });
  }
  SDP_ENTRY(_exit)(0);
  __builtin_unreachable();
}

}  // namespace sdp::preload
