#ifndef SDP_CORE_BASE_CHECK_H_
#define SDP_CORE_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Checks for our own mistakes. A mistake of a peer or a user is never checked here: it has a typed error.
// SDP_CHECK stays in release builds. SDP_DCHECK is for invariants too expensive to test on the data path.
#define SDP_CHECK(cond)                                                              \
  do {                                                                               \
    if (__builtin_expect(!(cond), 0)) ::sdp::CheckFailed(__FILE__, __LINE__, #cond); \
  } while (0)

#ifdef NDEBUG
#define SDP_DCHECK(cond) \
  do {                   \
    (void)sizeof(cond);  \
  } while (0)
#else
#define SDP_DCHECK(cond) SDP_CHECK(cond)
#endif

namespace sdp {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "sdp: %s:%d: broken invariant: %s\n", file, line, what);
  std::abort();
}

}  // namespace sdp

#endif  // SDP_CORE_BASE_CHECK_H_
