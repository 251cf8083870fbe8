// Work requests that go to the device together: a chain costs one call, which is a system call where the
// device is in the kernel (siw).
#ifndef SDP_VERBS_IBV_SEND_CHAIN_H_
#define SDP_VERBS_IBV_SEND_CHAIN_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace sdp::ibv {

class SendChain {
 public:
  // A chain of kMost requests makes a device's call cheap. After kMostBytes the device gets the chain at
  // once, so that it works while more is copied.
  static constexpr size_t kMost = 16;
  static constexpr uint64_t kMostBytes = 128 * 1024;

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] bool full() const { return count_ == kMost || bytes_ >= kMostBytes; }

  // Adds a request; not when full(). `piece` is all that the request sends or receives; length 0: no bytes.
  void Add(const ibv_send_wr& request, const ibv_sge& piece);
  // Posts the requests in the order added; not when empty(). Returns 0, or the errno with which the device
  // refused one. That request and all later ones are lost.
  [[nodiscard]] int Post(ibv_qp* queue_pair);

 private:
  std::array<ibv_send_wr, kMost> requests_;
  std::array<ibv_sge, kMost> pieces_;
  size_t count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_SEND_CHAIN_H_
