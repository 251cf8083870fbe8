// Recognises large blocks that go to and fro in turns, or answer small questions. They have three ways over
// the embedded RNIC. They are copied; advertised and read (Read Zcopy, SDP 9.2); or written into memory that
// the reader lends before data is there (Write Zcopy, 9.3). Each is the fastest somewhere, by a third and
// more (scripts/bench zcopy). It depends on the machine, its load and the sizes, so turns are timed
// (timed_choice.h). One end decides, the one that asks or that has connected; the other answers in kind.
// Write Zcopy needs Pipelined Mode, which the Data Source changes (figure 27). That mode tells the other end
// whether to lend, and to answer likewise. If large blocks go one way only, Bcopy costs the embedded RNIC
// less at every size, since neither end waits. A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_TURN_TAKING_H_
#define SDP_PRELOAD_SOCKET_TURN_TAKING_H_

#include <algorithm>
#include <cstdint>

#include "preload/socket/clock.h"
#include "preload/socket/timed_choice.h"

namespace sdp::preload {

class TurnTaking {
 public:
  enum class Way : uint8_t { kCopy, kRead, kWrite };
  // What this end knows where a large turn ends.
  struct Circumstances {
    Time now;
    uint64_t read_bytes_in;  // total bytes that came by our RDMA Reads
    bool peer_lends;         // the half-connection that we receive in is in Pipelined Mode
    bool tries;              // this end may choose the way; else memory is lent in turns
    bool connected;          // this end connected, the other accepted
  };

  // Returns true if data was received since the application last sent: its next send begins a turn.
  [[nodiscard]] bool answered() const { return received_ != 0; }
  // Ends the turn. `large`: blocks of more bytes (the Bcopy threshold) are large. Returns false if what
  // follows is copied; else Begin has to come.
  bool End(uint64_t large) {
    const Kind kind = KindOf(large);
    const uint64_t bytes = sent_ + received_;
    turns_ = kind == Kind::kSmall ? 0 : kind == kind_ ? std::min(turns_ + 1, kRegular) : 1;
    if (turns_ < kRegular) way_ = Way::kCopy;
    kind_ = kind;
    last_bytes_ = bytes;
    sent_ = received_ = 0;
    return turns_ != 0;
  }
  // Begins the next turn, after End.
  void Begin(const Circumstances& seen) {
    const bool reads = seen.read_bytes_in != seen_.read_bytes_in;
    const Duration taken = seen.now - seen_.now;
    seen_ = seen;
    if (turns_ < kRegular) return;
    if (!seen.tries) {
      way_ = kind_ == Kind::kBoth ? Way::kWrite : Way::kCopy;
    } else if (kind_ == Kind::kQuestion || (kind_ == Kind::kBoth && seen.connected)) {
      Decide(taken);
    } else {
      way_ = seen.peer_lends ? Way::kWrite : reads && kind_ == Kind::kBoth ? Way::kRead : Way::kCopy;
    }
  }
  void Sent(uint64_t bytes) {
    sent_ += bytes;
    if (sent_ >= kStream) way_ = Way::kCopy;
  }
  // End() and Sent() where no turn was large. Returns false, and does nothing, elsewhere.
  bool SentSmall(uint64_t bytes, uint64_t large) {
    if (answered()) {
      if (turns_ != 0 || KindOf(large) != Kind::kSmall) return false;
      (void)End(large);
    }
    Sent(bytes);
    return true;
  }
  void Received(uint64_t bytes) { received_ += bytes; }

  // Returns how large sends of this turn are to go.
  [[nodiscard]] Way way() const { return way_; }
  // Returns true if the last turns were all alike, and this one may be.
  [[nodiscard]] bool regular(uint64_t large) const {
    if (turns_ != kRegular) return false;
    switch (kind_) {
      case Kind::kBoth:
        return sent_ > large && received_ < kStream;
      case Kind::kQuestion:
        return sent_ <= large && received_ < kLongestAnswer;
      case Kind::kAnswer:
      case Kind::kSmall:
        break;
    }
    return false;
  }
  // A receive with a large buffer finds nothing. Returns whether it should lend the buffer. Called once a
  // receive.
  [[nodiscard]] bool ShouldLend(uint64_t large) const { return way_ == Way::kWrite && regular(large); }

 private:
  static constexpr uint32_t kRegular = 2;
  static constexpr uint64_t kStream = 64 << 20;
  static constexpr uint64_t kLongestAnswer = 4 << 20;
  // So many turns in a row of another size are a change, and earlier findings are void.
  static constexpr uint32_t kChange = 8;

  // The kind of a turn, as seen by the end that began it.
  enum class Kind : uint8_t {
    kSmall,     // nothing large
    kBoth,      // large blocks both ways
    kQuestion,  // a large answer came
    kAnswer,    // only what was sent is large: it answered something small
  };

  static constexpr uint8_t Bit(Way way) { return static_cast<uint8_t>(1u << static_cast<uint8_t>(way)); }
  [[nodiscard]] Kind KindOf(uint64_t large) const {
    if (received_ > large)
      return sent_ > large ? Kind::kBoth : received_ <= kLongestAnswer ? Kind::kQuestion : Kind::kSmall;
    return sent_ > large ? Kind::kAnswer : Kind::kSmall;
  }
  void Decide(Duration taken) {
    const bool alike = last_bytes_ <= 2 * chosen_for_ && chosen_for_ <= 2 * last_bytes_;
    unlike_ = alike ? 0 : unlike_ + 1;
    if (chosen_kind_ != kind_ || unlike_ >= kChange) {
      // An end that answers a small question cannot tell that its answer is to be read.
      choice_.Begin(Bit(Way::kCopy) | Bit(Way::kWrite) | (kind_ == Kind::kBoth ? Bit(Way::kRead) : 0),
                    static_cast<uint8_t>(Way::kCopy));
      chosen_kind_ = kind_;
      chosen_for_ = last_bytes_;
      unlike_ = 0;
    } else if (alike && way_ == static_cast<Way>(choice_.way())) {  // else the turn did not go that way
      choice_.Took(taken);
    }
    way_ = static_cast<Way>(choice_.way());
  }

  uint64_t sent_ = 0;      // in this turn
  uint64_t received_ = 0;  // after that
  uint64_t last_bytes_ = 0;
  Kind kind_ = Kind::kSmall;
  uint32_t turns_ = 0;  // of this kind, in a row
  Way way_ = Way::kCopy;
  Circumstances seen_{};  // when the turn began

  TimedChoice choice_;
  Kind chosen_kind_ = Kind::kSmall;
  uint64_t chosen_for_ = 0;  // bytes of a turn
  uint32_t unlike_ = 0;      // turns in a row
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_TURN_TAKING_H_
