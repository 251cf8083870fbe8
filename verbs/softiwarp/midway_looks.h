// How often a reader looks at the link before it sleeps in the middle of a message.
//
// The rest of the message is on its way, and often comes sooner than a sleeping thread would wake. It may
// come late, because the peer waits for this processor or the network is slow. Then looks become rare: every
// second sleep goes without them, then three of four, and so on. MidwayLooks is a value without I/O.
#ifndef SDP_VERBS_SOFTIWARP_MIDWAY_LOOKS_H_
#define SDP_VERBS_SOFTIWARP_MIDWAY_LOOKS_H_

#include <algorithm>
#include <cstdint>

namespace sdp::iwarp {

class MidwayLooks {
 public:
  // Each look is a system call. kLooks of them cost about as much as a sleep and a wake-up (scripts/bench
  // zcopy).
  static constexpr uint32_t kLooks = 48;
  static constexpr uint32_t kMostWithout = 255;

  // Returns how often to look before the next sleep.
  [[nodiscard]] uint32_t Next() {
    if (left_out_ == 0) return kLooks;
    --left_out_;
    return 0;
  }
  // Records whether the looks have found data.
  void Note(bool came) {
    without_ = came ? 0 : std::min(2 * without_ + 1, kMostWithout);
    left_out_ = without_;
  }

 private:
  uint32_t without_ = 0;   // sleeps without looks after the last unsuccessful looks
  uint32_t left_out_ = 0;  // how many of these are still to come
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_MIDWAY_LOOKS_H_
