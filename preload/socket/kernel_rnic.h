// Which connections run over a kernel RNIC: SDP_RNIC=verbs wants one, auto takes one where the way to the
// peer leads through it.
#ifndef SDP_PRELOAD_SOCKET_KERNEL_RNIC_H_
#define SDP_PRELOAD_SOCKET_KERNEL_RNIC_H_

#include <string>

#include "preload/socket/address.h"

namespace sdp::preload {

// True if the configuration lets kernel RNICs be used, this host has what it takes, and no parent used them
// before it forked this process; else *why.
bool MayUseKernelRnic(std::string* why);

// True if the way from `fd`, an unconnected socket, to `target` starts at a kernel RNIC; *source is its
// address, without a port.
bool LeadsThroughKernelRnic(int fd, const Address& target, Address* source, std::string* why);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_KERNEL_RNIC_H_
