// Who is told that a socket has changed: threads that sleep for it (waiters), epoll sets (observers), and the
// program itself, edge-triggered, by numbers that grow with every event TCP would signal. Owns these lists
// and the edges that do not come from the engine: of an end or an error, and of room that SO_SNDBUF gives
// back. What is ready is the socket's to say. Guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_BOARD_H_
#define SDP_PRELOAD_SOCKET_BOARD_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "preload/socket/session.h"
#include "preload/socket/waiter.h"

namespace sdp::preload {

// Hears of a socket's readiness without sleeping in it: an EpollSet. Called with the socket's lock held.
class ReadinessObserver {
 public:
  virtual ~ReadinessObserver() = default;
  // Something may have become ready.
  virtual void OnChange(int fd) = 0;
  // What the descriptor should be watched for from now on, as poll events; 0: nothing. `link_fd` is the
  // descriptor to watch: `fd`, unless the RNIC has a descriptor of its own for the connection.
  virtual void OnWatch(int fd, int link_fd, short events) = 0;
  // The socket is plain TCP now: the kernel answers for it.
  virtual void OnPlain(int fd) = 0;
};

class Board {
 public:
  struct Edges {
    uint64_t read = 0;
    uint64_t write = 0;
    bool operator==(const Edges&) const = default;
  };

  // --- Edges
  // Of a socket without a connection: only ends and errors count.
  [[nodiscard]] Edges edges() const { return {.read = end_edge_, .write = end_edge_}; }
  [[nodiscard]] Edges edges(const engine::Engine& e) const {
    return {.read = e.read_edge() + end_edge_, .write = e.write_edge() + end_edge_ + room_edge_};
  }
  // An error or an end has come without the engine's edge.
  void Bump() { ++end_edge_; }
  // The engine's edges end with it: an edge that comes later is still a new one.
  void Outlive(const engine::Engine& e) {
    const Edges last = edges(e);
    end_edge_ = std::max(last.read, last.write);
  }
  // Whether SO_SNDBUF lets a writer go on. Room where there was none is an edge.
  void NoteRoom(bool full) {
    if (full_ && !full) ++room_edge_;
    full_ = full;
  }
  [[nodiscard]] bool full() const { return full_; }
  // After progress: true if an edge has come since this was last asked. Then the waiters have been woken.
  [[nodiscard]] bool Compare(const engine::Engine& e) {
    const Edges now = edges(e);
    if (now == seen_) return false;
    seen_ = now;
    waiters_.WakeAll();
    return true;
  }

  // --- The owner, who gets signals (F_SETOWN)
  void SetHasOwner(bool has_owner) { has_owner_ = has_owner; }
  [[nodiscard]] bool has_owner() const { return has_owner_; }

  // --- Waiters (waiter.h)
  void Add(Waiter* waiter) { waiters_.Add(waiter); }
  void Remove(Waiter* waiter) { waiters_.Remove(waiter); }
  void WakeAll() { waiters_.WakeAll(); }
  // Grows with each WakeAll: a thread that gave the socket's lock back for a moment sees that it was called.
  [[nodiscard]] uint64_t wakes() const { return waiters_.wakes(); }

  // --- Observers. `watch`: what `fd` is watched for by now, -1 if the observer is yet to be told.
  void Observe(ReadinessObserver* observer, int fd, short watch) {
    observers_.push_back({.observer = observer, .fd = fd, .watch = watch});
  }
  void Forget(ReadinessObserver* observer, int fd);
  [[nodiscard]] bool observed() const { return !observers_.empty(); }
  // After progress: the link is to be watched for `watch`, and with `changed` something may be ready.
  void TellObservers(const Session& session, short watch, bool changed);
  // Something may be ready, whatever the link is watched for.
  void TellChange() {
    for (const Observation& o : observers_) o.observer->OnChange(o.fd);
  }
  // The kernel answers for the socket from here on.
  void TellPlain();
  // The socket is closed: sleepers look again, and no observer hears of it any more.
  void TellClosed() {
    observers_.clear();
    waiters_.WakeAll();
  }
  void ForgetObservers() { observers_.clear(); }
  // In the child of fork: the threads that slept are the parent's.
  void ForgetWaiters() { waiters_.Clear(); }
  // Neither a waiter nor an observer would hear of a change.
  [[nodiscard]] bool empty() const { return observers_.empty() && waiters_.empty(); }

 private:
  struct Observation {
    ReadinessObserver* observer;
    int fd;
    short watch;
  };

  WaiterList waiters_;
  std::vector<Observation> observers_;
  Edges seen_;
  uint64_t end_edge_ = 0;
  uint64_t room_edge_ = 0;
  bool has_owner_ = false;
  bool full_ = false;  // SO_SNDBUF let no writer go on, when last looked
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_BOARD_H_
