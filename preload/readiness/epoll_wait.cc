// epoll_wait on an epoll set.
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/link_calls.h"
#include "preload/readiness/device_spin.h"
#include "preload/readiness/epoll_set.h"
#include "preload/real_calls.h"
#include "preload/socket/background.h"
#include "preload/socket/clock.h"
#include "preload/socket/core_watch.h"
#include "preload/socket/restart.h"
#include "preload/socket/watch.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// A thread that looks at local links reads the clock after so many looks. It looks at the program's other
// descriptors when it offers its core.
constexpr int kLooksPerClock = 8;
// What a sleep costs the two ends of each warm link: its doorbell is armed, rung, and taken. A wait looks so
// much longer, unless SDP_POLL_US limits it.
constexpr Duration kDoorbellCost = std::chrono::microseconds(4);
// While local links keep a program busy, its other descriptors wait so long at most. Each asking costs two
// system calls, since doorbells lie unread.
constexpr Duration kKernelMayWait = std::chrono::microseconds(100);
// So many sockets are asked before what they say is reported: the set's lock is taken once for all.
constexpr size_t kAskedAtOnce = 16;

}  // namespace

// One call. Its events are those of our sockets first, then the kernel's. No registration appears twice in
// one answer: a program that closes on the first event would meet its own freed data in the second.
class EpollSet::WaitCall {
 public:
  WaitCall(EpollSet& set, int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask)
      : set_(set),
        epfd_(epfd),
        events_(events),
        max_events_(max_events),
        untouched_(*events),
        deadline_(deadline),
        mask_(mask) {}
  // Runs however the call ends. The call has taken the kick, so outer sets and the next thread that sleeps
  // for this set have to learn what still holds. The kernel, too, wakes the next thread for events that found
  // no room, and for level-triggered ones.
  ~WaitCall() {
    if (!set_.kick_.heard()) return;
    std::lock_guard lock(set_.mutex_);
    if (set_.sockets_.HasCandidates()) set_.kick_.Give();
  }
  WaitCall(const WaitCall&) = delete;
  WaitCall& operator=(const WaitCall&) = delete;

  int Run();

 private:
  // Reports candidates that have what the application waits for, after the events already there. The others
  // are no longer candidates. `looks`: first looks at the warm local links, and makes candidates of those
  // that have something.
  void Report(bool looks = false);
  // Asks the sockets of a few candidates, and reports those that have something. An event of `earlier` for
  // the same registration is extended instead.
  using Candidates = std::span<const Registrations::Job>;
  void ReportCandidates(Candidates candidates, size_t earlier);
  // For a candidate that is not reported.
  void HandleNothing(int key, StreamSocket* socket, const Watch::Readiness& readiness);
  void Place(int key, size_t earlier);
  // Looks at them for a while, before a sleep, and reports. If all stay silent, none is warm any more.
  // Returns false if a signal handler has run.
  bool SpinOverWarm();
  // Asks the kernel without sleeping, and reports.
  void GlanceAtKernel();
  // With something to report: returns true if the program's other descriptors wait for the next call, or have
  // had their turn in this one. Those that find no room then have the first turn.
  bool KernelMayWait();
  // The sockets take their doorbells, which would end a sleep.
  void Settle(const Registrations::Work& links);
  // Looks at the queues of kernel RNICs. Returns false if a signal handler has run.
  bool LookAtDevices(DeviceSpin* devices);
  // Asks the kernel again and again, before a sleep over links that only the kernel knows. Returns the number
  // of events, or -1 with EINTR.
  int SpinOverKernel();
  // Returns how long to look before a sleep.
  Duration LookBudget();
  // Asks the kernel, and sleeps if nothing is there yet. Returns -1 with errno.
  int AskKernel(bool kernel_first, Time undone, DeviceSpin* devices);
  // After the kernel's first turn in a call: asks again if our own links' news has taken the only place. If
  // the answer is full, more may be ready, and the kernel has the next turn soon.
  void EndKernelTurn(bool inner);
  // Takes in `count` events of the kernel's, after those already there. Returns whether the inner epoll has
  // something.
  bool TakeIn(int count);

