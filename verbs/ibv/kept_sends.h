// Which long Sends the peer has not acknowledged yet, and where their bytes lie.
//
// The kernel's siw sends a long message that asks for no completion from its pages, without a copy. TCP may
// send these pages again, so they must not change before the peer has the message. No completion reports
// that, but the peer does (SDP's MSeqAck: DeviceLink::NotePeerHas). Such Sends have a ring of their own. A
// Send that finds no room there takes the ordinary ring, so that no Send waits for the peer.
#ifndef SDP_VERBS_IBV_KEPT_SENDS_H_
#define SDP_VERBS_IBV_KEPT_SENDS_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "verbs/ibv/ring_space.h"

namespace sdp::ibv {

// Counts Sends and places; the owner has the memory (send_places.h).
class KeptSends {
 public:
  explicit KeptSends(size_t capacity) : space_(capacity) {}

  // Counts a posted Send that is not kept.
  void CountOther() { ++sends_; }
  // Returns the place of the next Send's bytes, and counts that Send; nullopt if there is no room.
  std::optional<size_t> Keep(size_t size);
  // Frees the places of all posted Sends except the last `missing`, because the peer has them. The last
  // `waiting` of the posted Sends have not been counted here yet.
  void NotePeerHas(uint64_t missing, uint64_t waiting);

  [[nodiscard]] size_t largest() const { return space_.largest(); }
  [[nodiscard]] bool empty() const { return kept_.empty(); }

 private:
  struct Kept {
    uint64_t number;  // of the Send, counted from 1
    uint64_t mark;
  };

  RingSpace space_;
  std::deque<Kept> kept_;
  uint64_t sends_ = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_KEPT_SENDS_H_
