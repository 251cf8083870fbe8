// The Private Buffers posted for Sends, as numbers: their count and sizes. They have no memory of their own
// (receive_stream.h).
#ifndef SDP_VERBS_SOFTIWARP_PROTO_RECEIVE_BUFFERS_H_
#define SDP_VERBS_SOFTIWARP_PROTO_RECEIVE_BUFFERS_H_

#include <algorithm>
#include <cstdint>

#include "verbs/softiwarp/proto/growing_ring.h"

namespace sdp::iwarp {

// Buffers are used in the order posted. Sizes differ only during a resize (SDP 10.6). A peer that knows the
// larger size may use it before the smaller buffers are gone, so a message must fit the largest posted.
class ReceiveBuffers {
 public:
  explicit ReceiveBuffers(uint32_t size) : size_(size) {}

  void SetSize(uint32_t size) { size_ = size; }
  void Post(uint32_t count) {
    if (count == 0) return;
    if (runs_.empty() || runs_.back().size != size_) runs_.PushBack({.size = size_, .count = 0});
    runs_.back().count += count;
  }
  [[nodiscard]] bool empty() const { return runs_.empty(); }
  // Returns the length of the longest acceptable message; 0 if no buffer is posted.
  [[nodiscard]] uint32_t limit() const {
    uint32_t largest = 0;
    for (size_t i = 0; i < runs_.size(); ++i) largest = std::max(largest, runs_[i].size);
    return largest;
  }
  // Uses the oldest buffer for a message; not when empty().
  void Consume() {
    if (--runs_.front().count == 0) runs_.PopFront();
  }

 private:
  friend struct Frozen;
  struct Run {
    uint32_t size;
    uint32_t count;
  };
  uint32_t size_;
  GrowingRing<Run> runs_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_RECEIVE_BUFFERS_H_
