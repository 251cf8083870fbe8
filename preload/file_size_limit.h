// RLIMIT_FSIZE: the kernel ends a process that makes a file longer than this by a signal.
#ifndef SDP_PRELOAD_FILE_SIZE_LIMIT_H_
#define SDP_PRELOAD_FILE_SIZE_LIMIT_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace sdp {

inline constexpr off_t kUnlimitedFile = std::numeric_limits<off_t>::max();

inline off_t LongestFile() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return kUnlimitedFile;
  return static_cast<off_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimitedFile));
}

// Returns whether a file may grow to `size`; if not, sets errno to EFBIG.
inline bool MayGrowTo(off_t size) {
  if (size <= LongestFile()) return true;
  errno = EFBIG;
  return false;
}

}  // namespace sdp

#endif  // SDP_PRELOAD_FILE_SIZE_LIMIT_H_
