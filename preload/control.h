// Control messages (cmsg(3)) as the kernel handles them for a TCP socket.
#ifndef SDP_PRELOAD_CONTROL_H_
#define SDP_PRELOAD_CONTROL_H_

#include <sys/socket.h>

#include <cstddef>

namespace sdp::preload {

// The room that a recvmsg has for control messages. What does not fit is cut off, and flags() then has
// MSG_CTRUNC.
class ControlRoom {
 public:
  explicit ControlRoom(const msghdr& message)
      : next_(static_cast<char*>(message.msg_control)),
        left_(message.msg_control != nullptr ? message.msg_controllen : 0) {}
  void Put(int level, int type, const void* data, size_t size);
  [[nodiscard]] size_t used() const { return used_; }
  [[nodiscard]] int flags() const { return flags_; }

 private:
  char* next_;
  size_t left_;
  size_t used_ = 0;
  int flags_ = 0;
};

// Checks the control messages that a sendmsg on a TCP socket carries. Returns 0 or an errno. None of them
// changes what is sent.
int CheckControl(const msghdr& message);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONTROL_H_
