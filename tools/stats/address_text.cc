#include "tools/stats/address_text.h"

#include <arpa/inet.h>

namespace sdp::stats {

std::string ToString(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.family == 4) {
    inet_ntop(AF_INET, address.ip, text, sizeof text);
    return std::string(text) + ":" + std::to_string(address.port);
  }
  if (address.family == 6) {
    inet_ntop(AF_INET6, address.ip, text, sizeof text);
    std::string scope = address.scope_id == 0 ? "" : "%" + std::to_string(address.scope_id);
    return "[" + std::string(text) + scope + "]:" + std::to_string(address.port);
  }
  return "*";
}

}  // namespace sdp::stats
