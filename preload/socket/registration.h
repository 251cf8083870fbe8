// Registers a listener with the port mapper daemon of its host. Has no lock; the registration belongs to the
// caller.
#ifndef SDP_PRELOAD_SOCKET_REGISTRATION_H_
#define SDP_PRELOAD_SOCKET_REGISTRATION_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "portmapper/registrar.h"

namespace sdp::preload {

// Both block for `limit` at most. They return the descriptor that keeps the registration alive; it is not
// hidden yet.
Result<int, pm::RegistrarError> RegisterSdp(int conventional_fd, int sdp_fd, Duration limit);
// `sdp`: where a kernel RNIC listens for the same clients.
Result<int, pm::RegistrarError> RegisterRnic(int conventional_fd, const pm::Endpoint& sdp, Duration limit);

// Whether a port mapper knows a listener, for people.
struct Standing {
  uint64_t since_ns = 0;  // CLOCK_REALTIME; 0: none knows it
  std::string text;       // the path of the port mapper's socket, or why none knows it
};
// Returns the standing, from now on, of a listener whose registration `fd` keeps alive.
Standing RegisteredBy(int fd);
Standing NotRegistered(const pm::RegistrarError& error);

// What this process knows of a listener's registration.
struct Enrolment {
  // Returns true once a port mapper daemon has appeared, which ends the sleep. Looks once in `interval`.
  bool WakesUp(Duration interval);

  std::atomic<int> fd{-1};  // hidden; keeps the registration alive
  Standing standing;
  bool dormant = false;  // no daemon has known the listener yet
  Time next_look{};      // for a daemon
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_REGISTRATION_H_
