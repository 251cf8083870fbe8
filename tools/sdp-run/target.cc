#include "tools/sdp-run/target.h"

#include <netdb.h>

#include <algorithm>
#include <cstdint>

namespace sdp::run {

Result<Target, std::string> ParseTarget(const std::string& text) {
  const size_t colon = text.rfind(':');
  Target out{.host = text.substr(0, colon), .port = ""};
  if (colon == std::string::npos || colon + 1 == text.size() || out.host.empty())
    return unexpected("HOST:PORT, as in db.example:5432 or [::1]:80, but there is '" + text + "'");
  out.port = text.substr(colon + 1);
  // getaddrinfo takes any number, and its lower 16 bits.
  if (out.port.find_first_not_of("0123456789") == std::string::npos &&
      (out.port.size() > 5 || std::stoul(out.port) == 0 || std::stoul(out.port) > UINT16_MAX))
    return unexpected("a port from 1 to 65535, but there is '" + out.port + "'");
  if (out.host.starts_with("[") && out.host.ends_with("]"))
    out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

Result<TargetAddress, std::string> Resolve(const Target& target) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  if (error != 0) return unexpected(std::string(gai_strerror(error)));
  TargetAddress out;
  std::copy_n(reinterpret_cast<const char*>(found->ai_addr), found->ai_addrlen,
              reinterpret_cast<char*>(&out.address));
  out.length = found->ai_addrlen;
  char text[NI_MAXHOST] = "";
  getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  out.text = text;
  freeaddrinfo(found);
  return out;
}

}  // namespace sdp::run
