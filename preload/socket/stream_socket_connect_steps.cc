// The steps of a connect that is under way, which the helper, a call or a fork takes.

#include "preload/confinement.h"
#include "preload/socket/clock.h"
#include "preload/socket/connector.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"
#include "preload/unbounded_poll.h"

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
  s_.NoteFirst();  // the helper may load nothing: the program may be in the loader, and wait for it
  s_.connecting_.in_call = false;
  return Background::Add(&s_.task_, Duration::zero());
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
  Background::Add(&s_.task_, Duration::zero());  // it sleeps on something that is no more
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
  s_.tcp_.connect_failed = outcome == ConnectAttempt::Outcome::kFailed;
  if (s_.tcp_.connect_failed) s_.tcp_.pending_error = s_.connecting_.attempt->error();
  const Address target = s_.connecting_.attempt->target();
  if (FinishConnect(fd, outcome) == kPassThrough) ConnectWithoutBlocking(fd, target);
  if (s_.tcp_.connect_failed) {
    s_.board_.Bump();
    s_.board_.TellChange();
  }
  s_.board_.WakeAll();
}

// The application asks whether the connect is done: what has come meanwhile need not wait until the helper
// runs.
void StreamSocket::Connector::StepAttempt() {
  if (s_.connecting_.attempt == nullptr || s_.connecting_.in_call || s_.numbers_.none() || Confined() ||
      !Background::Holds(&s_.task_))
    return;
  const Background::Wait before = s_.connecting_.attempt->wait();
  const Background::Wait wait = RunAttempt(Now());
  // The helper sleeps for what the step has ended or changed.
  if (wait.done || wait.fd != before.fd || wait.also_fd != before.also_fd || wait.events != before.events ||
      wait.deadline < before.deadline)
    Background::Add(&s_.task_, Duration::zero());
}

int StreamSocket::Connector::AwaitConnect(Lock& lock, Duration timeout) {
  const Time deadline = timeout == Duration::zero() ? kNever : Now() + timeout;
  while (s_.state_ == State::kConnecting) {
    pollfd none{.fd = -1, .events = 0, .revents = 0};
    const int error = s_.waiting().SleepAsWaiter(
        lock, &none, deadline, deadline == kNever ? Signals::kRestart : Signals::kInterrupt);
    if (error == EINTR) return EINTR;
    if (error == EAGAIN && Now() >= deadline) return EAGAIN;
  }
  return 0;
}

}  // namespace sdp::preload
