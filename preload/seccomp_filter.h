// Finds out what a seccomp filter says of a system call, by running the filter as the kernel will. Pure.
#ifndef SDP_PRELOAD_SECCOMP_FILTER_H_
#define SDP_PRELOAD_SECCOMP_FILTER_H_

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstdint>
#include <span>

namespace sdp::preload {

// Returns whether the kernel accepts this as a filter, apart from its check for reads of unwritten memory.
[[nodiscard]] bool IsFilter(std::span<const sock_filter> filter);

// Returns the filter's answer: an action with its data. An invalid filter gives SECCOMP_RET_KILL_PROCESS.
uint32_t RunFilter(std::span<const sock_filter> filter, const seccomp_data& call);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SECCOMP_FILTER_H_
