// Sockets in messages (SCM_RIGHTS). In place of an SDP socket's descriptor travels a capsule with all that
// belongs to it, for a receiver that loads the library, or the end of a bridge, for one that does not.
#ifndef SDP_PRELOAD_RIGHTS_H_
#define SDP_PRELOAD_RIGHTS_H_

#include <sys/socket.h>

#include <cstddef>
#include <vector>

namespace sdp::preload {

// A message as it leaves on the Unix socket `fd`.
class OutgoingRights {
 public:
  OutgoingRights(int fd, const msghdr& message);
  ~OutgoingRights();
  OutgoingRights(const OutgoingRights&) = delete;
  OutgoingRights& operator=(const OutgoingRights&) = delete;
  [[nodiscard]] const msghdr* message() const { return &message_; }
  // There is neither a capsule nor a bridge to be had for one of its sockets, or it connects still. Its
  // descriptor alone is the RNIC's link, and must not go.
  [[nodiscard]] bool failed() const { return failed_; }
  // False, and cheap: there is nothing to replace in such a message.
  static bool MayConcern(const msghdr* message);

 private:
  msghdr message_;
  std::vector<std::byte> control_;
  std::vector<int> substitutes_;
  bool failed_ = false;
};

// Of a message that has come in by recvmsg with `flags`: what was an SDP socket is one again, under the
// number that the program was given.
void TakeIncomingRights(const msghdr& message, int flags);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_RIGHTS_H_
