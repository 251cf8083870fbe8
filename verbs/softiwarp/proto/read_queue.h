// Our own RDMA Reads: those in flight, at most ORD, and those that wait behind them.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_READ_QUEUE_H_
#define SDP_VERBS_SOFTIWARP_PROTO_READ_QUEUE_H_

#include <cstdint>

#include "core/base/types.h"
#include "verbs/softiwarp/proto/growing_ring.h"
#include "verbs/softiwarp/wire/read_request.h"

namespace sdp::iwarp {

struct PendingRead {
  WorkId id;
  ReadRequest request;
  uint32_t received = 0;
  bool silent = false;  // the zero-length Read of a peer-to-peer set-up: no completion is reported
};

class ReadQueue {
 public:
  void Post(const PendingRead& read) { reads_.PushBack(read); }
  // Returns the next request that may leave now, or nullptr. The request counts as in flight from then on.
  const PendingRead* StartNext(uint16_t ord) {
    if (in_flight_ >= ord || in_flight_ == reads_.size()) return nullptr;
    return &reads_[in_flight_++];
  }
  // Returns the read that the next response belongs to, or nullptr. Responses come in the requests' order.
  PendingRead* oldest() { return in_flight_ > 0 ? &reads_.front() : nullptr; }
  [[nodiscard]] const PendingRead* oldest() const { return in_flight_ > 0 ? &reads_.front() : nullptr; }
  void FinishOldest() {
    reads_.PopFront();
    --in_flight_;
  }
  // Takes the oldest read, in flight or not; returns false if there is none.
  bool TakeAny(PendingRead* out) {
    if (reads_.empty()) return false;
    *out = reads_.front();
    reads_.PopFront();
    in_flight_ = 0;
    return true;
  }
  [[nodiscard]] size_t in_flight() const { return in_flight_; }
  [[nodiscard]] size_t size() const { return reads_.size(); }

 private:
  GrowingRing<PendingRead> reads_;
  size_t in_flight_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_READ_QUEUE_H_
