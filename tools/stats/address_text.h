// Addresses of stats files as text.
#ifndef SDP_TOOLS_STATS_ADDRESS_TEXT_H_
#define SDP_TOOLS_STATS_ADDRESS_TEXT_H_

#include <string>

#include "preload/stats_layout.h"

namespace sdp::stats {

// "127.0.0.1:80", "[::1]:80", "*" when there is none.
std::string ToString(const Address& address);

}  // namespace sdp::stats

#endif  // SDP_TOOLS_STATS_ADDRESS_TEXT_H_
