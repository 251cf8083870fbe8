// How the link of a connection is read: when last, how much came, and how waits for it ended. A value.
#ifndef SDP_PRELOAD_SOCKET_LINK_READS_H_
#define SDP_PRELOAD_SOCKET_LINK_READS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

#include "preload/socket/clock.h"
#include "preload/stats_recorder.h"
#include "preload/stats_segment.h"

namespace sdp::preload {

class LinkReads {
 public:
  // How waits ended that may look before they sleep (Waiting::LooksBeforeSleep).
  struct Waits {
    uint64_t polled = 0;  // polling found the event
    uint64_t slept = 0;
  };
  Waits waits;

  // A read has looked at the link.
  void Note() { at_ = CoarseNow(); }
  // A read has looked at the link and brought something, which the recorder has noted with its time. The
  // caller saves the look at the clock.
  void NoteUntimed() { untimed_ = true; }
  // After a read. `bytes`: all that the link has brought so far.
  void NoteBytes(uint64_t bytes) {
    if (bytes == bytes_) return;
    bulk_ = bytes - bytes_ >= kBulk;
    bytes_ = bytes;
  }

  // Returns true if a read has looked at the link since the last clock tick.
  [[nodiscard]] bool Lately() const { return at_ == CoarseNow(); }
  // Returns true if one has since `time`.
  [[nodiscard]] bool Since(Time time, const stats::MessageRecorder& recorder) {
    if (std::exchange(untimed_, false)) at_ = std::max(at_, NotedAt(recorder));
    return at_ >= time;
  }
  // Returns true if large messages come. A thread that sleeps then takes more at once than one that looks.
  [[nodiscard]] bool in_bulk() const { return bulk_; }

 private:
  // A read of so many bytes is one of a stream of large messages.
  static constexpr uint64_t kBulk = 16 * 1024;

  // Returns when the recorder has noted a message last, by CoarseNow().
  [[nodiscard]] static Time NotedAt(const stats::MessageRecorder& recorder) {
    const uint64_t noted = recorder.noted_at_ns();
    const uint64_t now = stats::Clock(CLOCK_REALTIME_COARSE);
    const uint64_t ago = noted != 0 && noted < now ? now - noted : 0;
    return CoarseNow() -
           std::chrono::nanoseconds(std::min<uint64_t>(ago, std::numeric_limits<int64_t>::max()));
  }

  Time at_{};             // by CoarseNow()
  bool untimed_ = false;  // and again since
  bool bulk_ = false;     // the last read that brought bytes brought many
  uint64_t bytes_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LINK_READS_H_
