// Decides which connections run over a kernel RNIC. SDP_RNIC=verbs requires one; auto uses one if the route
// to the peer leads through it. Has no lock.
#ifndef SDP_PRELOAD_SOCKET_KERNEL_RNIC_H_
#define SDP_PRELOAD_SOCKET_KERNEL_RNIC_H_

#include <string>

#include "preload/socket/address.h"

namespace sdp::preload {

// Returns true if the configuration lets kernel RNICs be used, this host has what they need, and no parent
// used them before it forked this process; else *why.
bool MayUseKernelRnic(std::string* why);

// Returns true if the route from `fd`, an unconnected socket, to `target` starts at a kernel RNIC. *source is
// then its address, without a port. Otherwise *why.
bool LeadsThroughKernelRnic(int fd, const Address& target, Address* source, std::string* why);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_KERNEL_RNIC_H_
