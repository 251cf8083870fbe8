// Seals descriptors and their description into one descriptor: a Unix socket in whose queue they wait. It can
// be inherited, or passed over another Unix socket. If no process opens it, nothing has to be undone.
#ifndef SDP_PRELOAD_SOCKET_CAPSULE_H_
#define SDP_PRELOAD_SOCKET_CAPSULE_H_

#include <optional>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace sdp::preload {

struct Capsule {
  std::vector<std::byte> content;
  std::vector<int> descriptors;  // close-on-exec; the caller of Open() closes them

  // Returns the sealed descriptor, close-on-exec; -1 with errno on failure. `descriptors` stay the caller's.
  static int Seal(Bytes content, std::span<const int> descriptors);
  enum class Maker : unsigned char { kTrusted, kAnybody };  // kTrusted: this user, or root
  // Returns true if `fd` is an unopened capsule of such a maker. Any descriptor may be asked about.
  static bool Is(int fd, Maker maker);
  // Takes the contents; `fd` stays the caller's. Returns nothing for no capsule, an incomplete one, or too
  // few free descriptors.
  static std::optional<Capsule> Open(int fd);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CAPSULE_H_
