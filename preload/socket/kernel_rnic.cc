#include "preload/socket/kernel_rnic.h"

#include <unistd.h>

#include "preload/config.h"
#include "preload/socket/option_log.h"
#include "verbs/ibv/ibv_rnic.h"

namespace sdp::preload {

bool MayUseKernelRnic(std::string* why) {
  if (config().rnic == RnicChoice::kSoft) {
    *why = "SDP_RNIC=soft";
    return false;
  }
  if (!ibv::Available(why)) return false;
  // The libraries open the devices once, when they are loaded. The kernel does not carry out what a child of
  // fork does with its parent's devices.
  static const pid_t loaded_by = getpid();
  if (loaded_by == getpid()) return true;
  *why = "kernel RNICs belong to the process that forked this one";
  return false;
}

bool LeadsThroughKernelRnic(int fd, const Address& target, Address* source, std::string* why) {
  if (!MayUseKernelRnic(why)) return false;
  const pm::Endpoint bound = ToEndpoint(LocalAddress(fd));
  if (bound.IsWildcard() || bound.version != ToEndpoint(target).version) {
    *source = SourceTowards(fd, target);
  } else {
    *source = ToAddress(bound, target.family(), 0);
  }
  if (source->length == 0) {
    *why = "no route to " + ToEndpoint(target).ToString();
    return false;
  }
  SetPort(*source, 0);
  if (!ibv::DeviceOf(source->get()).empty()) return true;
  *why = "no RDMA device has the address " + ToEndpoint(*source).ToString() +
         ", from which the way leads to the peer";
  return false;
}

}  // namespace sdp::preload
