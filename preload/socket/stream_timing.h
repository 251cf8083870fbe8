// A stream of large sends over a kernel RNIC: is it to be read (Read Zcopy, SDP 9.2) or copied? Reading
// spares two copies, and takes a registration at either end and a message there and back a send: which is
// faster depends on the device and the machine, so both are timed (timed_choice.h). It begins with what costs
// less if it is the wrong one: sends that are soon over are copied, and a long one, which may be all there
// is, is read. A value; guarded by the socket's lock.
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
  // What is timed at a time: single sends are, or are not, taken before the peer has read.
  static constexpr uint64_t kTimed = 4 << 20;
  // Who takes that long for it does something else.
  static constexpr Duration kPause = std::chrono::seconds(10);

  TimedChoice choice_;
  Time begun_{};
  uint64_t bytes_ = 0;  // since then
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STREAM_TIMING_H_
