// Which links connections have where the test runs.
#ifndef SDP_TEST_POSIX_LINKS_H_
#define SDP_TEST_POSIX_LINKS_H_

#include <cstdlib>
#include <string_view>

namespace posix_test {

// Returns true if SDP connections within this host are on local links.
inline bool OnLocalLinks() {
  const char* const link = std::getenv("SDP_LINK");
  return std::getenv("LD_PRELOAD") != nullptr && (link == nullptr || std::string_view(link) != "tcp");
}

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_LINKS_H_
