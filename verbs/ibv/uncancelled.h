// Keeps the calling thread from being cancelled while an object of class Uncancelled exists.
//
// The RDMA libraries make system calls that are cancellation points. A thread cancelled in one of them would
// leave requests in a queue that the device does not know of, or an event that is never acknowledged.
#ifndef SDP_VERBS_IBV_UNCANCELLED_H_
#define SDP_VERBS_IBV_UNCANCELLED_H_

#include <pthread.h>

namespace sdp::ibv {

class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_UNCANCELLED_H_
