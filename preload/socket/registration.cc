#include "preload/socket/registration.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "preload/config.h"
#include "preload/fail.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/stats_segment.h"

namespace sdp::preload {
namespace {

constinit pm::KnownDaemons known_daemons;

pm::RegistrarCalls Calls() {
  return {.socket = real.socket,
          .connect = real.connect,
          .sendmsg = real.sendmsg,
          .recvmsg = real.recvmsg,
          .poll = real.poll,
          .close = real.close,
          .getsockopt = real.getsockopt,
          .setsockopt = real.setsockopt,
          .known_daemons = &known_daemons};
}

// Returns the paths where a daemon is looked for, as configured.
std::vector<std::string> RegistrationPaths() {
  if (!config().pmd_socket.empty()) return {config().pmd_socket};
  return pm::RegistrationPaths(geteuid(), secure_getenv);
}

}  // namespace

Result<int, pm::RegistrarError> RegisterSdp(int conventional_fd, int sdp_fd, Duration limit) {
  return pm::RegisterListener(RegistrationPaths(), conventional_fd, sdp_fd, limit, Calls());
}

Result<int, pm::RegistrarError> RegisterRnic(int conventional_fd, const pm::Endpoint& sdp, Duration limit) {
  return pm::RegisterRnicListener(RegistrationPaths(), conventional_fd, sdp, limit, Calls());
}

Standing RegisteredBy(int fd) {
  Standing standing{.since_ns = stats::WallClock(), .text = {}};
  sockaddr_un daemon{};
  socklen_t length = sizeof daemon;
  if (real.getpeername(fd, reinterpret_cast<sockaddr*>(&daemon), &length) != 0) return standing;
  // An abstract name, which stands for the path where a process cannot reach that, begins with a NUL.
  constexpr size_t kPath = offsetof(sockaddr_un, sun_path);
  const bool abstract = length > kPath && daemon.sun_path[0] == '\0';
  if (abstract) daemon.sun_path[0] = '@';
  if (length > kPath) standing.text.assign(daemon.sun_path, strnlen(daemon.sun_path, length - kPath));
  return standing;
}

Standing NotRegistered(const pm::RegistrarError& error) {
  return {.since_ns = 0, .text = std::string(ToString(error.failure)) + " (" + error.text + ")"};
}

bool Enrolment::WakesUp(Duration interval) {
  const Time now = Now();
  if (now < next_look) return false;
  next_look = now + interval;
  const KeepErrno keep;
  const std::vector<std::string> paths = RegistrationPaths();
  dormant = std::none_of(paths.begin(), paths.end(), [](const std::string& path) {
    struct stat status;
    return lstat(path.c_str(), &status) == 0;
  });
  return !dormant;
}

}  // namespace sdp::preload
