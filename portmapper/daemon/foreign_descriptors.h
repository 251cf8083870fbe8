// Closing what strangers passed. A descriptor's close can block for as long as its sender likes: a socket
// that lingers over unsent data, a file of a FUSE file system that never answers. The daemon must not wait
// for either.
#ifndef SDP_PORTMAPPER_DAEMON_FOREIGN_DESCRIPTORS_H_
#define SDP_PORTMAPPER_DAEMON_FOREIGN_DESCRIPTORS_H_

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

namespace sdp::pm {

// As many as one message can carry (the kernel's SCM_MAX_FD): what did not fit, the kernel would close for
// us, in our time.
inline constexpr size_t kMaxPassedDescriptors = 253;
using PassedDescriptors = absl::InlinedVector<int, 4>;

// One message of a local client, its descriptors already close-on-exec and the receiver's to dispose of.
struct LocalMessage {
  ssize_t length = -1;     // of the data received; 0 at the end of the connection, -1 with errno set
  bool truncated = false;  // data or descriptors were lost
  PassedDescriptors descriptors;
};
[[nodiscard]] LocalMessage ReceiveLocalMessage(int connection, void* buffer, size_t size);

class ForeignDescriptors {
 public:
  ForeignDescriptors();
  ~ForeignDescriptors();
  ForeignDescriptors(const ForeignDescriptors&) = delete;
  ForeignDescriptors& operator=(const ForeignDescriptors&) = delete;

  // Closes a descriptor that `owner` passed. Internet sockets at once, with lingering switched off; anything
  // else (a unix socket may hold further descriptors) in a thread of its own, started on first need.
  void Close(int fd, uid_t owner);

  // Takes what a client still has under way, so that closing the connection leaves nothing for the kernel to
  // close, then closes the connection.
  void CloseConnection(int connection, uid_t owner);

  // This user's descriptors whose close has not returned. An honest client passes internet sockets only.
  [[nodiscard]] size_t Pending(uid_t owner) const;

 private:
  struct Shared;
  static void CloseInBackground(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;  // outlives us if the thread hangs in a close
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_FOREIGN_DESCRIPTORS_H_
