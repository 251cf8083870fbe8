// The steps of a connect that is under way, which the helper, a call or a fork takes; and how a socket loses
// its peer.
#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/connector.h"
#include "preload/socket/departure.h"
#include "preload/socket/looks.h"
#include "preload/socket/server.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"
#include "preload/unbounded_poll.h"
#include "preload/unwind.h"

namespace sdp::preload {
namespace {

constexpr Duration kRestBetweenSteps = std::chrono::microseconds(300);

}  // namespace

ConnectAttempt::Outcome StreamSocket::Connector::LeadAttempt(int fd, Time now) {
  ConnectAttempt::Outcome outcome;
  try {
    outcome = s_.connecting_.attempt->Step(now);
  } catch (const std::bad_alloc&) {
    outcome = s_.connecting_.attempt->ForgoSdp(stats::FallbackReason::kResources, "out of memory");
  }
  if (outcome != ConnectAttempt::Outcome::kConventional || !s_.connecting_.attempt->was_reset())
    return outcome;
  s_.options_.kept.Apply(fd);
  return s_.connecting_.attempt->ConnectConventionally();
}

bool StreamSocket::Connector::LeaveConnect() {
  PrepareToThrow();  // the helper may load nothing: the program may be in the loader, and wait for it
  s_.connecting_.in_call = false;
  return Background::Add(&s_.upkeep_, Duration::zero());
}

bool StreamSocket::Connector::StepConnect() {
  if (s_.state_ != State::kConnecting) return false;  // a lock may be that of other processes, too
  Lock lock(s_.mutex_);
  if (s_.state_ != State::kConnecting || s_.connecting_.in_call || s_.connecting_.attempt == nullptr ||
      s_.connecting_.fork_gave_up)
    return false;
  StepAttempt();
  return s_.state_ == State::kConnecting;
}

void StreamSocket::Connector::NoteWaitedForConnect() {
  if (s_.state_ != State::kConnecting) return;
  const Lock lock(s_.mutex_);
  s_.connecting_.fork_gave_up = true;
}

bool StreamSocket::Connector::SettleConnect(Time deadline) {
  for (; s_.state_ == State::kConnecting && Now() < deadline; Pause(kRestBetweenSteps)) {
    const Lock lock(s_.mutex_);
    if (s_.state_ == State::kConnecting) StepAttempt();
  }
  if (s_.state_ != State::kConnecting) return true;
  const Lock lock(s_.mutex_);
  if (s_.state_ != State::kConnecting) return true;
  if (s_.connecting_.in_call || s_.connecting_.attempt == nullptr || s_.numbers_.none() || Confined() ||
      !s_.connecting_.attempt->may_forgo_sdp())
    return false;
  EndAttempt(s_.numbers_.any(),
             s_.connecting_.attempt->ForgoSdp(stats::FallbackReason::kOther,
                                              "another process gets the socket before SDP is there"));
  Background::Add(&s_.upkeep_, Duration::zero());  // it sleeps on something that is no more
  return true;
}

// Lock held: a non-blocking connect goes on.
Background::Wait StreamSocket::Connector::RunAttempt(Time now) {
  const int fd = s_.numbers_.any();
  const ConnectAttempt::Outcome outcome = LeadAttempt(fd, now);
  if (outcome == ConnectAttempt::Outcome::kPending) return s_.connecting_.attempt->wait();
  EndAttempt(fd, outcome);
  return {.done = true};
}

void StreamSocket::Connector::EndAttempt(int fd, ConnectAttempt::Outcome outcome) {
  FinishConnect(fd, outcome);
  const int error = errno;
  s_.tcp_.connect_failed = s_.state_ == State::kNew;
  if (s_.tcp_.connect_failed) {
    s_.tcp_.pending_error = error;
    s_.board_.Bump();
    s_.board_.TellChange();
  }
  s_.board_.WakeAll();
}

// The application asks whether the connect is done: what has come meanwhile need not wait until the helper
// runs.
void StreamSocket::Connector::StepAttempt() {
  if (s_.connecting_.attempt == nullptr || s_.connecting_.in_call || s_.numbers_.none() || Confined() ||
      !Background::Holds(&s_.upkeep_))
    return;
  const Background::Wait before = s_.connecting_.attempt->wait();
  const Background::Wait wait = RunAttempt(Now());
  // The helper sleeps for what the step has ended or changed.
  if (wait.done || wait.fd != before.fd || wait.also_fd != before.also_fd || wait.events != before.events ||
      wait.deadline < before.deadline)
    Background::Add(&s_.upkeep_, Duration::zero());
}

int StreamSocket::Connector::AwaitConnect(Lock& lock, Duration timeout) {
  const Time deadline = timeout == Duration::zero() ? kNever : Now() + timeout;
  while (s_.state_ == State::kConnecting) {
    pollfd none{.fd = -1, .events = 0, .revents = 0};
    const int error = Waiting(s_).SleepAsWaiter(lock, &none, deadline,
                                                deadline == kNever ? Signals::kRestart : Signals::kInterrupt);
    if (error == EINTR) return EINTR;
    if (error == EAGAIN && Now() >= deadline) return EAGAIN;
  }
  return 0;
}

std::optional<int> StreamSocket::Connector::LeaveConnection(bool* ends_here, bool* has_error) {
  if (s_.foreign()) return Fail(EIO);
  Looks(s_).Look();
  *ends_here =
      s_.InCloseWait() || (s_.engine().state() != engine::State::kAborted &&
                           s_.engine().state() != engine::State::kClosed && !s_.session_->link_ended());
  // Others know the session: a thread in a call, or another process. To them it is a connection that is
  // over.
  const bool ours = s_.share_.with == nullptr && !s_.HasSleepers() && !s_.lending_.offered();
  if (!ours || s_.queue_pair().device() != nullptr) {
    s_.lending_.AskBack(*s_.session_);
    s_.session_->engine().Abort(engine::AbortReason::kLocal);
    s_.session_->Pump();
    s_.AfterProgress();
  }
  if (!ours) {
    if (*ends_here && s_.tcp_.pending_error == 0)
      s_.tcp_.pending_error = ECONNRESET;  // a sleeper's, who would read an end
    return 0;
  }
  s_.board_.TellObservers(*s_.session_, 0, false);
  *has_error = s_.queue_pair().device() == nullptr && !s_.InCloseWait();
  // Its peer has to know this reset from one that the kernel answers a doorbell with.
  if (s_.OnLocalLink()) s_.session_->queue_pair().Abort();
  // The engine's edges end with the session. A wait that has seen them has to see this change, too.
  s_.board_.Outlive(s_.engine());
  Departure(s_).DropSession();
  s_.use_.trimming = false;
  s_.names_.peer = {};
  s_.urgent_mark_.NoteRead();
  s_.tcp_.ForgetConnection();
  s_.corked_.Clear();
  return std::nullopt;
}

// As TCP does it: a peer is reset, a listener listens no more, a connect that is under way is given up.
int StreamSocket::Connector::Disconnect(int fd) {
  bool ends_here = false;
  bool has_error = false;
  switch (s_.state_.load()) {
    case State::kNew:
      s_.tcp_.connect_failed = false;
      return kPassThrough;
    case State::kPlain:
    case State::kClosed:
      return kPassThrough;
    case State::kListening:
      Server(s_).StopListening(fd);
      return kPassThrough;
    case State::kConnecting:
      s_.connecting_.attempt.reset();
      if (Background::Holds(&s_.upkeep_))
        Background::Add(&s_.upkeep_, Duration::zero());  // it sleeps on something that is no more
      break;
    case State::kSdp:
      if (const auto result = LeaveConnection(&ends_here, &has_error)) return *result;
      break;
  }
  const bool was_sdp = s_.state_ == State::kSdp;
  s_.state_ = State::kNew;
  const int saved = errno;
  Unconnect(fd);
  s_.options_.kept.RestoreCongestionControl(fd);
  if (was_sdp) {
    // As TCP: an error stays until a call reports it, and the end itself is one. The library keeps it from
    // here on, not the kernel.
    int of_link = ECONNRESET;
    socklen_t size = sizeof of_link;
    if (has_error) real.getsockopt(fd, SOL_SOCKET, SO_ERROR, &of_link, &size);
    if (s_.tcp_.pending_error == 0 && ends_here) s_.tcp_.pending_error = of_link;
    s_.tcp_.error_outlived = s_.tcp_.pending_error != 0;
  }
  errno = saved;
  s_.board_.Bump();
  s_.board_.TellChange();
  s_.board_.WakeAll();
  return 0;
}

}  // namespace sdp::preload
