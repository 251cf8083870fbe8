// How a call of a StreamSocket waits: it looks at the link for a bounded time, asks to be woken, and sleeps.
// Made for one call; keeps nothing. ConnectionUse and Board have what lasts.
#ifndef SDP_PRELOAD_SOCKET_WAITING_H_
#define SDP_PRELOAD_SOCKET_WAITING_H_

#include <poll.h>

#include "preload/socket/restart.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Waiting {
 public:
  // What a reader finds: bytes to read, and bytes that the peer advertises.
  struct ReadSide {
    uint64_t bytes = 0;
    uint64_t advertised = 0;
    bool operator==(const ReadSide&) const = default;
  };
  // The state when a wait began.
  struct WaitMark {
    HandlerWatch handlers;
    uint64_t wakes;
    ReadSide read_side;
  };

  explicit Waiting(StreamSocket& socket) : s_(socket) {}

  // Sleeps until something may have changed. Returns 0 (look again), EINTR, or EAGAIN when `deadline` has
  // passed.
  int WaitForChange(Lock& lock, int fd, Time deadline, Signals signals, Awaited awaited = Awaited::kAll,
                    const HandlerWatch& handlers = {});
  // Sleeps with `lock` dropped until `link` is ready or a thread wakes the waiters. Returns 0 or an errno.
  // `handlers`: a handler that has run since, and would have ended the sleep, ends it at once.
  int SleepAsWaiter(Lock& lock, pollfd* link, Time deadline, Signals signals,
                    const HandlerWatch& handlers = {}, Awaited awaited = Awaited::kAll);
  // MayHearByBell() returns true if a sleeper may ask for its bell. HearByBell() has the peer ring `bell`
  // when it writes next, or returns false if something has come already. LeaveBell() ends that, and returns
  // true if the caller has to read.
  [[nodiscard]] bool MayHearByBell() const;
  bool HearByBell(const verbs::BellName& bell, uint64_t cookie = 0);
  bool LeaveBell();
  // As HearByBell(), for a sleep by futexes. Has the helper watch the link: for its end, and for a doorbell
  // of a peer that cannot ring. Returns nothing if the helper, or the peer, does not. Else it ends with
  // upkeep_.RelyOnNoMore().
  std::optional<verbs::FutexBell> HearByFutex();
  // Returns true if a wait looks at the link before it sleeps: it is this process's, and no thread reads it.
  [[nodiscard]] bool LooksBeforeSleep() const;
  [[nodiscard]] WaitMark MarkWait(const HandlerWatch& handlers) const {
    return {.handlers = handlers, .wakes = s_.board_.wakes(), .read_side = read_side()};
  }
  // Notes that the wait has slept, after a look.
  void NoteWait(Awaited awaited, const WaitMark& mark, Duration lasted);
  // Looks for a bounded time, and drops `lock` in between. Goes on after what is no use to the caller
  // (credit, to a reader), then asks to be woken. Returns 0 if something has come or changed, EINTR if a
  // handler ran that ends a sleep, and nothing if it is time to sleep.
  std::optional<int> LookBeforeSleep(Lock& lock, Time deadline, Awaited awaited, const WaitMark& mark,
                                     Signals signals);
  // Asks to be woken, and takes what came before. Returns true if anything came.
  bool TakeBeforeSleep(Awaited awaited);

 private:
  class Asleep;
  // Looks so many times in a row. Returns true if the wait is over. Sets `*any` if something came.
  bool LookInARow(int looks, Awaited awaited, const WaitMark& mark, bool* any);
  [[nodiscard]] ReadSide read_side() const {
    return {.bytes = s_.engine().readable_bytes(), .advertised = s_.engine().advertised_bytes()};
  }
  // After progress: returns true if something has come that this wait is for.
  [[nodiscard]] bool CameFor(Awaited awaited, const WaitMark& mark) const {
    return awaited == Awaited::kAll || s_.board_.wakes() != mark.wakes || s_.session_->link_ended() ||
           (AwaitsData(awaited) && read_side() != mark.read_side);
  }
  // Returns true if the link has a message that the caller will take off it.
  [[nodiscard]] bool ComesFor(Awaited awaited) const {
    return awaited == Awaited::kMessage && s_.TakesDirect() && s_.session_->direct().Comes();
  }

  [[nodiscard]] static bool AwaitsData(Awaited awaited) {
    return awaited == Awaited::kData || awaited == Awaited::kMessage;
  }

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_WAITING_H_
