// Tells others of a socket's changes: threads that sleep for it (waiters) and epoll sets (observers). For
// edge-triggered use, numbers grow with every event TCP would signal. Owns these lists, and the edges that do
// not come from the engine: an end, an error, and room to send. The socket itself says what is
// ready. The socket's lock guards all of it.
#ifndef SDP_PRELOAD_SOCKET_BOARD_H_
#define SDP_PRELOAD_SOCKET_BOARD_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "preload/socket/session.h"
#include "preload/socket/waiter.h"

namespace sdp::preload {

// Learns of a socket's readiness without sleeping in it: an EpollSet. Called with the socket's lock held.
class ReadinessObserver {
 public:
  virtual ~ReadinessObserver() = default;
  // Something may have become ready.
  virtual void OnChange(int fd) = 0;
  // Says what to watch the descriptor for from now on, as poll events; 0: nothing. `link_fd` is the
  // descriptor to watch: `fd`, unless the RNIC has a descriptor of its own for the connection. `session`: the
  // connection, during the call.
  virtual void OnWatch(int fd, int link_fd, short events, Session& session) = 0;
  // The socket is plain TCP now: the kernel reports its readiness.
  virtual void OnPlain(int fd) = 0;
  // Returns whether the kernel's view of the link matters by itself, as to an epoll set inside another one.
  // Then a reader of a local link takes its doorbells.
  [[nodiscard]] virtual bool HearsDoorbells() const { return false; }
};

class Board {
 public:
  struct Edges {
    uint64_t read = 0;
    uint64_t write = 0;
    bool operator==(const Edges&) const = default;
  };

  // --- Edges
  // For a socket without a connection: only ends and errors count.
  [[nodiscard]] Edges edges() const { return {.read = end_edge_, .write = end_edge_}; }
  [[nodiscard]] Edges edges(const engine::Engine& e) const {
    return {.read = e.read_edge() + end_edge_, .write = e.write_edge() + end_edge_ + room_edge_};
  }
  // An error or an end has come without an edge of the engine's.
  void Bump() { ++end_edge_; }
  // The engine is about to go, and its edges with it. Edges that come later are still new.
  void Outlive(const engine::Engine& e) {
    const Edges last = edges(e);
    end_edge_ = std::max(last.read, last.write);
  }
  // `full`: SendLimit(), or a full link, lets no writer continue. Room where there was none is an edge.
  void NoteRoom(bool full) {
    if (full_ && !full) ++room_edge_;
    full_ = full;
  }
  [[nodiscard]] bool full() const { return full_; }
  // After progress: returns true if an edge has come since the last call. Then the waiters have been woken.
  [[nodiscard]] bool Compare(const engine::Engine& e) {
    const Edges now = edges(e);
    if (now == seen_) return false;
    seen_ = now;
    WakeAll();
    return true;
  }

  // --- The owner, which gets signals (F_SETOWN)
  void SetHasOwner(bool has_owner) { has_owner_ = has_owner; }
  [[nodiscard]] bool has_owner() const { return has_owner_; }

  // --- Waiters (waiter.h)
  // `waiter`: null if the thread has none.
  void Add(Waiter* waiter) {
    if (waiter != nullptr) waiters_.push_back(waiter);
  }
  void Remove(Waiter* waiter) {
    const auto at = std::find(waiters_.begin(), waiters_.end(), waiter);
    if (at != waiters_.end()) waiters_.erase(at);
  }
  void WakeAll() {
    ++wakes_;
    for (Waiter* const waiter : waiters_) waiter->Wake();
  }
  // Grows with each WakeAll, for a thread that released the lock and was no waiter.
  [[nodiscard]] uint64_t wakes() const { return wakes_; }

  // --- Observers. `watch`: what `fd` is watched for by now, -1 if the observer is yet to be told.
  void Observe(ReadinessObserver* observer, int fd, short watch) {
    observers_.push_back({.observer = observer, .fd = fd, .watch = watch});
  }
  void Forget(ReadinessObserver* observer, int fd);
  [[nodiscard]] bool observed() const { return !observers_.empty(); }
  // Returns true if signals, or an observer, tell of each doorbell of a local link.
  [[nodiscard]] bool hears_doorbells() const {
    return has_owner_ || std::any_of(observers_.begin(), observers_.end(),
                                     [](const Observation& o) { return o.observer->HearsDoorbells(); });
  }
  // Returns true if no thread sleeps as a waiter.
  [[nodiscard]] bool unheard() const { return waiters_.empty(); }
  // Returns true if one observer, and no waiter, hears of a change.
  [[nodiscard]] bool heard_by_one() const { return observers_.size() == 1 && waiters_.empty(); }
  // After progress: the link is to be watched for `watch`. `changed`: something may be ready.
  void TellObservers(Session& session, short watch, bool changed);
  // Something may be ready, whatever the link is watched for.
  void TellChange() {
    for (const Observation& o : observers_) o.observer->OnChange(o.fd);
  }
  // The kernel reports the socket's readiness from here on.
  void TellPlain();
  // The socket is closed: sleepers look again, and no observer hears of the socket any more.
  void TellClosed() {
    observers_.clear();
    WakeAll();
  }
  void ForgetObservers() { observers_.clear(); }
  // In the child of fork: the threads that slept are the parent's.
  void ForgetWaiters() { waiters_.clear(); }
  // Returns true if neither a waiter nor an observer would hear of a change.
  [[nodiscard]] bool empty() const { return observers_.empty() && waiters_.empty(); }

 private:
  struct Observation {
    ReadinessObserver* observer;
    int fd;
    short watch;
  };

  std::vector<Waiter*> waiters_;
  std::vector<Observation> observers_;
  Edges seen_;
  uint64_t wakes_ = 0;
  uint64_t end_edge_ = 0;
  uint64_t room_edge_ = 0;
  bool has_owner_ = false;
  bool full_ = false;  // NoteRoom()
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_BOARD_H_
