#include "preload/socket/call.h"

#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/signal_end.h"
#include "preload/socket/clock.h"
#include "preload/socket/connector.h"
#include "preload/socket/departure.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/waiting.h"

namespace sdp::preload {
namespace {

// TCP: EPIPE comes with SIGPIPE, to this thread, unless it was declined.
void RaisePipe(int flags) {
  SignalEnd::AwaitIfUnderWay();  // before the signal
  // The system calls of raise. Where a filter forbids one of them, the call returns EPIPE without the signal.
  const bool may_raise = !Confined() || (MayCall(preload::Call::kGetpid) && MayCall(preload::Call::kGettid) &&
                                         MayCall(preload::Call::kTgkill));
  if ((flags & MSG_NOSIGNAL) == 0 && may_raise && !StreamSocket::Departure::ProcessEnds()) raise(SIGPIPE);
}

}  // namespace

StreamSocket::Call::Call(StreamSocket* socket, int fd, int flags, Way way)
    : socket_(socket), fd_(fd), flags_(flags), way_(way), lock_(socket->mutex_) {
  socket_->calls_inside_.Enter();
  if (way_ == Way::kReceive) (void)socket_->urgent_mark_.TakeRaised();
}

void StreamSocket::Call::Leave() {
  if (!std::exchange(inside_, false)) return;
  if (!socket_->calls_inside_.Leave()) return;
  const KeepErrno keep;
  Departure(*socket_).EndForCalls(lock_);
}

std::optional<ssize_t> StreamSocket::Call::Enter(const void* frame) {
  StreamSocket& s = *socket_;
  if (s.state_ == State::kConnecting) {
    if (const int error = MayWait() ? Connector(s).AwaitConnect(lock_, timeout()) : EAGAIN; error != 0)
      return Failed(error);
  }
  // Its number may be another file's by now.
  if (s.state_ == State::kClosed) return Failed(EBADF);
  if (s.state_ != State::kSdp) {
    // Of a connect that has failed, or of the connection that was. The kernel knows what a socket that is not
    // connected answers.
    return s.tcp_.pending_error != 0 ? Failed(s.tcp_.TakeError()) : kPassThrough;
  }
  if ((flags_ & MSG_FASTOPEN) != 0 && way_ == Way::kSend) [[unlikely]]
    return Failed(EISCONN);
  blocks_ = MayWait();
  if (!Usable()) return Ended(0);
  if (way_ == Way::kReceive) Holders(s).OnlyLooks();
  Lender(s).MendJump(lock_, fd_, frame);
  ++s.use_.calls;
  return std::nullopt;
}

Time StreamSocket::Call::Deadline() {
  if (deadline_ == kNever && timeout() != Duration::zero()) deadline_ = Now() + timeout();
  return deadline_;
}

bool StreamSocket::Call::Regain(bool enough) {
  error_ = enough ? EAGAIN : Holders(*socket_).AwaitConnection(lock_, !blocks_, timeout(), &deadline_);
  return error_ == 0;
}

StreamSocket::Call::Woke StreamSocket::Call::Sleep(Time until) {
  int error = Waiting(*socket_).WaitForChange(lock_, fd_, std::min(Deadline(), until), signals(),
                                              Awaited::kAll, SinceSleep());
  if (error == EAGAIN) {
    const Time now = Now();
    if (now >= until && socket_->state_ == State::kSdp) return Woke::kLate;
    if (now < deadline_) error = 0;
  }
  return After(error);
}

StreamSocket::Call::Woke StreamSocket::Call::After(int error) {
  if (socket_->state_ != State::kSdp) error = EBADF;
  error_ = error;
  return error == 0 ? Woke::kLook : Woke::kOver;
}

int StreamSocket::Call::SleepForData(Awaited awaited) {
  StreamSocket& s = *socket_;
  const Time deadline = Deadline();
  const int error = Waiting(s).WaitForChange(lock_, fd_, deadline, signals(), awaited, SinceSleep());
  // Another thread may have read, and the handler have run before this one slept again.
  // As on TCP, SIGURG ends the read if its handler wants that. The handler runs behind the lock, too late to
  // interrupt anything.
  const bool urgent = error == 0 && s.usable() && s.urgent_mark_.TakeRaised();
  if (urgent && s.engine().readable_bytes() == 0 && InterruptsCalls(SIGURG)) return EINTR;
  return error == EAGAIN && Now() < deadline ? 0 : error;
}

ssize_t StreamSocket::Call::Done(size_t bytes) {
  socket_->AfterProgress(/*publish=*/false);
  PublishTraffic();
  socket_->upkeep_.LeaveToBackground();
  return static_cast<ssize_t>(bytes);
}

// A message may cost less than its statistics.
void StreamSocket::Call::PublishTraffic() {
  StreamSocket& s = *socket_;
  if (s.foreign()) return;
  if (!s.upkeep_.publishes() || s.session_->link_ended()) return s.report_.Publish(*s.session_, s.names());
  s.report_.PublishTraffic(*s.session_, s.names(), CoarseNow());
}

ssize_t StreamSocket::Call::Ended(size_t bytes) {
  if (socket_->usable()) (void)Done(bytes);
  if (bytes > 0) return static_cast<ssize_t>(bytes);
  return Fail(error_);
}

ssize_t StreamSocket::Call::Failed(int error) {
  Leave();
  lock_.unlock();
  if (error == EPIPE && way_ == Way::kSend) RaisePipe(flags_);
  return Fail(error);
}

}  // namespace sdp::preload
