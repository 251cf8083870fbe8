// The connections that came in over a listener's SDP side and that no thread has accepted yet: those in the
// handshake, which the helper thread finishes, and those that wait for accept.
//
// Processes may share the listener. Then connections wait in a queue that all of them have (common_queue.h).
// What a polling thread has taken on, and does not accept within Listener::kPatience, the helper moves there.
// Two kinds of connections stay with the process that took them on, and end with it: those in the handshake,
// and those over a kernel RNIC, whose state does not survive the way.
//
// The listener's lock guards all of it. The helper takes that lock itself.
#ifndef SDP_PRELOAD_SOCKET_ARRIVALS_H_
#define SDP_PRELOAD_SOCKET_ARRIVALS_H_

#include <atomic>
#include <deque>
#include <list>
#include <memory>

#include "preload/critical.h"
#include "preload/socket/accept_handshake.h"
#include "preload/socket/address.h"
#include "preload/socket/background.h"
#include "preload/socket/common_queue.h"
#include "preload/socket/owner_signal.h"
#include "preload/socket/session.h"
#include "preload/socket/session_transfer.h"

namespace sdp::preload {

class Arrivals {
 public:
  struct Ready {
    int fd;  // hidden; becomes the application's
    std::unique_ptr<Session> session;
    Address peer;
    Time since;  // the handshake was complete: not later than the peer may have learnt of that
    bool begun;
    bool too_long = false;  // for the common queue
  };

  // `owner` and `mutex`, of the listener, outlive it. `patience`: how long a connection waits until the
  // helper looks after it.
  Arrivals(Socket* owner, Mutex* mutex, Duration patience)
      : owner_(owner), mutex_(*mutex), patience_(patience) {
    tending_.arrivals = this;
  }

  // Makes fd(). Returns false if no descriptor is left.
  bool Open();
  // Leaves to other processes what they may have, and resets the rest. `for_all`: resets what waits for them,
  // too; descriptors that a thread may sleep on stay open.
  void Close(bool for_all);

  // Returns a descriptor that is readable while a connection waits for this process alone.
  [[nodiscard]] int fd() const { return fd_.load(); }
  [[nodiscard]] CommonQueue& common() { return common_; }
  [[nodiscard]] const CommonQueue& common() const { return common_; }
  [[nodiscard]] ConnectionSignal& signal() { return signal_; }
  // How many connections the library takes on before the application asks for them.
  [[nodiscard]] size_t backlog() const { return backlog_; }
  void SetBacklog(size_t backlog) { backlog_ = backlog; }
  // The most descriptors for connections that no thread has accepted yet, whatever the backlog.
  static constexpr size_t kMostTakenOn = 256;
  // Returns how many were taken on and not accepted. A finished handshake that the helper still has does not
  // count.
  [[nodiscard]] size_t in_stock() const;
  [[nodiscard]] bool full() const { return in_stock() + (shared_ ? common_.size() : 0) >= backlog_; }
  // Returns how many are past the handshake, also in the common queue.
  [[nodiscard]] size_t waiting() const { return ready_.size() + common_.size(); }
  // Returns true if other processes have, or had, the listener, too.
  [[nodiscard]] bool shared() const { return shared_; }

  // Adds a connection in the handshake. `fd` is hidden, and becomes this object's. Returns false, and does
  // not add it, if no thread would go on with it. `begun`: at work for all.
  [[nodiscard]] bool Add(int fd, AcceptHandshake handshake, bool begun);
  // Adds one that is past the handshake. Puts it into the common queue if that is possible, else calls Keep.
  void Push(Ready ready);
  // Keeps the connection for this process.
  void Keep(Ready ready);
  // Forgets what the helper has finished.
  void DropFinished();

  // Takes the one that has waited longest. Returns null if there is none: errno is EAGAIN, or says what
  // stopped it. *fd gets `flags`.
  std::unique_ptr<Session> Take(int flags, int* fd, Address* peer);
  std::unique_ptr<Session> TakeCommon(int flags, int* fd, Address* peer, Time* since);

  // Notes that this process begins handshakes for all. Returns false if what it accepts is its own.
  bool BeginWork() { return shared_ && common_.BeginWork(); }
  // Ends the work in the common queue when nothing is left of what was begun.
  void SettleWork();

  // Other processes have, or get, the listener.
  void NoteShared() { shared_ = true; }
  // After NoteShared(): what waits goes to the common queue, and later so does what is under way.
  void Share();
  // In the child of a fork: what the helper was at is the parent's.
  void NoteForkInChild();
  // The process ends: leaves to others what waits, and ends handshakes that are not finished.
  void LeaveToOthers();

 private:
  struct Incoming : Background::Task {
    Incoming(Arrivals* arrivals, int fd, AcceptHandshake handshake, bool begun)
        : arrivals(arrivals), fd(fd), handshake(std::move(handshake)), begun(begun) {
      this->handshake.SetFd(fd);
    }
    Background::Wait Run(Time now) override;
    Background::Wait Advance(Time now);
    Background::Wait Continue(Time now);
    Socket* owner() override { return arrivals->owner_; }

    Arrivals* arrivals;
    int fd;  // hidden
    AcceptHandshake handshake;
    std::unique_ptr<Session>
        session;  // past the handshake; its HelloAck may still wait for the peer's first FPDU
    bool begun;   // at work for all (CommonQueue::BeginWork)
    bool finished = false;
  };
  // Looks after connections that wait for accept. A HelloAck may wait for the peer's first FPDU: if no thread
  // accepts for a while, the peer must get it all the same. Where processes share the listener, another one
  // may accept then.
  struct Tending : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override { return arrivals->owner_; }

    Arrivals* arrivals = nullptr;
  };

  // Advances answered connections. One whose peer has sent its first FPDU by now comes before all that
  // connect later.
  void AdvanceAnswered();
  bool PutIntoCommon(const Ready& ready);
  // Takes the first of ready_.
  std::unique_ptr<Session> TakeKept(int flags, int* fd, Address* peer);
  // Returns true if a connection that waits for accept may go to another process as it is.
  static bool MayMove(Session& session) { return !session.has_unsent() && session.transfer().freezable(); }
  // Returns true if such a connection waits for room in the common queue. No later one is to get there first.
  [[nodiscard]] bool AwaitsRoom() const;
  // Puts those that have waited for `patience` into the common queue. Returns when it is time to try again;
  // kNever if all is done that can be.
  Time MoveToCommon(Time now, Duration patience);
  void MoveAllToCommon();
  // One of ready_ has gone to a thread or process.
  void NoteTaken();

  Socket* const owner_;
  Mutex& mutex_;
  const Duration patience_;
  std::atomic<int> fd_{-1};
  std::list<std::unique_ptr<Incoming>> incoming_;
  std::deque<Ready> ready_;  // for this process alone; the one that has waited longest comes first
  CommonQueue common_;       // empty until the listener is shared
  ConnectionSignal signal_;
  Tending tending_;
  size_t backlog_ = 1;
  bool shared_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ARRIVALS_H_
