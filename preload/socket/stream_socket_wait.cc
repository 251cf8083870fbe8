// How a call of a StreamSocket sleeps until something may have changed.
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "preload/fail.h"
#include "preload/socket/call_mark.h"
#include "preload/socket/clock.h"
#include "preload/socket/holders.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/restart.h"
#include "preload/socket/session_moves.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiter.h"
#include "preload/socket/waiting.h"

namespace sdp::preload {
namespace {

// A writer that waits for credit, which is behind more than that, leaves it to a reader elsewhere to bring
// both, for so long: that one may read little by little, or not at all.
constexpr Duration kReadingLeftFor = std::chrono::milliseconds(10);

// After a sleep by futexes that did not end by the bell, so many sleeps are in poll: the peer may be unable
// to ring, or the kernel may not know such a sleep.
constexpr uint8_t kSleepsByPoll = 32;

}  // namespace

// The sleep of a call, with the lock dropped. The board knows the thread's waiter, if there is one.
class StreamSocket::Waiting::Asleep {
 public:
  // `bell`: the sleep is by futexes.
  Asleep(StreamSocket& socket, Lock& lock, Waiter* waiter, std::optional<verbs::FutexBell> bell)
      : s_(socket), lock_(lock), waiter_(waiter), bell_(bell) {
    if (waiter != nullptr) {
      waiter->BeginSleep();
      if (bell) waiter->BeginFutex();
    }
    s_.board_.Add(waiter);
    lock.unlock();
  }
  ~Asleep() {
    if (lock_.owns_lock()) return;
    // The thread is cancelled in its sleep.
    if (Over()) Looks(s_).Look();
    s_.board_.WakeAll();
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;
  // Returns what poll returns, with errno.
  int Poll(pollfd* fds, nfds_t count, Time until) {
    if (!bell_) return PollOnce(fds, count, until);
    const int error = waiter_->SleepAt(*bell_);
    return error == 0 ? 1 : Fail(error);
  }
  // Takes the lock back. Returns true if this thread has to read: the peer wakes no other one.
  bool Over() {
    lock_.lock();
    if (bell_) s_.upkeep_.RelyOnNoMore();
    if (waiter_ != nullptr) {
      if (bell_) waiter_->EndFutex();
      s_.board_.Remove(waiter_);
      waiter_->EndSleep();
    }
    return Waiting(s_).LeaveBell();
  }

 private:
  StreamSocket& s_;
  Lock& lock_;
  Waiter* const waiter_;
  const std::optional<verbs::FutexBell> bell_;
  const CallMark mark_;
};

int StreamSocket::Waiting::SleepAsWaiter(Lock& lock, pollfd* link, Time deadline, Signals signals,
                                         const HandlerWatch& handlers, Awaited awaited) {
  Time until = deadline;
  if (s_.share_.with != nullptr) until = std::min(until, Now() + s_.share_.NextLook(s_.calls_inside_.kept()));
  if (s_.usable()) until = std::min(until, s_.session_->moves().deadline());
  pollfd fds[3];  // the link, the waiter, its bell
  nfds_t count = 0;
  fds[count++] = *link;
  Waiter* const waiter = Waiter::ForThisThread();
  if (waiter != nullptr) {
    fds[count++] = {.fd = waiter->event_fd(), .events = POLLIN, .revents = 0};
  } else if (link->fd < 0) {
    until = std::min(until, Now() + std::chrono::milliseconds(5));
  } else {
    until = std::min(until, Waiter::LookAgainWithout());
  }
  const bool restarts = signals == Signals::kRestart;
  const bool hears = waiter != nullptr && MayHearByBell();
  const auto futex = hears && until == kNever && restarts ? HearByFutex() : std::nullopt;
  iwarp::Bell* const bell = hears && !futex ? waiter->OpenBell() : nullptr;
  if (bell != nullptr) {
    fds[count++] = {.fd = bell->fd(), .events = POLLIN, .revents = 0};
    if (!HearByBell(bell->name())) until = Time{};
  } else if (!futex && s_.state_ == State::kSdp && LeaveBell()) {
    until = Time{};  // another sleep's bell
  }
  Asleep asleep(s_, lock, waiter, futex);
  // A handler that the lock held off has run by now.
  const int result = handlers.Interrupts(restarts) ? Fail(EINTR) : asleep.Poll(fds, count, until);
  const int error = errno;
  const bool rung = asleep.Over();
  Holders(s_).OnlyLooks();
  if (result > 0 && futex && !rung) {
    link->revents = POLLIN;  // the helper has told of the link's end, or of a doorbell, perhaps
    s_.use_.not_by_futex = kSleepsByPoll;
  } else if (result > 0 && !futex) {
    if (waiter != nullptr && fds[1].revents != 0) waiter->Drain();
    if (bell != nullptr && fds[2].revents != 0) waiter->DrainBell();
    link->revents = fds[0].revents;
  }
  // Nothing is armed after a ring. That is for this thread to know, unless others wait for the link.
  const bool alone = !s_.board_.observed() && s_.board_.unheard();
  if (rung && !(alone && ComesFor(awaited)))
    alone ? (void)Looks(s_).LookAtLink(/*takes=*/true, Session::PollFor::kSleep) : Looks(s_).Look();
  // After a handler with SA_RESTART, which may have forked, the caller looks again.
  if (result < 0) return error == EINTR && restarts && !handlers.Interrupts(restarts) ? 0 : error;
  return !rung && result == 0 && until == deadline ? EAGAIN : 0;
}

int StreamSocket::Waiting::WaitForChange(Lock& lock, int fd, Time deadline, Signals signals, Awaited awaited,
                                         const HandlerWatch& handlers) {
  // In a stream of large messages a look takes less at once than a sleep does.
  const bool bulk =
      AwaitsData(awaited) && s_.session_->reads().in_bulk() && s_.queue_pair().pollable() == nullptr;
  const bool looks = !bulk && LooksBeforeSleep();
  const Time began = looks ? Now() : Time{};
  const WaitMark mark = MarkWait(handlers);
  if (looks) {
    if (const std::optional<int> outcome = LookBeforeSleep(lock, deadline, awaited, mark, signals))
      return *outcome;
  }
  bool left_to_reader = s_.share_.with != nullptr &&
                        s_.engine().readable_bytes() >= std::max(kReadAheadOfShared, Limits(s_).LowWater());
  if (left_to_reader) {
    if (s_.share_.reader_elsewhere_until == kNever)
      s_.share_.reader_elsewhere_until = Now() + kReadingLeftFor;
    left_to_reader = Now() < s_.share_.reader_elsewhere_until;
  }
  const short watch = left_to_reader ? s_.session_->watch_events() & POLLOUT : s_.session_->watch_events();
  pollfd link{.fd = watch != 0 ? s_.LinkOf(s_.NumberNow(fd)) : -1, .events = watch, .revents = 0};
  if (AwaitsData(awaited)) s_.queue_pair().NoteSleep();
  int error = SleepAsWaiter(lock, &link,
                            left_to_reader ? std::min(deadline, s_.share_.reader_elsewhere_until) : deadline,
                            signals, mark.handlers, awaited);
  if (left_to_reader && error == EAGAIN && Now() < deadline) error = 0;
  const Duration lasted = looks ? Now() - began : Duration::zero();
  if (s_.state_ != State::kSdp) return 0;
  if (s_.foreign()) return error;  // another process has it now, and its link
  if (link.revents != 0) {
    if (link.revents == POLLOUT) {  // room alone: nothing is there to be read
      s_.session_->Pump();
      s_.AfterProgress();
    } else {
      Looks(s_).TakeFromLink();
    }
  } else if (s_.session_->moving()) {
    Looks(s_).Look();  // at its deadline
  }
  if (looks) NoteWait(awaited, mark, lasted);
  return error;
}

}  // namespace sdp::preload
