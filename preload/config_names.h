// Names of variables that look like settings and are none.
#ifndef SDP_PRELOAD_CONFIG_NAMES_H_
#define SDP_PRELOAD_CONFIG_NAMES_H_

#include <string_view>

namespace sdp::preload {

// Returns whether a variable that begins with SDP_ belongs to a part of SDP that reads no settings: it names
// the file, or is of sdp-pmd's service or of tests.
inline bool IsNoSetting(std::string_view variable) {
  return variable == "SDP_CONFIG" || variable == "SDP_PMD_OPTIONS" || variable == "SDP_BUILD_DIR" ||
         variable == "SDP_INHERITED" || variable.starts_with("SDP_TEST_");
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_NAMES_H_
