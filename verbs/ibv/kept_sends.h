// Sends whose bytes stay where they are until the peer says that it has the message.
//
// The kernel's siw sends a long message that asks for no completion from the very pages, without a copy, and
// TCP may send them again: their content must not change before the peer has it. No completion tells that,
// but the peer does (SDP's MSeqAck: QueuePair::NotePeerHas). So they have a ring of their own. Where that has
// no room, a Send takes the usual way: nobody ever waits for the peer's word.
#ifndef SDP_VERBS_IBV_KEPT_SENDS_H_
#define SDP_VERBS_IBV_KEPT_SENDS_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "verbs/ibv/ring_space.h"

namespace sdp::ibv {

// The accounts: which Send lies where, and up to which one the peer has them.
class KeptSends {
 public:
  explicit KeptSends(size_t capacity) : space_(capacity) {}

  // A Send went the other way, or is kept: they are counted alike.
  void CountOther() { ++sends_; }
  // The place of the next Send's bytes. nullopt: no room. Counts it.
  std::optional<size_t> Keep(size_t size);
  // The peer has all Sends of ours but the last `missing` of them; `waiting` more were posted that have not
  // come here yet.
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
