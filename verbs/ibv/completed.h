// Completions of one IbvQp on their way to its owner, in order.
#ifndef SDP_VERBS_IBV_COMPLETED_H_
#define SDP_VERBS_IBV_COMPLETED_H_

#include <cstdint>
#include <deque>

#include "verbs/rnic_types.h"

namespace sdp::ibv {

class Completed {
 public:
  [[nodiscard]] bool empty() const { return ready_.empty(); }
  void Push(const verbs::Completion& completion) { ready_.push_back(completion); }
  // Adds the completion of a work request of the owner's. `length` is that of an RDMA Read.
  void PushWork(WorkId id, verbs::Opcode opcode, verbs::Status status, uint32_t length = 0) {
    verbs::Completion completion;
    completion.opcode = opcode;
    completion.status = status;
    completion.id = id;
    completion.length = length;
    ready_.push_back(completion);
  }
  // Takes the oldest completion; returns false if there is none.
  bool Poll(verbs::Completion* out) {
    if (ready_.empty()) return false;
    *out = ready_.front();
    ready_.pop_front();
    return true;
  }

 private:
  std::deque<verbs::Completion> ready_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_COMPLETED_H_