  EpollSet& set_;
  const int epfd_;
  epoll_event* const events_;
  const int max_events_;
  const epoll_event untouched_;  // what the first entry was before the call
  const Time deadline_;
  const sigset_t* const mask_;
  int count_ = 0;
  bool glanced_ = false;  // some of these are the kernel's, which would tell of them again
  size_t warm_ = 0;       // local links that were warm at the last look
  // What the doorbells cost of the links that are warm no more, if the sleep over them is to come.
  std::optional<Duration> doorbells_;
  // Registration -> place in `events_`.
  absl::InlinedVector<std::pair<int, int>, 64> reported_;
};

int EpollSet::WaitCall::Run() {
  for (;;) {
    const Time undone = Background::RunInline();
    // If our sockets alone fill the caller's array, the kernel's descriptors come first in the next wait,
    // unless they had their turn lately.
    const bool kernel_first = set_.kernel_turn_.exchange(false, std::memory_order_relaxed);
    count_ = 0;
    glanced_ = false;
    if (!kernel_first) {
      Report(/*looks=*/true);
      if (count_ == 0 && warm_ != 0 && !SpinOverWarm()) return Fail(EINTR);
    }
    if (count_ > 0 && KernelMayWait()) return count_;
    DeviceSpin devices;
    if (count_ == 0 && !kernel_first && set_.sockets_.HasDevices() && Now() < deadline_) {
      if (!LookAtDevices(&devices)) return Fail(EINTR);
      if (count_ > 0 && KernelMayWait()) return count_;
    }
    const int kernel = AskKernel(kernel_first, undone, &devices);
    if (kernel < 0) return count_ > 0 ? count_ : -1;
    const bool inner = TakeIn(kernel);
    if (inner) set_.ProgressLinks(/*take_kick=*/true);
    if (kernel_first) EndKernelTurn(inner);
    if ((inner || kernel_first) && count_ < max_events_) Report(/*looks=*/kernel_first);
    devices.WakeUp();
    if (count_ > 0) return count_;
    if (Now() >= deadline_) return 0;
  }
}

void EpollSet::WaitCall::Settle(const Registrations::Work& links) {
  const verbs::BellName* const bell = links.empty() ? nullptr : set_.OpenBell();
  for (const Registrations::Job& job : links) {
    Watch(Stream(job.socket)).EndLook(Watch::LookResult::kInVain, bell, static_cast<uint64_t>(job.key));
  }
}

Duration EpollSet::WaitCall::LookBudget() {
  std::lock_guard lock(set_.mutex_);
  return Confined() ? Duration::zero() : set_.look_budget_.Next();
}

bool EpollSet::WaitCall::SpinOverWarm() {
  const Duration budget = LookBudget();
  const Duration doorbells = config().poll ? Duration::zero() : static_cast<int>(warm_) * kDoorbellCost;
  const HandlerWatch handlers;
  bool crowded = false;
  if (const Time now = Now(); budget > Duration::zero() && now < deadline_) {
    const Time until = std::min(deadline_, now + budget + doorbells);
    const SleepersMask meanwhile(mask_);
    CoreWatch core;
    Time offered = now;
    Time looked = now;
    do {
      for (int look = 0; look < kLooksPerClock && count_ == 0; ++look) Report(/*looks=*/true);
      looked = Now();
      const bool offer = looked - offered >= CoreWatch::kBetweenOffers;
      if (offer && count_ == 0) GlanceAtKernel();
      if (count_ != 0) {
        std::lock_guard lock(set_.mutex_);
        set_.look_budget_.NoteFound();
        return true;
      }
      if (!offer) continue;
      crowded = core.OfferedAndTaken();
      offered = Now();
    } while (warm_ != 0 && !crowded && !handlers.Interrupts(/*restarts=*/false) && looked < until);
  }
  Registrations::Work links;
  {
    std::lock_guard lock(set_.mutex_);
    if (crowded) set_.look_budget_.NoteCrowded();
    set_.sockets_.TakeWarm(&links);
  }
  doorbells_ = doorbells;
  Settle(links);
  Report();
  return count_ != 0 || !handlers.Interrupts(/*restarts=*/false);
}

void EpollSet::WaitCall::GlanceAtKernel() {
  constexpr timespec kAtOnce{};
  set_.kernel_asked_.store(Now(), std::memory_order_relaxed);
  const int kernel = WaitForEpoll(epfd_, events_, max_events_, &kAtOnce, nullptr);
  if (kernel <= 0) return;
  if (TakeIn(kernel)) set_.ProgressLinks(/*take_kick=*/true);
  glanced_ = count_ > 0;
  if (count_ < max_events_) Report();
}

