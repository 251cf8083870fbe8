// The threads that are in Send and Receive of one connection. If the program closes the connection's last
// descriptor meanwhile, the connection is kept until the last of these calls returns. A value; guarded by the
// socket's lock: a thread that has the lock finds the others asleep.
#ifndef SDP_PRELOAD_SOCKET_CALLS_INSIDE_H_
#define SDP_PRELOAD_SOCKET_CALLS_INSIDE_H_

#include <cstdint>

#include "preload/guard.h"

namespace sdp::preload {

class CallsInside {
 public:
  void Enter() {
    if (count_++ == 0) jumps_before_ = Jumps::Total();
  }
  // Returns true if the connection was kept for this call, and no other one needs it.
  [[nodiscard]] bool Leave() {
    // No call is counted in the child of a fork that a handler made in the middle of this call.
    if (count_ > 0) --count_;
    return count_ == 0 && kept_;
  }
  [[nodiscard]] int count() const { return count_; }
  // Returns true if all threads inside come back: no thread of the process has jumped out of a call since the
  // first one came in.
  [[nodiscard]] bool all_return() const { return jumps_before_ == Jumps::Total(); }
  // In the child of a fork: the threads inside are the parent's.
  void ForgetInChild() { count_ = 0; }

  // The last descriptor is closed: the connection stays for the calls inside.
  void Keep() { kept_ = true; }
  void EndKeeping() { kept_ = false; }
  // Returns true if the connection is closed, except for these calls.
  [[nodiscard]] bool kept() const { return kept_; }

 private:
  int count_ = 0;
  uint32_t jumps_before_ = 0;  // Jumps::Total() when the first of them came in
  bool kept_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CALLS_INSIDE_H_
