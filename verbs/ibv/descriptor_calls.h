// What the owner of the process does with the descriptors of the RDMA libraries: without it they would stand
// among the application's own, which it may close or overwrite.
#ifndef SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_
#define SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_

namespace sdp::ibv {

struct DescriptorCalls {
  // Moves `fd` out of the application's way and protects it; the number it has now, `fd` itself if there is
  // no other.
  int (*hide)(int fd);
  // `fd` is about to be closed under this number: it is protected no longer.
  void (*reveal)(int fd);
};

// Before anything else of this room is called. Without it descriptors stay where they are.
void SetDescriptorCalls(const DescriptorCalls& calls);
const DescriptorCalls& descriptor_calls();

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_
