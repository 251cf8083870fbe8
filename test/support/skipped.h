// What cannot be tested where it runs says so, and why: a line that test/posix/run.py and scripts/test show
// and count.
#ifndef SDP_TEST_SUPPORT_SKIPPED_H_
#define SDP_TEST_SUPPORT_SKIPPED_H_

#include <cstdio>
#include <string>

namespace sdp::test {

// A whole case, which returns then and has not passed.
inline void Skipped(const std::string& why) {
  std::printf("skipped: %s\n", why.c_str());
  std::fflush(stdout);  // the case may leave by _exit
}

// The rest of one, or some of its ways.
inline void SkippedInPart(const std::string& why) {
  std::printf("skipped in part: %s\n", why.c_str());
  std::fflush(stdout);
}

}  // namespace sdp::test

#endif  // SDP_TEST_SUPPORT_SKIPPED_H_
