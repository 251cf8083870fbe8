// Decides how a stream of large sends goes over a kernel RNIC: read (Read Zcopy, SDP 9.2) or copied. Reading
// saves two copies. It costs a registration at either end, and a message there and back for each send. The
// faster way depends on the device and the machine, so both are timed (timed_choice.h). The first way is the
// one that costs less if it is wrong: short sends are copied, and a long one, which may be the only one, is
// read. A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_STREAM_TIMING_H_
#define SDP_PRELOAD_SOCKET_STREAM_TIMING_H_

#include <cstdint>

#include "preload/socket/clock.h"
#include "preload/socket/timed_choice.h"

namespace sdp::preload {

class StreamTiming {
 public:
  // A large send of so many bytes begins.
  void Begin(uint64_t bytes, Time now) {
    if (begun_ == Time{}) choice_.Begin(kBoth, bytes > kTimed ? kRead : kCopy);
    if (bytes_ >= kTimed || begun_ == Time{}) {
      const Duration taken = now - begun_;
      if (bytes_ != 0 && taken < kPause)
        choice_.Took(taken * static_cast<int64_t>(kTimed) / static_cast<int64_t>(bytes_));
      begun_ = now;
      bytes_ = 0;
    }
    bytes_ += bytes;
  }
  [[nodiscard]] bool reads() const { return choice_.way() == kRead; }

 private:
  static constexpr uint8_t kCopy = 0, kRead = 1;
  static constexpr uint8_t kBoth = 3;
  // Bytes timed together: the end of a single send does not tell whether the peer has read it.
  static constexpr uint64_t kTimed = 4 << 20;
  // A program that takes so long for them does something else.
  static constexpr Duration kPause = std::chrono::seconds(10);

  TimedChoice choice_;
  Time begun_{};
  uint64_t bytes_ = 0;  // since then
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STREAM_TIMING_H_
