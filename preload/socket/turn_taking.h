// Do large blocks go to and fro in turns? Then the next receive with a large buffer is worth lending before
// anything is there (Write Zcopy, SDP 9.3): the block goes straight into it, with no message and no waiting
// ahead of it. Where large blocks go one way only, or answer small questions, Bcopy costs the embedded RNIC
// less (scripts/bench zcopy): nobody waits for anybody. A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_TURN_TAKING_H_
#define SDP_PRELOAD_SOCKET_TURN_TAKING_H_

#include <algorithm>
#include <cstdint>

namespace sdp::preload {

class TurnTaking {
 public:
  // Something was received since the application last sent: what it sends begins a turn.
  [[nodiscard]] bool answered() const { return received_ != 0; }
  // Begins a turn. `large`: what is large (the Bcopy threshold).
  void Begin(uint64_t large) {
    turns_ = received_ >= large && sent_ >= large ? std::min(turns_ + 1, kRegular) : 0;
    sent_ = received_ = 0;
  }
  void Sent(uint64_t bytes) { sent_ += bytes; }
  void Received(uint64_t bytes) { received_ += bytes; }

  // The last turns were all alike, and this one may be.
  [[nodiscard]] bool regular(uint64_t large) const { return IsTurn(large) && misses_ < kMostMisses; }
  // A receive with a large buffer finds nothing: should it lend the buffer? Asked once a receive.
  bool ShouldLend(uint64_t large) {
    if (!IsTurn(large)) return false;
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  // What became of that: the peer filled it, or the block came by other means and the offer was for nothing.
  void Lent(bool filled) {
    misses_ = filled ? 0 : std::min(misses_ + 1, kLongestPause);
    skip_ = misses_ < kMostMisses ? 0 : 1u << misses_;
  }

  // A large send begins a turn like the last ones: should its memory be advertised, once, so that the peer can answer that it would rather
  // lend its own (REQ_PIPE, 6.1.2, has its place in the answer alone)? Who does not answer so is not asked for ever.
  bool ShouldInvite() {
    if (turns_ != kRegular || invitations_ == kMostInvitations) return false;
    ++invitations_;
    return true;
  }
  void Accepted() { invitations_ = 0; }

 private:
  static constexpr uint32_t kRegular = 2;
  static constexpr uint64_t kStream = 64 << 20;
  static constexpr uint32_t kMostMisses = 2;
  static constexpr uint32_t kLongestPause = 10;  // receives, as a power of two
  static constexpr uint32_t kMostInvitations = 4;

  [[nodiscard]] bool IsTurn(uint64_t large) const {
    return turns_ == kRegular && sent_ >= large && received_ < kStream;
  }

  uint64_t sent_ = 0;      // in this turn
  uint64_t received_ = 0;  // behind it
  uint32_t turns_ = 0;     // with large blocks both ways, in a row
  uint32_t misses_ = 0;    // in a row
  uint32_t skip_ = 0;      // receives that lend nothing
  uint32_t invitations_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_TURN_TAKING_H_
