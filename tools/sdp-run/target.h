// HOST:PORT, as a user names where to connect.
#ifndef SDP_TOOLS_SDP_RUN_TARGET_H_
#define SDP_TOOLS_SDP_RUN_TARGET_H_

#include <sys/socket.h>

#include <string>

#include "core/base/result.h"

namespace sdp::run {

struct Target {
  std::string host;  // without brackets
  std::string port;  // a number, or the name of a service
};
// The error says what was wanted, "HOST:PORT, as in ...", and what there is.
Result<Target, std::string> ParseTarget(const std::string& text);

struct TargetAddress {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string text;  // without the port
};
// The first address of the target, which is the one that a program tries first. The error is the resolver's.
Result<TargetAddress, std::string> Resolve(const Target& target);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_TARGET_H_
