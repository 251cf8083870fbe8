// The name by which a process that has changed its root directory reaches the daemon it knew by a path: an
// abstract Unix address made of the path. Such names belong to the network namespace, as registrations do,
// and not to the file system.
//
// Anybody of the network namespace may bind one, from another container too, where numbers of users mean
// somebody else. So a process looks there only when it has lost the path with its root directory, and trusts
// there only the user with whose daemon it registered by the path; see known_daemons.h.
#ifndef SDP_PORTMAPPER_ABSTRACT_ADDRESS_H_
#define SDP_PORTMAPPER_ABSTRACT_ADDRESS_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace sdp::pm {

// A NUL, "sdp-pmd:" and the path. The address's length; 0: the path is not absolute, or too long for that.
[[nodiscard]] socklen_t AbstractAddress(const std::string& path, sockaddr_un* out);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ABSTRACT_ADDRESS_H_
