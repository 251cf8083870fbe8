// A StreamSocket's connect, which its caller, the helper, or a fork leads. Made for one call; keeps nothing.
// ConnectAttempt has what lasts.
#ifndef SDP_PRELOAD_SOCKET_CONNECTOR_H_
#define SDP_PRELOAD_SOCKET_CONNECTOR_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Connector {
 public:
  explicit Connector(StreamSocket& socket) : s_(socket) {}

  // Takes one step of a connect that is under way in the background. Returns true if the connect is still to
  // be waited for.
  bool StepConnect();
  // A fork has waited for the connect in vain. The next fork does not wait.
  void NoteWaitedForConnect();
  // Waits for a connect that is under way. At the deadline the connect goes on by TCP, of which the kernel
  // knows all. Returns false if it may not, or if a thread sleeps in it.
  [[nodiscard]] bool SettleConnect(Time deadline);
  int ConnectInline(Lock& lock, int fd);
  // Waits until no connect is under way. Returns 0, EINTR, or EAGAIN when `timeout` (0: without end) is over.
  int AwaitConnect(Lock& lock, Duration timeout);
  // A connect while another one is under way.
  int JoinConnect(Lock& lock, int fd);
  // Fails with the error that is pending, or else with that of a connect which failed in the background.
  int FailAgain(int fd);
  int ShutDownConnect(int fd);
  ConnectAttempt::Outcome LeadAttempt(int fd, Time now);
  int ReportConnected(int fd);
  // For AF_UNSPEC: the socket has no peer from here on.
  int Disconnect(int fd);
  Background::Wait RunAttempt(Time now);
  void StepAttempt();

 private:
  // Ends the connection. Returns what the call returns, if it goes on no further. Sets
  // `*ends_here` if the connection was alive, and `*has_error` if the descriptor has the error of its end.
  std::optional<int> LeaveConnection(bool* ends_here, bool* has_error);
  int FailTaken();
  // Leaves the connect to the helper thread. Returns false if there is no such thread.
  bool LeaveConnect();
  // Fails with ENOMEM if memory runs out.
  int FinishConnect(int fd, ConnectAttempt::Outcome outcome);
  int TakeOutcome(int fd, ConnectAttempt::Outcome outcome);
  // The attempt has come to nothing. The socket stays the library's.
  int FailAttempt(int fd, int error);
  // `outcome` is not kPending.
  void EndAttempt(int fd, ConnectAttempt::Outcome outcome);

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CONNECTOR_H_
