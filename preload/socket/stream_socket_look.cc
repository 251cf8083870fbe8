// A StreamSocket over a kernel RNIC looks at its completion queue before it sleeps.
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/socket/clock.h"
#include "preload/socket/core_watch.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

namespace {

// A look at memory costs less than an offer of the core.
constexpr int kCheapLooksInARow = 32;

}  // namespace

bool StreamSocket::LookAtLink(bool takes, Session::PollFor wanted) {
  const verbs::Pollable* const pollable = queue_pair().pollable();
  const bool quick =
      pollable != nullptr && (pollable->always_told() ? !board_.hears_doorbells() : !board_.observed());
  // The kernel tells a signal's owner, or an outer epoll set, of arrivals alone. So that look takes all.
  const bool any = quick                      ? session_->PollAvailable(wanted)
                   : board_.hears_doorbells() ? session_->ReadAvailable()
                                              : session_->ReadSome();
  if (any || !quick) AfterProgress(/*publish=*/!takes || engine().readable_bytes() == 0);
  return any;
}

bool StreamSocket::LooksBeforeSleep() const {
  if (state_ != State::kSdp || session_->link_ended() || foreign() || Confined()) return false;
  return queue_pair().pollable() != nullptr || (!session_->being_read() && queue_pair().unsent_bytes() == 0);
}

// The core is offered to others after every few looks. That a thread took it is a sign that it is needed: no
// more looks, none for a while.
std::optional<int> StreamSocket::LookBeforeSleep(Lock& lock, Time deadline, Awaited awaited,
                                                 const WaitMark& mark, Signals signals) {
  const Duration budget = sleeps_.budget.Next();
  const bool restarts = signals == Signals::kRestart;
  bool any = false;
  if (budget > Duration::zero()) {
    Time now = Now();
    Time offered = now;
    const Time until = std::min(deadline, now + budget);
    CoreWatch core;
    const bool cheap = OnLocalLink();
    const int looks_in_a_row = cheap ? kCheapLooksInARow : CoreWatch::kLooksPerOffer;
    bool crowded = false;
    do {
      for (int i = 0; i < looks_in_a_row; ++i) {
        if (ComesFor(awaited)) {
          ++session_->waits().polled;
          sleeps_.budget.NoteFound();
          return 0;
        }
        if (!session_->PollAvailable() && !session_->link_ended()) continue;
        AfterProgress(/*publish=*/!AwaitsData(awaited) || engine().readable_bytes() == 0);
        if (state_ != State::kSdp || session_ == nullptr) return 0;
        any = true;
        if (!CameFor(awaited, mark)) continue;
        ++session_->waits().polled;
        sleeps_.budget.NoteFound();
        return 0;
      }
      lock.unlock();
      now = Now();
      if (!cheap || now - offered >= CoreWatch::kBetweenOffers) {
        crowded = core.OfferedAndTaken();
        offered = now;
      }
      lock.lock();
      if (state_ != State::kSdp || session_ == nullptr) return 0;
      if (board_.wakes() != mark.wakes && !mark.handlers.Interrupts(restarts)) return 0;
    } while (!crowded && !mark.handlers.Interrupts(restarts) && now < until);
    if (crowded) sleeps_.budget.NoteCrowded();
    // The caller looks at what there is, and comes back for less: or the peer's credit would keep it here.
    if (any) sleeps_.budget.NoteElsewhere();
    // What comes over a local link after a handler, perhaps in answer to it, is the next call's.
    if (OnLocalLink() && mark.handlers.Interrupts(restarts)) return CameFor(awaited, mark) ? 0 : EINTR;
  }
  any |= TakeBeforeSleep(awaited);
  // As on TCP, who reads takes what is there whatever handlers have run; who writes has it the other way
  // round.
  if (any && AwaitsData(awaited) && CameFor(awaited, mark)) return 0;
  if (mark.handlers.Interrupts(restarts)) return EINTR;
  return any ? std::optional(0) : std::nullopt;
}

// Asks to be woken, where that is not so already, and takes what came before that.
bool StreamSocket::TakeBeforeSleep(Awaited awaited) {
  if (queue_pair().pollable() == nullptr) return false;  // the kernel tells of all that comes
  const bool any = awaited == Awaited::kSolicited && AwaitsSolicitedAlone()
                       ? session_->ReadForSolicited()
                       : !session_->MaySleep() && session_->ReadAvailable();
  AfterProgress();
  return any || session_->link_ended();
}

void StreamSocket::NoteWait(Awaited awaited, const WaitMark& mark, Duration lasted) {
  if (state_ != State::kSdp || session_ == nullptr || foreign()) return;
  ++session_->waits().slept;
  CameFor(awaited, mark) || ComesFor(awaited) ? sleeps_.budget.NoteSlept(lasted)
                                              : sleeps_.budget.NoteElsewhere();
}

