// SDP connections for a program that will not load the library: in their place it gets the one end of a TCP
// connection within the host, and a process of the library's own pumps between the other end and SDP. The
// bridge is a forked copy of this process (copy-on-write) and no child of it, is out of reach of its signals,
// and ends when its connections have.
#ifndef SDP_PRELOAD_BRIDGE_H_
#define SDP_PRELOAD_BRIDGE_H_

#include <sys/types.h>

#include <vector>

#include "preload/socket/socket.h"
#include "preload/spawn_actions.h"

namespace sdp::preload {

class Bridge {
 public:
  // The near end, close-on-exec, of a bridge for the SDP connection `fd`; -1 with errno. Whoever has the near
  // end uses it from here on.
  static int Build(int fd);

  // Builds it for all SDP connections with descriptors that are not close-on-exec, or will be given a number
  // in the program to come by `moves`, and puts its ends in their place; all sockets are locked from here on
  // (inheritance.h). What cannot be bridged, as what connects still, is replaced by a socket that is not
  // connected.
  explicit Bridge(const std::vector<SpawnMove>& moves = {});
  // The program runs, beside this one.
  void Begin() { begun_ = true; }
  // Everything is as before: exec has failed, or the program has its ends, and the bridge goes to work if
  // Begin() was called.
  ~Bridge();
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

 private:
  explicit Bridge(int fd);
  struct Span {
    SocketRef socket;
    std::vector<int> descriptors;  // the application's that the program will have
    bool standard_input = false;   // the program's
    int near_end = -1;             // for the program
    int far_end = -1;
    std::vector<int> saved;  // hidden, of `descriptors`
    std::vector<int> flags;  // O_CLOEXEC, or none
  };

  void Collect(const std::vector<SpawnMove>& moves);
  bool Start();
  void PutBack();
  [[noreturn]] void Run(int go);

  std::vector<Span> spans_;
  const bool replaces_ = true;  // the near ends stand in the connections' place
  bool begun_ = false;
  int go_ = -1;  // a socket; closed, by the exec for one, and the bridge begins; a byte: it is not needed
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_BRIDGE_H_
