// The options that an application has set on a socket that is neither connected nor listening. On TCP its
// listener passes them on to the connections it accepts. The SDP listener next to it gets them from here. A
// value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_OPTION_LOG_H_
#define SDP_PRELOAD_SOCKET_OPTION_LOG_H_

#include <sys/socket.h>

#include <cstddef>
#include <vector>

#include "preload/socket/address.h"

namespace sdp::preload {

class OptionLog {
 public:
  // Records a setsockopt that the kernel has accepted. Leaves out options that belong to one listener alone
  // (its address, filters, deferred accept), and those that point to memory.
  void Record(int level, int name, const void* value, socklen_t length);
  // Sets the options, in order, on another socket. Ignores those that it refuses.
  void Replay(int fd) const;
  // Returns whether a listener's option applies to its connections, too.
  static bool IsInherited(int level, int name, socklen_t length);

 private:
  struct Entry {
    int level;
    int name;
    std::vector<std::byte> value;
  };
  std::vector<Entry> entries_;
};

// Sets an int option of SOL_SOCKET on `to`, if `from` has it with another value than 0.
void CopyOption(int from, int to, int name);
// Copies the routing of `from` to a socket that asks for a route on its behalf: SO_MARK and SO_BINDTODEVICE.
void FollowRoute(int from, int to);
// Returns this host's address for packets to `target` by the route of `from`; empty if there is none.
Address SourceTowards(int from, const Address& target);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OPTION_LOG_H_
