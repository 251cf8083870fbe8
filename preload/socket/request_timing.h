// Does a read of the answer follow each request at once? Then a request may wait for that read, and leave in its SinkAvail (Transactions, SDP 9.4): a message
// less, and the peer is woken once where it was woken twice. But nothing may wait for a read that does not come, or only when another connection's answer is
// there: so reads are timed before anything waits for them, and who has waited in vain does not wait for the next requests, twice as many each time.
// A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_REQUEST_TIMING_H_
#define SDP_PRELOAD_SOCKET_REQUEST_TIMING_H_

#include <algorithm>
#include <cstdint>

#include "preload/socket/clock.h"

namespace sdp::preload {

class RequestTiming {
 public:
  // At once: small beside what a large answer takes.
  static constexpr Duration kAtOnce = std::chrono::microseconds(20);
  static constexpr uint32_t kFewest = 8;
  static constexpr uint32_t kMost = 1 << 16;
  // So many reads that came at once make good for one that did not.
  static constexpr uint32_t kMakeGood = 512;

  // The next request may wait for its read.
  [[nodiscard]] bool expects_read() const { return prompt_ >= wanted_; }
  // A request has been taken; it waits.
  void Asked(Time now, bool waits) {
    asked_at_ = now;
    asked_ = true;
    waits_ = waits;
  }
  // The read of its answer begins. Once a request.
  void Read(Time now) {
    if (!asked_) return;
    if (now - asked_at_ > kAtOnce) {
      Missed();
      return;
    }
    asked_ = false;
    prompt_ = std::min(prompt_ + 1, wanted_ + kMakeGood);
    if (prompt_ == wanted_ + kMakeGood && wanted_ > kFewest) {
      wanted_ /= 2;
      prompt_ = wanted_;
    }
  }
  // Something else came first.
  void Missed() {
    if (!asked_) return;
    asked_ = false;
    prompt_ = 0;
    if (waits_) wanted_ = std::min(wanted_ * 2, kMost);
  }

 private:
  Time asked_at_{};
  bool asked_ = false;
  bool waits_ = false;
  uint32_t prompt_ = 0;  // reads in a row that came at once
  uint32_t wanted_ = kFewest;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_REQUEST_TIMING_H_
