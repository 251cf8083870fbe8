// When the helper gives memory of the library's heap back that is used no more. Only the helper asks, when it
// is about to sleep anyway: a process without one keeps up to 16 MiB.
#ifndef SDP_PRELOAD_SOCKET_SPARE_MEMORY_H_
#define SDP_PRELOAD_SOCKET_SPARE_MEMORY_H_

#include <chrono>

#include "preload/heap.h"
#include "preload/socket/clock.h"

namespace sdp::preload {

class SpareMemory {
 public:
  // Returns when to call Trim(); kNever: there is nothing to give.
  [[nodiscard]] Time due() const { return Heap::HasSpare() ? due_ : kNever; }
  void Trim(Time now) {
    if (now < due()) return;
    Heap::Trim();
    due_ = now + kBetween;
  }

 private:
  static constexpr Duration kBetween = std::chrono::milliseconds(300);

  Time due_{};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SPARE_MEMORY_H_
