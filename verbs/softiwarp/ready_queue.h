// Completions of one SoftQp on their way to its owner, in order, and the received messages that they lend.
//
// Most messages lie in one piece of one chunk, and their token alone names what Release() gives back. This
// queue keeps the pieces of other messages until Release().
#ifndef SDP_VERBS_SOFTIWARP_READY_QUEUE_H_
#define SDP_VERBS_SOFTIWARP_READY_QUEUE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "verbs/rnic_types.h"
#include "verbs/softiwarp/proto/growing_ring.h"
#include "verbs/softiwarp/proto/receive_stream.h"

namespace sdp::iwarp {

class ReadyQueue {
 public:
  [[nodiscard]] bool empty() const { return ready_.empty(); }
  // Adds the completion of a work request of the owner's. `length` is that of an RDMA Read.
  void PushWork(WorkId id, verbs::Opcode opcode, verbs::Status status, uint32_t length = 0);
  void PushMessage(const ReceivedMessage& message);
  // Takes the oldest completion; returns false if there is none.
  bool Poll(verbs::Completion* out);
  // Gives the pieces of a lent message back to `stream`, where they came from.
  void Release(verbs::ReceiveToken token, ReceiveStream& stream);

 private:
  // A waiting completion.
  struct Ready {
    WorkId id;
    verbs::Opcode opcode;
    verbs::Status status;
    bool solicited;
    bool invalidates;
    uint32_t length;
    STag invalidated;
    const std::byte* data;
    uint64_t token;  // see MakeToken()
  };
  struct ScatteredMessage {
    AssembledMessage body;
    ScatteredMessage* next = nullptr;
  };

  uint64_t MakeToken(const AssembledMessage& body);
  ScatteredMessage* TakeScattered();

  GrowingRing<Ready> ready_;
  std::vector<std::unique_ptr<ScatteredMessage>> scattered_;  // all of them, lent or spare
  ScatteredMessage* spare_ = nullptr;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_READY_QUEUE_H_
