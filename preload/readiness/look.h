// Bounded looks before a thread sleeps in poll, select or epoll_wait (PollBudget). DeviceLook looks at what
// needs no system call: the completion queues of kernel RNICs, and for poll local links, too
// (Watch::LookAtQueue). LookUntil repeats any look; over TCP links that is the sleep's own call,
// without waiting. A DeviceLook belongs to one call of one thread; LookTurn is shared.
#ifndef SDP_PRELOAD_READINESS_LOOK_H_
#define SDP_PRELOAD_READINESS_LOOK_H_

#include <signal.h>

#include <array>
#include <atomic>

#include "preload/socket/clock.h"
#include "preload/socket/core_watch.h"
#include "preload/socket/restart.h"
#include "preload/socket/watch.h"

namespace sdp::preload {

// Sets the sleep's signal mask, and restores the thread's own at the end.
class SleepersMask {
 public:
  // `mask`: null if the sleep has the thread's own.
  explicit SleepersMask(const sigset_t* mask) : given_(mask != nullptr) {
    if (given_) pthread_sigmask(SIG_SETMASK, mask, &own_);
  }
  ~SleepersMask() {
    if (given_) pthread_sigmask(SIG_SETMASK, &own_, nullptr);
  }
  SleepersMask(const SleepersMask&) = delete;
  SleepersMask& operator=(const SleepersMask&) = delete;

 private:
  const bool given_;
  sigset_t own_;
};

// How looks before a sleep have ended.
enum class LookEnd : uint8_t { kFound, kInVain, kCrowded, kInterrupted };

// Calls `look` until it returns true, or `until` has passed, or a signal handler has run, or another thread
// wants the core. `mask`, if not null, is the sleep's signal mask: handlers that it allows may run meanwhile.
// `between_offers`: no more often is the core offered.
template <typename Look>
LookEnd LookUntil(Time until, const sigset_t* mask, Look look, Duration between_offers = {}) {
  const HandlerWatch handlers;
  const SleepersMask meanwhile(mask);
  CoreWatch core;
  Time offered = Now();
  Time now;
  do {
    for (int i = 0; i < CoreWatch::kLooksPerOffer; ++i) {
      if (look()) return LookEnd::kFound;
    }
    now = Now();
    const bool offer = now - offered >= between_offers;
    const bool crowded = offer && core.OfferedAndTaken();
    if (handlers.Interrupts(/*restarts=*/false)) return LookEnd::kInterrupted;
    if (crowded) return LookEnd::kCrowded;
    if (offer) offered = now;
  } while (now < until);
  return LookEnd::kInVain;
}

// Chooses one looking thread among several that wait for the same sockets; the others sleep. If a signal
// handler jumps out of the look, the turn stays taken until its time is over.
class LookTurn {
 public:
  // Returns true if the caller gets the turn, until it gives the turn back or until `until`.
  [[nodiscard]] bool Take(Time now, Time until) {
    Time taken = until_.load(std::memory_order_relaxed);
    return now >= taken && until_.compare_exchange_strong(taken, until, std::memory_order_relaxed);
  }
  void GiveBack(Time until) { until_.compare_exchange_strong(until, Time{}, std::memory_order_relaxed); }

 private:
  std::atomic<Time> until_{Time{}};
};

class DeviceLook {
 public:
  // A call that waits for more connections than this sleeps at once: looking at all of them would take as
  // long as a sleep.
  static constexpr size_t kMostSockets = 8;

  void Clear() {
    count_ = 0;
    budget_ = Duration::zero();
  }
  // Adds a socket with Readiness::device; the caller keeps it alive until Clear(). `budget` is its
  // Readiness::look.
  void Add(StreamSocket* socket, Duration budget, const Watch::Wanted& wanted);
  [[nodiscard]] bool any() const { return count_ != 0; }
  // Returns the longest budget.
  [[nodiscard]] Duration budget() const { return budget_; }
  // Looks as long as the longest budget says, but not beyond `deadline`, and not while another thread wants
  // the core. Does not look at all if `other_ready`: something else is ready already and would have to wait.
  // Other arrivals, such as credit, do not end the look. `mask`, if not null, is the sleep's signal mask:
  // handlers that it allows may run during the look.
  enum class Outcome : uint8_t {
    kSleep,        // from here on arrivals end a sleep
    kCame,         // something came: ask for readiness again
    kInterrupted,  // a signal handler ran: return EINTR unless something is ready
  };
  Outcome Run(Time deadline, bool other_ready, const sigset_t* mask);

 private:
  bool EndAll(Watch::LookResult result);

  struct Looked {
    StreamSocket* socket;
    Watch::Wanted wanted;
    bool came;  // something came that the caller does not wait for
  };
  std::array<Looked, kMostSockets> sockets_;
  size_t count_ = 0;  // all added sockets, even beyond kMostSockets
  Duration budget_{};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_LOOK_H_
