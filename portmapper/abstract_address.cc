#include "portmapper/abstract_address.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace sdp::pm {

socklen_t AbstractAddress(const std::string& path, sockaddr_un* out) {
  using namespace std::string_view_literals;
  constexpr std::string_view kPrefix = "\0sdp-pmd:"sv;
  *out = {};
  if (path.empty() || path.front() != '/' || kPrefix.size() + path.size() > sizeof out->sun_path) return 0;
  out->sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), std::copy(kPrefix.begin(), kPrefix.end(), out->sun_path));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + kPrefix.size() + path.size());
}

}  // namespace sdp::pm
