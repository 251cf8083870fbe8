// What an application has set on a socket that is neither connected nor listening. On TCP its listener hands
// the options on to the connections it accepts; the SDP listener that stands beside it has to be told.
#ifndef SDP_PRELOAD_SOCKET_OPTION_LOG_H_
#define SDP_PRELOAD_SOCKET_OPTION_LOG_H_

#include <sys/socket.h>

#include <cstddef>
#include <vector>

namespace sdp::preload {

class OptionLog {
 public:
  // A setsockopt that the kernel has accepted. Options that belong to one listener alone (its address,
  // filters, deferred accept) and those that point to memory are left out.
  void Record(int level, int name, const void* value, socklen_t length);
  // Sets them, in order, on another socket. What that one refuses is left out.
  void Replay(int fd) const;
  // Whether what is set on a listener is for its connections, too.
  static bool IsInherited(int level, int name, socklen_t length);

 private:
  struct Entry {
    int level;
    int name;
    std::vector<std::byte> value;
  };
  std::vector<Entry> entries_;
};

// How the packets of `from` are routed, for a socket that asks the way for it: SO_MARK and SO_BINDTODEVICE.
void FollowRoute(int from, int to);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OPTION_LOG_H_
