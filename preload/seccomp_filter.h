// What a seccomp filter says of a system call, found out by running it here, as the kernel will.
#ifndef SDP_PRELOAD_SECCOMP_FILTER_H_
#define SDP_PRELOAD_SECCOMP_FILTER_H_

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstdint>
#include <span>

namespace sdp::preload {

// The kernel takes this for a filter, but perhaps for reads of memory that was not written.
[[nodiscard]] bool IsFilter(std::span<const sock_filter> filter);

// The filter's answer, an action with its data. SECCOMP_RET_KILL_PROCESS also for what is no filter.
uint32_t RunFilter(std::span<const sock_filter> filter, const seccomp_data& call);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SECCOMP_FILTER_H_
