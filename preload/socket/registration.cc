#include "preload/socket/registration.h"

#include <unistd.h>

#include <cstdlib>

#include "preload/config.h"
#include "preload/real_calls.h"

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

}  // namespace

std::vector<std::string> RegistrationPaths() {
  if (!config().pmd_socket.empty()) return {config().pmd_socket};
  return pm::RegistrationPaths(geteuid(), secure_getenv);
}

Result<int, pm::RegistrarError> RegisterSdp(int conventional_fd, int sdp_fd, Duration limit) {
  return pm::RegisterListener(RegistrationPaths(), conventional_fd, sdp_fd, limit, Calls());
}

Result<int, pm::RegistrarError> RegisterRnic(int conventional_fd, const pm::Endpoint& sdp, Duration limit) {
  return pm::RegisterRnicListener(RegistrationPaths(), conventional_fd, sdp, limit, Calls());
}

}  // namespace sdp::preload
