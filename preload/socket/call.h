// One Send or Receive of a thread on a connection, from its entry to what the program gets. Owns the socket's
// lock for the length of the call. A call asks the connection's odd states here alone: a connect in progress,
// another process that has the connection, what a jump has left, a close in another thread.
#ifndef SDP_PRELOAD_SOCKET_CALL_H_
#define SDP_PRELOAD_SOCKET_CALL_H_

#include <sys/types.h>

#include <optional>

#include "preload/socket/restart.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

// What a part of Send or Receive leaves to do. kGoOn: the next part. kAgain: all from the beginning. kDone:
// nothing, the call returns what it has moved. kOver: the call ends, see Call::Ended(). kFailed: with errno,
// nothing was moved.
enum class StreamSocket::Step : uint8_t { kGoOn, kAgain, kDone, kOver, kFailed };

class StreamSocket::Call {
 public:
  enum class Way : uint8_t { kSend, kReceive };
  // How a sleep has ended. kLook: the connection is as on entry, look again. kLate: likewise, `until` has
  // passed. kOver: the call ends; see Ended().
  enum class Woke : uint8_t { kLook, kLate, kOver };

  // `flags`: of send or recv.
  Call(StreamSocket* socket, int fd, int flags, Way way);
  ~Call() { Leave(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Waits until the socket is an SDP connection that this process has. Returns what the call returns if it
  // ends here. `frame`: of the library's outermost function (call_mark.h).
  [[nodiscard]] std::optional<ssize_t> Enter(const void* frame);

  [[nodiscard]] bool blocks() const { return blocks_; }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] Lock& lock() { return lock_; }
  // Returns when SO_SNDTIMEO or SO_RCVTIMEO ends the call, from its first sleep on; else kNever.
  Time Deadline();
  [[nodiscard]] Signals signals() const {
    return deadline_ == kNever ? Signals::kRestart : Signals::kInterrupt;
  }

  // After a sleep: waits until this process has the connection again. Returns false if the call ends.
  // `enough`: it does not wait, having moved what the program wants.
  [[nodiscard]] bool Usable(bool enough = false) { return !socket_->foreign() || Regain(enough); }
  // Sleeps until something may have changed, `until` at the latest.
  Woke Sleep(Time until = kNever);
  // Sleeps until there is something to read. Returns 0 (look again), EINTR, or EAGAIN (Deadline() has
  // passed). `awaited`: kData or kMessage.
  int SleepForData(Awaited awaited = Awaited::kData);
  // Says whether the call ends: with `error`, an errno or 0, or because the socket was closed meanwhile.
  Woke After(int error);

  // What the program gets. Done() and Ended() publish what has changed, and leave the rest to the helper.
  ssize_t Done(size_t bytes);
  // For a call that is over: `bytes`, or the error if there are none.
  ssize_t Ended(size_t bytes);
  // Gives the lock back. EPIPE of a send comes with SIGPIPE.
  ssize_t Failed(int error);

 private:
  [[nodiscard]] bool MayWait() {
    return (flags_ & MSG_DONTWAIT) == 0 && !socket_->numbers_.IsNonblocking(fd_);
  }
  [[nodiscard]] Duration timeout() const {
    return way_ == Way::kSend ? socket_->options_.kept.send_timeout()
                              : socket_->options_.kept.receive_timeout();
  }
  bool Regain(bool enough);
  // A call sleeps piece by piece. A handler that runs between two pieces interrupts it, too.
  const HandlerWatch& SinceSleep() { return since_sleep_ ? *since_sleep_ : since_sleep_.emplace(); }
  void Leave();
  void PublishTraffic();

  StreamSocket* const socket_;
  const int fd_;
  const int flags_;
  const Way way_;
  bool blocks_ = false;
  bool inside_ = true;  // counted in calls_inside_
  int error_ = 0;       // once the call is over
  Time deadline_ = kNever;
  std::optional<HandlerWatch> since_sleep_;
  Lock lock_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CALL_H_