bool EpollSet::WaitCall::KernelMayWait() {
  const bool asked_lately =
      warm_ != 0 && Now() - set_.kernel_asked_.load(std::memory_order_relaxed) < kKernelMayWait;
  if (count_ == max_events_ && !asked_lately) set_.kernel_turn_.store(true, std::memory_order_relaxed);
  return count_ == max_events_ || asked_lately || glanced_;
}

bool EpollSet::WaitCall::LookAtDevices(DeviceSpin* devices) {
  {
    std::lock_guard lock(set_.mutex_);
    set_.sockets_.AddDevices(devices);
  }
  devices->Prepare();
  if (!devices->any()) return true;
  pollfd other{.fd = epfd_, .events = POLLIN, .revents = 0};
  const bool other_ready = real.poll(&other, 1, 0) > 0;
  const DeviceLook::Outcome outcome = devices->Look(set_.look_turn_, deadline_, other_ready, mask_);
  if (outcome != DeviceLook::Outcome::kSleep) Report();
  return outcome != DeviceLook::Outcome::kInterrupted || count_ != 0;
}

int EpollSet::WaitCall::AskKernel(bool kernel_first, Time undone, DeviceSpin* devices) {
  timespec storage{};
  if (warm_ != 0 || kernel_first) set_.kernel_asked_.store(Now(), std::memory_order_relaxed);
  if (count_ > 0) return WaitForEpoll(epfd_, events_ + count_, max_events_ - count_, &storage, mask_);
  const CountedSleeper counted(set_.kick_);
  const Time look = set_.LookAtShared();
  // A change after Report and before the sleep gave no kick: look once more, now counted as a sleeper. Before
  // a sleep the warm links have their look, in the next round.
  const bool at_once = kernel_first || set_.HasCandidates();
  const bool spins = !at_once && set_.sockets_.HasKernelLinks();
  const std::optional<Duration> doorbells = std::exchange(doorbells_, std::nullopt);
  const Time began = doorbells || spins ? Now() : Time{};
  int count = spins ? SpinOverKernel() : 0;
  if (count != 0) return count;
  const timespec* const timeout =
      at_once ? &storage : Remaining(std::min({deadline_, undone, look}), &storage);
  devices->FallAsleep(deadline_);
  {
    const SleepMayBeCancelled here;
    count = WaitForEpoll(epfd_, events_, max_events_, timeout, mask_);
  }
  if (doorbells || spins) {
    const Duration lasted = Now() - began - doorbells.value_or(Duration::zero());
    std::lock_guard lock(set_.mutex_);
    set_.look_budget_.NoteSlept(std::max(lasted, Duration::zero()));
  }
  return count;
}

int EpollSet::WaitCall::SpinOverKernel() {
  const Duration budget = LookBudget();
  const Time now = Now();
  const Time until = std::min(deadline_, now + budget);
  if (now >= until || !set_.look_turn_.Take(now, until)) return 0;
  int count = 0;
  const LookEnd end = LookUntil(until, mask_, [&] {
    constexpr timespec kAtOnce{};
    count = WaitForEpoll(epfd_, events_, max_events_, &kAtOnce, nullptr);
    return count != 0;
  });
  set_.look_turn_.GiveBack(until);
  if (end == LookEnd::kInterrupted) return Fail(EINTR);
  std::lock_guard lock(set_.mutex_);
  if (end == LookEnd::kFound) set_.look_budget_.NoteFound();
  if (end == LookEnd::kCrowded) set_.look_budget_.NoteCrowded();
  return count;
}

void EpollSet::WaitCall::EndKernelTurn(bool inner) {
  constexpr timespec kAtOnce{};
  if (inner && count_ == 0) {
    const int kernel = WaitForEpoll(epfd_, events_, max_events_, &kAtOnce, nullptr);
    if (kernel > 0) (void)TakeIn(kernel);
  }
  if (count_ == max_events_) set_.kernel_asked_.store(Time{}, std::memory_order_relaxed);
}

bool EpollSet::WaitCall::TakeIn(int count) {
  epoll_event* const first = events_ + count_;
  epoll_event* const last = first + count;
  epoll_event* const end = std::remove_if(
      first, last, [this](const epoll_event& event) { return event.data.u64 == set_.Cookie(); });
  if (end == events_) *events_ = untouched_;
  count_ = set_.listeners_.Merge(events_, count_, static_cast<int>(end - events_));
  return end != last;
}

