// How a StreamSocket looks before it sleeps, and how a bell wakes it.
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/socket/clock.h"
#include "preload/socket/core_watch.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/looks.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"
#include "preload/socket/watch.h"

namespace sdp::preload {

namespace {

// ThreadSanitizer holds handlers back in system calls that it does not know, such as futex_waitv.
#ifdef __SANITIZE_THREAD__
constexpr bool kHandlersRun = false;
#else
constexpr bool kHandlersRun = true;
#endif

// A look at memory costs less than an offer of the core.
constexpr int kCheapLooksInARow = 32;

}  // namespace

bool StreamSocket::Looks::LookAtLink(bool takes, Session::PollFor wanted) {
  const verbs::Pollable* const pollable = s_.queue_pair().pollable();
  const bool quick =
      pollable != nullptr && (pollable->always_told() ? !s_.board_.hears_doorbells() : !s_.board_.observed());
  // The kernel tells a signal's owner, or an outer epoll set, of arrivals alone. So that look takes all.
  const bool any = quick                         ? s_.session_->Poll(wanted)
                   : s_.board_.hears_doorbells() ? s_.session_->Read()
                                                 : s_.session_->Read(Session::ReadFor::kSome);
  if (any || !quick) s_.AfterProgress(/*publish=*/!takes || s_.engine().readable_bytes() == 0);
  return any;
}

bool StreamSocket::Waiting::LooksBeforeSleep() const {
  if (!s_.usable() || s_.session_->link_ended() || Confined()) return false;
  return s_.queue_pair().pollable() != nullptr || s_.queue_pair().unsent_bytes() == 0;
}

bool StreamSocket::Waiting::LookInARow(int looks, Awaited awaited, const WaitMark& mark, bool* any) {
  for (int i = 0; i < looks; ++i) {
    if (!ComesFor(awaited)) {
      if (!s_.session_->Poll() && !s_.session_->link_ended()) continue;
      s_.AfterProgress(/*publish=*/!AwaitsData(awaited) || s_.engine().readable_bytes() == 0);
      *any = true;
      if (!CameFor(awaited, mark)) continue;
    }
    ++s_.session_->reads().waits.polled;
    s_.use_.poll_budget.NoteFound();
    return true;
  }
  return false;
}

// The core is offered to others after every few looks. That a thread took it is a sign that it is needed: no
// more looks, none for a while.
std::optional<int> StreamSocket::Waiting::LookBeforeSleep(Lock& lock, Time deadline, Awaited awaited,
                                                          const WaitMark& mark, Signals signals) {
  const Duration budget = s_.use_.poll_budget.Next();
  const bool restarts = signals == Signals::kRestart;
  bool any = false;
  if (budget > Duration::zero()) {
    Time now = Now();
    Time offered = now;
    const Time until = std::min(deadline, now + budget);
    CoreWatch core;
    const bool cheap = s_.OnLocalLink();
    const int looks_in_a_row = cheap ? kCheapLooksInARow : CoreWatch::kLooksPerOffer;
    bool crowded = false;
    do {
      if (LookInARow(looks_in_a_row, awaited, mark, &any)) return 0;
      lock.unlock();
      now = Now();
      if (!cheap || now - offered >= CoreWatch::kBetweenOffers) {
        crowded = core.OfferedAndTaken();
        offered = now;
      }
      lock.lock();
      if (!s_.usable()) return 0;
      if (s_.board_.wakes() != mark.wakes && !mark.handlers.Interrupts(restarts)) return 0;
    } while (!crowded && !mark.handlers.Interrupts(restarts) && now < until);
    if (crowded) s_.use_.poll_budget.NoteCrowded();
    // The caller looks at what there is, and comes back for less: or the peer's credit would keep it here.
    if (any) s_.use_.poll_budget.NoteElsewhere();
    // What comes over a local link after a handler, perhaps in answer to it, is the next call's.
    if (s_.OnLocalLink() && mark.handlers.Interrupts(restarts)) return CameFor(awaited, mark) ? 0 : EINTR;
  }
  any |= TakeBeforeSleep(awaited);
  // As on TCP, who reads takes what is there whatever handlers have run; who writes has it the other way
  // round.
  if (any && AwaitsData(awaited) && CameFor(awaited, mark)) return 0;
  if (mark.handlers.Interrupts(restarts)) return EINTR;
  return any ? std::optional(0) : std::nullopt;
}

// Asks to be woken, where that is not so already, and takes what came before that.
bool StreamSocket::Waiting::TakeBeforeSleep(Awaited awaited) {
  if (s_.queue_pair().pollable() == nullptr) return false;  // the kernel tells of all that comes
  const bool any = awaited == Awaited::kSolicited && Lender(s_).AwaitsSolicitedAlone()
                       ? s_.session_->Read(Session::ReadFor::kSolicited)
                       : !s_.session_->MaySleep() && s_.session_->Read();
  s_.AfterProgress();
  return any || s_.session_->link_ended();
}

void StreamSocket::Waiting::NoteWait(Awaited awaited, const WaitMark& mark, Duration lasted) {
  if (!s_.usable()) return;
  ++s_.session_->reads().waits.slept;
  CameFor(awaited, mark) || ComesFor(awaited) ? s_.use_.poll_budget.NoteSlept(lasted)
                                              : s_.use_.poll_budget.NoteElsewhere();
}

StreamSocket::Watch::QueueLook StreamSocket::Watch::LookAtQueue(const Wanted& wanted) {
  std::lock_guard lock(s_.mutex_);
  if (!Waiting(s_).LooksBeforeSleep()) return QueueLook::kFound;  // it is another socket by now
  const auto left = wanted.edges || (wanted.events & POLLIN) == 0 ? std::nullopt : Looks(s_).LeftInLink();
  if (left && (*left != 0 || (s_.session_->direct().lends() && (ReadyNow() & POLLIN) != 0)))
    return QueueLook::kFound;
  if (!s_.session_->Poll()) return QueueLook::kNothing;
  s_.AfterProgress();
  if (!Waiting(s_).LooksBeforeSleep()) return QueueLook::kFound;
  const Board::Edges edges = s_.board_.edges(s_.engine());
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
bool StreamSocket::Waiting::MayHearByBell() const {
  return s_.OnLocalLink() && s_.share_.with == nullptr && !s_.board_.hears_doorbells() &&
         !QuietLinks::stopped() && !s_.upkeep_.left_alone() && !Critical::IsInHandler() &&
         !s_.session_->link_ended() && !s_.session_->moving() && s_.session_->MaySleep();
}

bool StreamSocket::Waiting::HearByBell(const verbs::BellName& bell, uint64_t cookie) {
  return s_.session_->queue_pair().pollable()->HearByBell(bell, cookie);
}

bool StreamSocket::Waiting::LeaveBell() {
  return s_.OnLocalLink() && !s_.foreign() && !s_.session_->queue_pair().pollable()->HearByLink();
}

// First the helper learns of the sleeper, then this looks whether it watches. The helper does both in the
// opposite order, when it watches no more.
std::optional<verbs::FutexBell> StreamSocket::Waiting::HearByFutex() {
  if (!kHandlersRun) return std::nullopt;
  if (s_.use_.not_by_futex != 0) {
    --s_.use_.not_by_futex;
    return std::nullopt;
  }
  if (!Background::Runs()) return std::nullopt;
  s_.upkeep_.RelyOn();
  if (!s_.upkeep_.watched())
    QuietLinks::Watch(&s_.upkeep_, s_.LinkOf(s_.LinkFd()), QuietLinks::WatchFor::kSleeper);
  std::optional<verbs::FutexBell> bell;
  if (s_.upkeep_.watched()) bell = s_.session_->queue_pair().pollable()->HearByFutex();
  if (!bell) s_.upkeep_.RelyOnNoMore();
  return bell;
}

bool StreamSocket::Watch::EndLook(LookResult result, const verbs::BellName* bell, uint64_t cookie) {
  std::lock_guard lock(s_.mutex_);
  if (!Waiting(s_).LooksBeforeSleep()) return true;
  switch (result) {
    case LookResult::kFound:
      ++s_.session_->reads().waits.polled;
      s_.use_.poll_budget.NoteFound();
      return true;
    case LookResult::kCrowded:
      s_.use_.poll_budget.NoteCrowded();
      break;
    case LookResult::kUseless:
      s_.use_.poll_budget.NoteElsewhere();
      break;
    case LookResult::kInVain:
      break;
  }
  if (Waiting(s_).TakeBeforeSleep(Awaited::kAll)) return true;
  const bool alone = s_.board_.heard_by_one() && !s_.session_->has_unsent() && !s_.upkeep_.ListensForPeer();
  if (bell == nullptr || !alone || !Waiting(s_).MayHearByBell() || Waiting(s_).HearByBell(*bell, cookie))
    return false;
  Looks(s_).Look();
  return true;
}

void StreamSocket::Watch::TakeRung(bool polled) {
  const Lock lock(s_.mutex_);
  Holders(s_).OnlyLooks();
  if (!s_.usable()) return;
  const bool alone = polled && s_.board_.heard_by_one();
  if (alone && Looks(s_).ComesDirect()) return;  // the set reports it where it is
  alone ? (void)Looks(s_).LookAtLink(/*takes=*/false, Session::PollFor::kSleep) : Looks(s_).Look();
}

void StreamSocket::Watch::NoteSlept(std::optional<Duration> lasted, WokenBy by) {
  std::lock_guard lock(s_.mutex_);
  if (!Waiting(s_).LooksBeforeSleep()) return;
  if (by == WokenBy::kThis) ++s_.session_->reads().waits.slept;
  if (!lasted) return;
  switch (by) {
    case WokenBy::kThis:
      return s_.use_.poll_budget.NoteSlept(*lasted);
    case WokenBy::kAnother:
      return s_.use_.poll_budget.NoteWaited(*lasted);
    case WokenBy::kNeither:
      return s_.use_.poll_budget.NoteElsewhere();
  }
}

}  // namespace sdp::preload
