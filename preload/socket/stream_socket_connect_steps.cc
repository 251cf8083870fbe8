// The steps of a connect that is under way, which the helper, a call or a fork takes.

#include "preload/confinement.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

constexpr Duration kRestBetweenSteps = std::chrono::microseconds(300);

}  // namespace

ConnectAttempt::Outcome StreamSocket::LeadAttempt(int fd, Time now) {
  ConnectAttempt::Outcome outcome;
  try {
    outcome = connecting_.attempt->Step(now);
  } catch (const std::bad_alloc&) {
    outcome = connecting_.attempt->ForgoSdp(stats::FallbackReason::kResources, "out of memory");
  }
  if (outcome != ConnectAttempt::Outcome::kConventional || !connecting_.attempt->was_reset()) return outcome;
  options_.kept.Apply(fd);
  return connecting_.attempt->ConnectConventionally();
}

bool StreamSocket::LeaveConnect() {
  NoteFirst();  // the helper may load nothing: the program may be in the loader, and wait for it
  connecting_.in_call = false;
  return Background::Add(&task_, Duration::zero());
}

bool StreamSocket::StepConnect() {
  if (state_ != State::kConnecting) return false;  // a lock may be that of other processes, too
  Lock lock(mutex_);
  if (state_ != State::kConnecting || connecting_.in_call || connecting_.attempt == nullptr ||
      connecting_.fork_gave_up)
    return false;
  StepAttempt();
  return state_ == State::kConnecting;
}

void StreamSocket::NoteWaitedForConnect() {
  if (state_ != State::kConnecting) return;
  const Lock lock(mutex_);
  connecting_.fork_gave_up = true;
}

bool StreamSocket::SettleConnect(Time deadline) {
  for (; state_ == State::kConnecting && Now() < deadline; Pause(kRestBetweenSteps)) {
    const Lock lock(mutex_);
    if (state_ == State::kConnecting) StepAttempt();
  }
  if (state_ != State::kConnecting) return true;
  const Lock lock(mutex_);
  if (state_ != State::kConnecting) return true;
  if (connecting_.in_call || connecting_.attempt == nullptr || numbers_.none() || Confined() ||
      !connecting_.attempt->may_forgo_sdp())
    return false;
  EndAttempt(numbers_.any(),
             connecting_.attempt->ForgoSdp(stats::FallbackReason::kOther,
                                           "another process gets the socket before SDP is there"));
  Background::Add(&task_, Duration::zero());  // it sleeps on something that is no more
  return true;
}

// Lock held: a non-blocking connect goes on.
Background::Wait StreamSocket::RunAttempt(Time now) {
  const int fd = numbers_.any();
  const ConnectAttempt::Outcome outcome = LeadAttempt(fd, now);
  if (outcome == ConnectAttempt::Outcome::kPending) return connecting_.attempt->wait();
  EndAttempt(fd, outcome);
  return {.done = true};
}

void StreamSocket::EndAttempt(int fd, ConnectAttempt::Outcome outcome) {
  tcp_.connect_failed = outcome == ConnectAttempt::Outcome::kFailed;
  if (tcp_.connect_failed) tcp_.pending_error = connecting_.attempt->error();
  const Address target = connecting_.attempt->target();
  if (FinishConnect(fd, outcome) == kPassThrough) ConnectWithoutBlocking(fd, target);
  if (tcp_.connect_failed) {
    board_.Bump();
    board_.TellChange();
  }
  board_.WakeAll();
}

// The application asks whether the connect is done: what has come meanwhile need not wait until the helper
// runs.
void StreamSocket::StepAttempt() {
  if (connecting_.attempt == nullptr || connecting_.in_call || numbers_.none() || Confined() ||
      !Background::Holds(&task_))
    return;
  const Background::Wait before = connecting_.attempt->wait();
  const Background::Wait wait = RunAttempt(Now());
  // The helper sleeps for what the step has ended or changed.
  if (wait.done || wait.fd != before.fd || wait.also_fd != before.also_fd || wait.events != before.events ||
      wait.deadline < before.deadline)
    Background::Add(&task_, Duration::zero());
}

int StreamSocket::AwaitConnect(Lock& lock, Duration timeout) {
  const Time deadline = timeout == Duration::zero() ? kNever : Now() + timeout;
  while (state_ == State::kConnecting) {
    pollfd none{.fd = -1, .events = 0, .revents = 0};
    const int error =
        SleepAsWaiter(lock, &none, deadline, deadline == kNever ? Signals::kRestart : Signals::kInterrupt);
    if (error == EINTR) return EINTR;
    if (error == EAGAIN && Now() >= deadline) return EAGAIN;
  }
  return 0;
}

}  // namespace sdp::preload
