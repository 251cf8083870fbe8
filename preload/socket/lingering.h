// The hidden descriptor by which a connection goes on that the program has closed, and until when it may.
// tcp_max_orphans bounds what the kernel keeps; an eighth of the process's descriptors bounds these. The
// socket's lock guards it. Any thread may ask for the process's count.
#ifndef SDP_PRELOAD_SOCKET_LINGERING_H_
#define SDP_PRELOAD_SOCKET_LINGERING_H_

#include <chrono>

#include "preload/socket/clock.h"

namespace sdp::preload {

class Lingering {
 public:
  // How long a closed connection may take until all is sent. Then it waits as long for its peer to close,
  // too, unless TCP_LINGER2 says otherwise.
  static constexpr Duration kFinWait = std::chrono::seconds(60);

  // Returns whether a connection of this process lingers.
  [[nodiscard]] static bool Any();
  // Returns whether no further connection of this process is to linger.
  [[nodiscard]] static bool TooMany();
  // Returns how long a connection that is closed here waits for the peer alone: TCP_LINGER2 of `fd`, which
  // the kernel keeps. Below zero: not at all.
  [[nodiscard]] static Duration FinWait(int fd);

  // `fd` is a hidden descriptor of the connection, or -1. This object owns it until End().
  void Begin(int fd);
  // Returns the descriptor, which the caller closes, or -1.
  int End();
  // Returns the descriptor. -1: the connection does not linger.
  [[nodiscard]] int fd() const { return fd_; }

  // Returns until when the connection may go on. kNever before the first SetUntil().
  [[nodiscard]] Time until() const { return until_; }
  void SetUntil(Time until) { until_ = until; }
  // Call when all is sent: the peer alone keeps the connection. The first call bounds that by FinWait().
  void BoundFinWait(Time now);
  [[nodiscard]] bool fin_wait_bounded() const { return bounded_; }

  // The process ends, or execs, and has ended the stream.
  void NoteProcessEnds() { process_ends_ = true; }
  [[nodiscard]] bool process_ends() const { return process_ends_; }

 private:
  int fd_ = -1;
  Time until_ = kNever;
  bool bounded_ = false;
  bool process_ends_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LINGERING_H_
