// Which rules of libsdp.conf can never match. Pure.
#ifndef SDP_PRELOAD_CONFIG_SHADOWED_H_
#define SDP_PRELOAD_CONFIG_SHADOWED_H_

#include "preload/config_file.h"

namespace sdp::preload {

// Adds a warning for each rule whose addresses and ports are all taken by rules before it, by one or by
// several together. Of programs only * and names are compared. Files with very many rules that overlap are
// not looked through to the end.
void WarnOfShadowed(ConfigFile* file);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_SHADOWED_H_
