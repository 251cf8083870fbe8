// What the daemon gives up once everything is open: its user's rights, and the system calls it does not make.
#ifndef SDP_PORTMAPPER_DAEMON_SANDBOX_H_
#define SDP_PORTMAPPER_DAEMON_SANDBOX_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sdp::pm {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
};

// By name or number, with the user's own group.
[[nodiscard]] absl::StatusOr<User> FindUser(const std::string& name);

// Becomes that user for good: no other groups, no capabilities, no way back. Needs root.
[[nodiscard]] absl::Status BecomeUser(const User& user);

// From now on only the system calls of a serving daemon; any other one ends the process. No program it would
// start could have more rights. Unavailable where the filter is not written for the machine, and under
// sanitizers, whose run time makes calls of its own.
[[nodiscard]] absl::Status RestrictSystemCalls();

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_SANDBOX_H_
