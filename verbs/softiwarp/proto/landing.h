// Memory of a reader that waits for the next Sends: their payload is read from TCP straight into it, behind
// the first bytes of each message, which are the upper layer's header; one message's payload behind the
// other's.
//
// Where the rest of a segment goes is known once its header is here. What follows is a guess: messages as
// long as the last ones; or, where writes of one size are cut into messages, so many of the same length and
// then the rest, again and again. One read then takes several. A guess that was wrong costs a copy; after
// such, no more than one message is guessed for a while. Connections without long messages are left as they
// are.
//
// A value. What it knows of the messages stays from one landing to the next.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_LANDING_H_
#define SDP_VERBS_SOFTIWARP_PROTO_LANDING_H_

#include <cstdint>

#include "core/base/types.h"

namespace sdp::iwarp {

class Landing {
 public:
  // Messages that one read may bring behind the one that is under way.
  static constexpr uint32_t kMostMessages = 24;

  // `worth`: less payload than this is copied.
  explicit Landing(uint32_t worth) : worth_(worth) {}

  void Begin(MutableBytes memory, uint32_t header);
  void End() { memory_ = {}; }
  [[nodiscard]] bool active() const { return !memory_.empty(); }
  [[nodiscard]] uint32_t header() const { return header_; }

  // Bytes of the message under way, or those that follow it, by their distance from its header.
  [[nodiscard]] bool Fits(uint64_t offset, uint64_t size) const;
  // Not beyond what Fits().
  [[nodiscard]] MutableBytes At(uint64_t offset, uint64_t size) const {
    return memory_.subspan(used_ + offset, size);
  }
  // The memory takes long messages, and there were some just now.
  [[nodiscard]] bool LooksLong(uint64_t offset) const { return few_short_ < kFew && Fits(offset, long_); }
  // How long the next message but `i` seems to be, more than its header; 0: not known. And how many to expect
  // at most.
  [[nodiscard]] uint32_t Expected(uint32_t i) const;
  [[nodiscard]] uint32_t most() const { return paused_ > 0 ? 1 : kMostMessages; }
  // Something has come here, and the memory has no room for more: reading on would be for nobody.
  [[nodiscard]] bool full() const { return active() && landed_ && !Fits(0, long_); }

  // A Send is complete.
  void HandleMessage(uint32_t length, bool one_segment);
  // Bytes came to the place that was meant for them; or were meant for one, and did not belong there.
  void HandleLanded();
  void HandleMiss();

 private:
  static constexpr uint32_t kFew = 4;           // short messages that may come between long ones
  static constexpr uint32_t kRun = 2;           // of the same length, and the next is expected to be so, too
  static constexpr uint32_t kLongestPause = 6;  // landings, as a power of two
  static constexpr uint32_t kTrust = 64;        // pieces that came as expected, and all is forgiven
  static constexpr uint32_t kLong = 4;          // a message is long from so many times `worth` on

  const uint32_t worth_;
  MutableBytes memory_{};
  uint32_t header_ = 0;
  uint64_t used_ = 0;  // by complete messages
  bool landed_ = false;

  uint32_t usual_ = 0;         // the length of the last messages, but for a rest
  uint32_t run_ = 0;           // so many in a row had it
  uint32_t rest_ = 0;          // the length of the last rest
  uint32_t until_rest_ = 0;    // so many were before it
  bool periodic_ = false;      // and it was not the first time
  uint32_t long_ = 0;          // payload of the last long message
  uint32_t few_short_ = kFew;  // messages since
  uint32_t hits_ = 0;
  uint32_t misses_ = 0;
  uint32_t paused_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_LANDING_H_
