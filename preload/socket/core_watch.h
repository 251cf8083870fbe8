// Tells a polling thread whether another thread wants its core.
#ifndef SDP_PRELOAD_SOCKET_CORE_WATCH_H_
#define SDP_PRELOAD_SOCKET_CORE_WATCH_H_

#include <chrono>
#include <optional>

#include "core/base/types.h"

namespace sdp::preload {

class CoreWatch {
 public:
  // Number of looks per offer: a look mostly makes no system call, an offer makes two.
  static constexpr int kLooksPerOffer = 4;
  // Between two offers where a look is a glance at memory.
  static constexpr Duration kBetweenOffers = std::chrono::microseconds(20);

  // Offers the core. Returns true if another thread has had it since the first offer. A thread that queues
  // for another core is not seen.
  [[nodiscard]] bool OfferedAndTaken();

 private:
  std::optional<long> set_aside_;  // at the first offer
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CORE_WATCH_H_
