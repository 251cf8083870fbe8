// errno, as the application sees it: the error return of its calls, and what leaves it alone.
#ifndef SDP_PRELOAD_FAIL_H_
#define SDP_PRELOAD_FAIL_H_

#include <cerrno>

namespace sdp::preload {

// Sets errno and returns -1, as a failed system call does.
inline int Fail(int error) {
  errno = error;
  return -1;
}

// Where it ends, errno is again what it was where it began.
class KeepErrno {
 public:
  KeepErrno() = default;
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_ = errno;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_FAIL_H_
