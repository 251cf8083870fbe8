// What the library adds to one of the application's epoll descriptors.
//
// The application's epoll descriptor stays a kernel epoll. Everything but SDP sockets is registered there as
// usual, so the descriptor still works when it is shared, nested or inherited. SDP sockets are registered in
// an inner epoll descriptor. The inner descriptor is itself registered in the application's, with a cookie
// that no program can use. When a wait reports the cookie, the inner descriptor says which links have
// something. The sockets take it, and the wait reports what the application asked for.
//
//   application's epoll ─┬─ its other descriptors
//                        ├─ conventional listeners, and the queues of their SDP connections
//                        └─ inner epoll (cookie) ─┬─ links of SDP sockets
//                                                 ├─ SDP listeners: a peer connects, perhaps without a Hello
//                                                 └─ kick: an eventfd; readiness from another thread's call
//
// Registrations holds the SDP sockets, ListenerRegistrations the listeners; Kick wakes other threads, and
// each wait has a DeviceSpin. This class owns the inner epoll and the lock, and it fixes the order in which a
// wait visits the parts.
//
// Locks: `mutex_` comes last in every lock order. The set calls sockets without it.
#ifndef SDP_PRELOAD_READINESS_EPOLL_SET_H_
#define SDP_PRELOAD_READINESS_EPOLL_SET_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "preload/config.h"
#include "preload/critical.h"
#include "preload/readiness/kick.h"
#include "preload/readiness/listener_registrations.h"
#include "preload/readiness/look.h"
#include "preload/readiness/registrations.h"
#include "preload/socket/poll_budget.h"
#include "preload/socket/watch.h"

namespace sdp::preload {

class EpollSet final : public ReadinessObserver {
 public:
  // Makes the set serve the epoll descriptor `epfd`. Returns false with errno if `epfd` is no epoll
  // descriptor or if no descriptor is left.
  bool Open(int epfd);
  // The epoll descriptor is closed for good. Detaches the set from every socket; Open() may then be called
  // again.
  void Close();

  // The data of the inner descriptor's event: an address inside this library, which cannot be the
  // application's data. Sets are never freed.
  [[nodiscard]] uint64_t Cookie() const { return reinterpret_cast<uint64_t>(this); }
  // See ListenerRegistrations::Merge.
  int MergeListeners(epoll_event* events, int first, int end) { return listeners_.Merge(events, first, end); }
  // Returns whether `epfd` is a duplicate of the served descriptor, made without the library's knowledge.
  bool Serves(int epfd);
  // The group of the served descriptor: see plain_sleep.h.
  [[nodiscard]] uint32_t group() const { return group_; }
  // The number in `epfd_` is closed; `epfd`, a duplicate, takes its place.
  void SetNumber(int epfd);

  // Returns whether a managed socket is registered with this data.
  [[nodiscard]] bool HasData(uint64_t data);
  // EPOLL_CTL_* for a managed socket.
  int Control(int epfd, int operation, int fd, epoll_event* event);
  // The application has closed the number `fd`.
  void Forget(int fd);
  int Wait(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask);
  // The set is, or may be, inside another epoll set. From now on the kernel calls it readable whenever one of
  // its sockets may have something to report.
  void SetNested();
  // Call around a poll that sleeps on the epoll descriptor itself.
  void AddSleeper() { kick_.AddSleeper(); }
  void RemoveSleeper() { kick_.RemoveSleeper(); }
  // For poll on the epoll descriptor itself: returns whether a wait would report an SDP socket at once.
  bool ProgressAndCheck();
  // Returns whether several processes hold one of the set's connections. A thread that polls the epoll
  // descriptor then looks again soon.
  [[nodiscard]] bool HasShared() const { return sockets_.HasShared(); }

  // ReadinessObserver; the caller holds the socket's lock.
  void OnChange(int fd) override;
  void OnWatch(int fd, int link_fd, short events, Session& session) override;
  void OnPlain(int fd) override;
  [[nodiscard]] bool HearsDoorbells() const override { return kick_.nested(); }

  // The number of threads that are in a call on the set; see EpollSetRef.
  std::atomic<int> users{0};

  void LockForFork() { mutex_.lock(); }
  // Call in the child of a fork, with the lock held. The inner epoll is the parent's too, so its
  // registrations are left to the parent.
  void DisownAfterFork() {
    sockets_.Disown();
    listeners_.Disown();
    bell_.Close();
    shares_inner_ = true;  // what is in it wakes both processes, and one of them in vain
  }
  void UnlockAfterFork() { mutex_.unlock(); }

 private:
  class WaitCall;  // epoll_wait.cc
  using Asked = Registrations::Asked;
  using Entry = Registrations::Entry;

  // Marks the kick in the inner epoll, where other entries carry descriptor numbers.
  static constexpr uint64_t kKickTag = ~uint64_t{0};

  // Marks the bell there.
  static constexpr uint64_t kBellTag = uint64_t{1} << 63;

  // Returns the name of the set's bell; null if it has none.
  const verbs::BellName* OpenBell();
  bool TryToOpen(int epfd);
  int Add(int fd, StreamSocket* socket, const epoll_event& event);
  int Modify(int fd, const epoll_event& event);
  int Delete(int fd);
  // Ends the registration `key`, even if something else keeps its socket open.
  void Drop(int key);
  void KeepForDuplicate(int duplicate, SocketRef socket, const Asked& asked);
  // A registered socket has become a listener.
  void OnListen(int key, const Watch::Readiness& readiness);
  // Lets the links that have something make progress, and makes their sockets candidates. Returns whether the
  // kick was given, and takes it only if `take_kick`.
  bool ProgressLinks(bool take_kick);
  // Lets those links make progress whose peers have rung the bell.
  void ProgressRung();
  // Returns the socket that owns a link in the inner epoll, and makes that socket a candidate.
  // `polled`: whether this thread alone waits, and the next waits look at the link.
  SocketRef SocketOfLink(int key, bool* polled);
  // No local link is warm any more, and the sockets take their doorbells.
  void CoolDown();
  bool HasCandidates();
  bool AnyHolds();  // looks at the candidates and keeps them
  // See Registrations::LookAtShared.
  Time LookAtShared();

  int epfd_ = -1;  // a number of the served descriptor, for registrations made outside a call
  uint32_t group_ = 0;
  std::atomic<int> inner_{-1};
  std::atomic<bool> kernel_turn_{false};
  std::atomic<Time> kernel_asked_{Time{}};  // while local links keep the waits busy, or fill the answers
  Mutex mutex_;
  Registrations sockets_{inner_};
  ListenerRegistrations listeners_{mutex_, inner_};
  Kick kick_;
  std::atomic<bool> shares_inner_{false};
  iwarp::Bell bell_;    // rung by the peers of local links that were busy until a wait began to sleep
  LookTurn look_turn_;  // which thread looks before it sleeps
  PollBudget look_budget_{config().poll};  // for the embedded RNIC's links
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_EPOLL_SET_H_
