// The error return of the calls that the application makes.
#ifndef SDP_PRELOAD_FAIL_H_
#define SDP_PRELOAD_FAIL_H_

#include <cerrno>

namespace sdp::preload {

// Sets errno and returns -1, as a failed system call does.
inline int Fail(int error) {
  errno = error;
  return -1;
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_FAIL_H_
