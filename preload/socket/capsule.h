// Descriptors and what is to be known of them, sealed into one descriptor: a Unix socket in whose queue they
// wait. It can be inherited, or passed on over another Unix socket; nothing has to be undone when nobody
// opens it.
#ifndef SDP_PRELOAD_SOCKET_CAPSULE_H_
#define SDP_PRELOAD_SOCKET_CAPSULE_H_

#include <optional>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace sdp::preload {

struct Capsule {
  std::vector<std::byte> content;
  std::vector<int> descriptors;  // close-on-exec; whoever has the Capsule closes them

  // The sealed descriptor, close-on-exec; -1 with errno. `descriptors` stay the caller's.
  static int Seal(Bytes content, std::span<const int> descriptors);
  enum class Maker : unsigned char { kTrusted, kAnybody };  // kTrusted: this user, or root
  // True if `fd` is one, of such a maker's, that was not opened yet. Any descriptor may be asked about.
  static bool Is(int fd, Maker maker);
  // Takes what is in it; `fd` stays the caller's. Empty: it is none, or not whole, or there are not enough
  // descriptors left.
  static std::optional<Capsule> Open(int fd);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CAPSULE_H_
