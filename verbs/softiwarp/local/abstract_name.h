// Unix sockets under abstract names: a prefix, and random bits as hexadecimal digits. Abstract names belong
// to a network namespace, and vanish with the socket.
#ifndef SDP_VERBS_SOFTIWARP_LOCAL_ABSTRACT_NAME_H_
#define SDP_VERBS_SOFTIWARP_LOCAL_ABSTRACT_NAME_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <string_view>

#include "core/base/types.h"

namespace sdp::iwarp {

struct AbstractName {
  sockaddr_un address{};
  socklen_t length = 0;

  // `prefix` and twice the size of `random` together have less than 107 characters.
  AbstractName(std::string_view prefix, Bytes random) {
    address.sun_family = AF_UNIX;
    char* at = std::copy(prefix.begin(), prefix.end(), address.sun_path + 1);  // behind a zero
    for (const std::byte b : random) {
      *at++ = "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
      *at++ = "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
    }
    length = static_cast<socklen_t>(at - reinterpret_cast<char*>(&address));
  }
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LOCAL_ABSTRACT_NAME_H_
