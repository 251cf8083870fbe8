// How often the link is looked at before a reader sleeps in the middle of what the peer sends: what is
// missing is on its way, and comes sooner than the sleeper would be awake again. Where it does not, since the
// peer waits for this very processor or the network is slow, every other sleep goes without, then three of
// four, and so on. A value.
#ifndef SDP_VERBS_SOFTIWARP_MIDWAY_LOOKS_H_
#define SDP_VERBS_SOFTIWARP_MIDWAY_LOOKS_H_

#include <algorithm>
#include <cstdint>

namespace sdp::iwarp {

class MidwayLooks {
 public:
  // Of a system call each: together about what a sleep and a wake-up cost (scripts/bench zcopy).
  static constexpr uint32_t kLooks = 48;
  static constexpr uint32_t kMostWithout = 255;

  // Before the next sleep.
  [[nodiscard]] uint32_t Next() {
    if (left_out_ == 0) return kLooks;
    --left_out_;
    return 0;
  }
  // After looks: was anything there?
  void Note(bool came) {
    without_ = came ? 0 : std::min(2 * without_ + 1, kMostWithout);
    left_out_ = without_;
  }

 private:
  uint32_t without_ = 0;   // sleeps behind looks in vain
  uint32_t left_out_ = 0;  // of those, still to come
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_MIDWAY_LOOKS_H_