void EpollSet::WaitCall::Report(bool looks) {
  Registrations::Work cold;
  Registrations::Work work;
  {
    std::lock_guard lock(set_.mutex_);
    if (looks) {
      const bool alone = !set_.kick_.heard();
      set_.sockets_.LookAtWarm(CoarseNow(), alone, &cold, [this](int key, uint32_t ready, epoll_data_t data) {
        if (count_ == max_events_ || !MayWrite(&events_[count_], sizeof *events_)) return false;
        events_[count_] = {.events = ready, .data = data};
        reported_.emplace_back(key, count_++);
        return true;
      });
      warm_ = set_.sockets_.warm();
    }
    if (cold.empty()) set_.sockets_.TakeCandidates(&work, /*keep=*/false);
    count_ += set_.listeners_.Report(events_ + count_, max_events_ - count_);
  }
  if (!cold.empty()) {
    Settle(cold);
    std::lock_guard lock(set_.mutex_);
    set_.sockets_.TakeCandidates(&work, /*keep=*/false);
  }
  if (work.empty()) return;
  const size_t earlier = reported_.size();
  std::sort(reported_.begin(), reported_.end());
  size_t next = 0;
  while (next < work.size() && count_ < max_events_) {
    size_t asked = std::min({kAskedAtOnce, static_cast<size_t>(max_events_ - count_), work.size() - next});
    if (!MayWrite(&events_[count_], asked * sizeof *events_)) asked = 1;
    if (!MayWrite(&events_[count_], asked * sizeof *events_)) break;
    ReportCandidates(Candidates(work).subspan(next, asked), earlier);
    next += asked;
  }
  if (next == work.size()) return;
  // There is no room for these. Next time they come first, ahead of candidates that have had their turn.
  std::lock_guard lock(set_.mutex_);
  set_.sockets_.PutBack(work, next);
}

void EpollSet::WaitCall::ReportCandidates(Candidates candidates, size_t earlier) {
  absl::InlinedVector<Watch::Readiness, kAskedAtOnce> answers;
  std::array<bool, kAskedAtOnce> left;  // with nothing reported
  const auto socket = [&](size_t i) { return &Stream(candidates[i].socket); };
  for (size_t i = 0; i < candidates.size(); ++i) answers.push_back(Watch(*socket(i)).GetReadiness());
  {
    const bool alone = !set_.kick_.heard();
    std::lock_guard lock(set_.mutex_);
    for (size_t i = 0; i < candidates.size(); ++i) {
      const int key = candidates[i].key;
      set_.sockets_.NoteShared(key, answers[i].shared);
      left[i] = !set_.sockets_.ReportOne(candidates[i], answers[i], alone, &events_[count_]);
      if (!left[i]) Place(key, earlier);
    }
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (left[i]) HandleNothing(candidates[i].key, socket(i), answers[i]);
  }
}

void EpollSet::WaitCall::HandleNothing(int key, StreamSocket* socket, const Watch::Readiness& readiness) {
  if (readiness.state == StreamSocket::State::kListening) return set_.OnListen(key, readiness);
  if (readiness.state == StreamSocket::State::kClosed && key <= Registrations::kFirstOrphan)
    return set_.Drop(key);                                // both numbers were closed at once
  if (readiness.left_in_link) Watch(*socket).Progress();  // or each look finds the message again
}

// The event behind the others is the registration's.
void EpollSet::WaitCall::Place(int key, size_t earlier) {
  const auto end = reported_.begin() + static_cast<ptrdiff_t>(earlier);
  auto before = std::lower_bound(reported_.begin(), end, std::pair(key, 0));
  for (; before != end && before->first == key; ++before) {
    epoll_event& event = events_[before->second];
    // Other data: the number was closed, opened and registered anew since.
    if (event.data.u64 != events_[count_].data.u64) continue;
    event.events |= events_[count_].events;
    return;
  }
  reported_.emplace_back(key, count_++);
}

int EpollSet::Wait(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask) {
  // A cancellation ends the call before it has taken an event, or in its sleep.
  pthread_testcancel();
  const CancelledInSleepsOnly whole;
  if (!MayWrite(events, sizeof *events))
    return Fail(EFAULT);  // the other entries are checked one by one, as the kernel does
  return WaitCall(*this, epfd, events, max_events, deadline, mask).Run();
}

}  // namespace sdp::preload
