// How libsdp.so protects the descriptors of the RDMA libraries. Without that, they would stand among the
// application's own, and the application could close or overwrite them.
#ifndef SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_
#define SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_

namespace sdp::ibv {

struct DescriptorCalls {
  // Moves `fd` to a number that the application does not use, and protects it. Returns that number, or `fd`
  // itself if no other is free.
  int (*hide)(int fd);
  // `fd` is about to be closed under this number, and needs no more protection.
  void (*reveal)(int fd);
};

// Call it before anything else in verbs/ibv. Until then descriptors keep their numbers.
void SetDescriptorCalls(const DescriptorCalls& calls);
const DescriptorCalls& descriptor_calls();

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_
