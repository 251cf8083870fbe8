// How a StreamSocket's connection ends: the program closes it, perhaps under its own calls; the process ends
// or execs; the helper brings a closed connection to its end. Made for one call; keeps nothing. Lingering has
// what lasts.
#ifndef SDP_PRELOAD_SOCKET_DEPARTURE_H_
#define SDP_PRELOAD_SOCKET_DEPARTURE_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Departure {
 public:
  explicit Departure(StreamSocket& socket) : s_(socket) {}

  enum class ProcessEnd : bool { kExit, kExec };
  // Takes one step, without waiting, before the process ends or an exec closes the descriptors. What was sent
  // must leave, and the peer must learn that no more comes. Returns true if this socket no longer holds the
  // process up. Must not be called in a handler.
  [[nodiscard]] bool StepToEnd(ProcessEnd how);
  // Ends the connection in a handler, or without memory, as far as that needs no wait for the peer.
  void EndAtOnce();
  // Keeps the connection for threads that sleep in calls, when the last descriptor is about to be closed.
  // Returns false if it does not.
  bool KeepForCalls(int fd);
  // Closes the connection that KeepForCalls() has kept. The last of its calls is about to return.
  void EndForCalls(Lock& lock);
  // `fd` is closed, and the socket has other descriptors.
  void GoOnWithout(int fd);
  // `fd`, the last descriptor, is about to be closed: the connect goes on without it for a while, if it may.
  void LeaveConnect(int fd);
  int CloseLast(Lock& lock, int fd);
  void DropSession();
  // Answers a peer that sends to a socket which takes no more.
  void AnswerRefused();
  // Notes that the connection has ended, in whatever way: what the next call reports.
  void NoteAbort();
  // The process ends: other threads' sends fail with EPIPE from here on, without a signal.
  static void NoteProcessEnds();
  [[nodiscard]] static bool ProcessEnds();
  Background::Wait RunLinger(Time now);

 private:
  void EndStream();
  // Leaves the rest of the connection to the helper, or drops the session if there is no memory.
  void LingerOn();
  // Returns true if the kernel has taken and sent all bytes, as far as this process may ask (Confined). Bytes
  // that it keeps for a peer without room are lost if the link is closed and the peer sends anything, such as
  // credit.
  [[nodiscard]] bool AllSent(int link);
  // Waits until all bytes have left; with co-holders, until the link has taken them. Returns 0, EAGAIN at the
  // deadline or, with Signals::kInterrupt, EINTR. Drops the lock while it sleeps.
  int AwaitSent(Lock& lock, int fd, Time deadline, Signals signals);
  [[nodiscard]] bool MayGoAtOnce(int fd);
  [[nodiscard]] bool KinHasAll(int fd) const;
  // Returns a hidden descriptor by which the connection goes on. -1: the link may go with `fd`.
  int DescriptorToLinger(Lock& lock, int fd);
  // Steps a connect that was under way when the socket was closed. Returns false while the connect goes on.
  // Afterwards there is a session, or the connect has come to nothing.
  bool StepClosedConnect(Time now);
  void StepToSent();

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_DEPARTURE_H_
