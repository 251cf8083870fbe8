// SDP connections for a program that will not load the library. In place of each connection the program gets
// one end of a TCP connection within the host. A process of the library's own, the bridge, pumps bytes
// between the other end and SDP. The bridge is a copy-on-write fork of this process but no child of it.
// Signals to this process do not reach the bridge, and it ends when its connections have ended.
#ifndef SDP_PRELOAD_BRIDGE_H_
#define SDP_PRELOAD_BRIDGE_H_

#include <vector>

#include "preload/socket/socket.h"
#include "preload/spawn_actions.h"

namespace sdp::preload {

class Bridge {
 public:
  // Builds a bridge for the SDP connection `fd`. Returns its near end, close-on-exec, which the caller owns;
  // returns -1 with errno on failure.
  static int Build(int fd);

  // Builds a bridge for all SDP connections that the next program will have: those with a descriptor that is
  // not close-on-exec, or that `moves` gives a number. Puts the near ends in their place. All sockets stay
  // locked from here on (inheritance.h). A connection that cannot be bridged, such as one that still
  // connects, is replaced by an unconnected socket.
  explicit Bridge(const std::vector<SpawnMove>& moves = {});
  // The program runs, beside this process.
  void Begin() { begun_ = true; }
  // Puts everything back as it was: either exec has failed, or the program has its near ends. The bridge
  // starts work if Begin() was called.
  ~Bridge();
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

 private:
  explicit Bridge(int fd);
  struct Span {
    SocketRef socket;
    std::vector<int> descriptors;  // the application's, which the program will have
    bool standard_input = false;   // whether one is the program's standard input
    int near_end = -1;             // for the program
    int far_end = -1;
    std::vector<int> saved;  // hidden duplicates of `descriptors`
    std::vector<int> flags;  // O_CLOEXEC or 0
  };

  void Collect(const std::vector<SpawnMove>& moves);
  bool Start();
  void PutBack();
  [[noreturn]] void Run(int go);

  std::vector<Span> spans_;
  const bool replaces_ = true;  // whether the near ends replace the connections
  bool begun_ = false;
  int go_ = -1;  // a socket to the bridge; closing it, by exec too, starts the bridge; a byte ends the bridge
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_BRIDGE_H_