StreamSocket::QueueLook StreamSocket::LookAtQueue(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  if (!LooksBeforeSleep()) return QueueLook::kFound;  // it is another socket by now
  const auto left = wanted.edges || (wanted.events & POLLIN) == 0 ? std::nullopt : LeftInLink();
  if (left && (*left != 0 || (session_->lends() && (ReadyNow() & POLLIN) != 0))) return QueueLook::kFound;
  if (!session_->PollAvailable()) return QueueLook::kNothing;
  AfterProgress();
  if (!LooksBeforeSleep()) return QueueLook::kFound;
  const Board::Edges edges = board_.edges(engine());
  const bool read = edges.read != wanted.read_edge;
  const bool write = edges.write != wanted.write_edge;
  constexpr int kReadSide = POLLIN | POLLRDNORM | POLLRDHUP | POLLPRI;
  const bool edge = (read && (wanted.events & kReadSide) != 0) ||
                    (write && (wanted.events & (POLLOUT | POLLWRNORM)) != 0) || (read && write);
  const bool found = wanted.edges ? edge : (ReadyNow() & wanted.events) != 0;
  return found ? QueueLook::kFound : QueueLook::kCame;
}

// A bell is heard by whom it belongs to, so all others have to hear of the link's own doorbell. Bells are for
// links in use: a quiet one's may be rung while no thread listens.
bool StreamSocket::MayHearByBell() const {
  return OnLocalLink() && share_.with == nullptr && !board_.hears_doorbells() && !QuietLinks::stopped() &&
         !Critical::IsInHandler() && !session_->link_ended() && !session_->moving() && session_->MaySleep();
}

bool StreamSocket::HearByBell(const verbs::BellName& bell, uint64_t cookie) {
  return session_->queue_pair().pollable()->HearByBell(bell, cookie);
}

bool StreamSocket::LeaveBell() {
  return OnLocalLink() && !foreign() && !session_->queue_pair().pollable()->HearByLink();
}

// First the helper learns of the sleeper, then this looks whether it watches. The helper does both in the
// opposite order, when it watches no more.
bool StreamSocket::RelyOnHelper() {
  if (sleeps_.not_at_bell != 0) {
    --sleeps_.not_at_bell;
    return false;
  }
  if (!Background::Runs()) return false;
  quiet_.RelyOn();
  if (!quiet_.watched()) QuietLinks::Watch(&quiet_, LinkOf(LinkFd()), QuietLinks::WatchFor::kSleeper);
  if (quiet_.watched()) return true;
  quiet_.RelyOnNoMore();
  return false;
}

bool StreamSocket::EndLook(LookResult result, const verbs::BellName* bell, uint64_t cookie) {
  std::lock_guard lock(mutex_);
  if (!LooksBeforeSleep()) return true;
  switch (result) {
    case LookResult::kFound:
      ++session_->waits().polled;
      sleeps_.budget.NoteFound();
      return true;
    case LookResult::kCrowded:
      sleeps_.budget.NoteCrowded();
      break;
    case LookResult::kUseless:
      sleeps_.budget.NoteElsewhere();
      break;
    case LookResult::kInVain:
      break;
  }
  if (TakeBeforeSleep(Awaited::kAll)) return true;
  const bool alone =
      board_.heard_by_one() && !quiet_.left_alone() && !session_->has_unsent() && !ListensForPeer();
  if (bell == nullptr || !alone || !MayHearByBell() || HearByBell(*bell, cookie)) return false;
  Look();
  return true;
}

void StreamSocket::TakeRung(bool polled) {
  const Lock lock(mutex_);
  OnlyLooks();
  if (state_ != State::kSdp || foreign()) return;
  const bool alone = polled && board_.heard_by_one();
  if (alone && ComesDirect()) return;  // the set reports it where it is
  alone ? (void)LookAtLink(/*takes=*/false, Session::PollFor::kSleep) : Look();
}

void StreamSocket::NoteSlept(Duration lasted, WokenBy by) {
  std::lock_guard lock(mutex_);
  if (!LooksBeforeSleep()) return;
  switch (by) {
    case WokenBy::kThis:
      ++session_->waits().slept;
      return sleeps_.budget.NoteSlept(lasted);
    case WokenBy::kAnother:
      return sleeps_.budget.NoteWaited(lasted);
    case WokenBy::kNeither:
      return sleeps_.budget.NoteElsewhere();
  }
}

void StreamSocket::NoteSleptUnlooked(WokenBy by) {
  std::lock_guard lock(mutex_);
  if (by == WokenBy::kThis && LooksBeforeSleep()) ++session_->waits().slept;
}

}  // namespace sdp::preload
