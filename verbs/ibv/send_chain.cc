#include "verbs/ibv/send_chain.h"

#include <cstdlib>

#include "core/base/check.h"
#include "verbs/ibv/uncancelled.h"

namespace sdp::ibv {

void SendChain::Add(const ibv_send_wr& request, const ibv_sge& piece) {
  SDP_CHECK(!full());
  ibv_send_wr& added = requests_[count_];
  added = request;
  pieces_[count_] = piece;
  added.next = nullptr;
  added.sg_list = &pieces_[count_];
  // An RDMA Read names its sink even if it reads no bytes.
  added.num_sge = piece.length > 0 || request.opcode == IBV_WR_RDMA_READ ? 1 : 0;
  if (count_ > 0) requests_[count_ - 1].next = &added;
  ++count_;
  bytes_ += piece.length;
}

int SendChain::Post(ibv_qp* queue_pair) {
  SDP_CHECK(!empty());
  count_ = 0;
  bytes_ = 0;
  ibv_send_wr* refused = nullptr;
  const Uncancelled uncancelled;
  // Some providers return the negated errno.
  return std::abs(ibv_post_send(queue_pair, requests_.data(), &refused));
}

}  // namespace sdp::ibv
