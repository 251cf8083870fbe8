// Unpredictable bytes from the kernel.
#ifndef SDP_VERBS_SOFTIWARP_LOCAL_RANDOM_H_
#define SDP_VERBS_SOFTIWARP_LOCAL_RANDOM_H_

#include <sys/random.h>

#include <cerrno>

#include "core/base/check.h"
#include "core/base/types.h"

namespace sdp::iwarp {

// Fills `out`.
inline void FillRandom(MutableBytes out) {
  while (!out.empty()) {
    const ssize_t n = ::getrandom(out.data(), out.size(), 0);
    SDP_CHECK(n > 0 || errno == EINTR);
    if (n > 0) out = out.subspan(static_cast<size_t>(n));
  }
}

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LOCAL_RANDOM_H_
