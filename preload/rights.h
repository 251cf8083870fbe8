// Sockets in messages (SCM_RIGHTS). An SDP socket's descriptor is replaced on its way. A receiver that loads
// the library gets a capsule with all that belongs to the socket. Any other receiver gets the end of a
// bridge.
#ifndef SDP_PRELOAD_RIGHTS_H_
#define SDP_PRELOAD_RIGHTS_H_

#include <sys/socket.h>

#include <cstddef>
#include <vector>

namespace sdp::preload {

// A message as it leaves on the Unix socket `fd`. Owns the substitutes, and closes them.
class OutgoingRights {
 public:
  OutgoingRights(int fd, const msghdr& message);
  ~OutgoingRights();
  OutgoingRights(const OutgoingRights&) = delete;
  OutgoingRights& operator=(const OutgoingRights&) = delete;
  [[nodiscard]] const msghdr* message() const { return &message_; }
  // Returns whether one of the sockets has neither a capsule nor a bridge, or still connects. Its descriptor
  // alone is the RNIC's link, which must not be passed on.
  [[nodiscard]] bool failed() const { return failed_; }
  // Returns false, cheaply, if the message holds nothing to replace.
  static bool MayConcern(const msghdr* message);

 private:
  msghdr message_;
  std::vector<std::byte> control_;
  std::vector<int> substitutes_;
  bool failed_ = false;
};

// Handles a message that recvmsg has received with `flags`. Each capsule becomes an SDP socket again, under
// the number that the program was given.
void TakeIncomingRights(const msghdr& message, int flags);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_RIGHTS_H_
