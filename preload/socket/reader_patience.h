// What a writer's loans have taught (loan.h): how long it should wait for the peer's reader, and whether its
// next large writes should be copied instead. A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_READER_PATIENCE_H_
#define SDP_PRELOAD_SOCKET_READER_PATIENCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "preload/socket/clock.h"

namespace sdp::preload {

class ReaderPatience {
 public:
  // Returns true if the next large write is to be copied, because the last loans found no reader.
  [[nodiscard]] bool TakesCopy() {
    if (copied_in_a_row_ >= copies_wanted_) return false;
    ++copied_in_a_row_;
    return true;
  }
  // A loan is over; `missed`: without a reader. The next large writes are copied then: one, and twice as many
  // each time.
  void NoteLoan(bool missed) {
    copies_wanted_ = missed ? std::clamp<uint32_t>(copies_wanted_ * 2, 1, kMostCopiedInARow) : 0;
    copied_in_a_row_ = 0;
  }
  // An adapter answers the peer's RDMA Reads unseen. Returns how long a writer of so many bytes waits for
  // them, on top of its patience: twice as long as the reads of the last loans took.
  [[nodiscard]] Duration ReadsExpected(size_t bytes) const {
    return 2 * mebibyte_read_ * static_cast<int64_t>(bytes) / kMebibyte;
  }
  void NoteReads(Duration taken, size_t bytes) {
    const Duration one =
        std::clamp(taken * kMebibyte / static_cast<int64_t>(bytes), kShortestRead, kLongestRead);
    mebibyte_read_ = (3 * mebibyte_read_ + one) / 4;
  }

 private:
  static constexpr int64_t kMebibyte = 1 << 20;
  static constexpr uint32_t kMostCopiedInARow = 64;
  // For a MiB. A reader that comes late counts as one that reads slowly.
  static constexpr Duration kShortestRead = std::chrono::milliseconds(1);
  static constexpr Duration kLongestRead = std::chrono::milliseconds(50);

  uint32_t copies_wanted_ = 0;
  uint32_t copied_in_a_row_ = 0;
  Duration mebibyte_read_ = std::chrono::milliseconds(20);  // about an adapter's peer's time to read one
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_READER_PATIENCE_H_
