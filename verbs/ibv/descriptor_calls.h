// How libsdp.so protects the file descriptors of the RDMA libraries. Without protection the application could
// close or overwrite them, because they stand among its own.
#ifndef SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_
#define SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_

namespace sdp::ibv {

struct DescriptorCalls {
  // Moves `fd` to a number that the application does not use, and protects it. Returns that number, or `fd`
  // itself if no other is free.
  int (*hide)(int fd);
  // Ends the protection of `fd`, which is about to be closed under this number.
  void (*reveal)(int fd);
};

// Call it before anything else in verbs/ibv. Until then descriptors keep their numbers.
void SetDescriptorCalls(const DescriptorCalls& calls);
const DescriptorCalls& descriptor_calls();

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_DESCRIPTOR_CALLS_H_
