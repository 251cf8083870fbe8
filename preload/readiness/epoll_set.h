// What the library adds to one of the application's epoll descriptors.
//
// The application's epoll descriptor stays a kernel epoll: whatever is not an SDP socket is registered there
// as ever, so it works shared, nested and inherited. SDP sockets are registered in an inner epoll descriptor,
// which is itself registered in the application's with a cookie no program can use. When the cookie comes up,
// the inner descriptor says which links have something; the sockets take it, and what the application asked
// to hear of is reported.
//
//   application's epoll ─┬─ its other descriptors
//                        ├─ conventional listeners and what tells of their SDP connections
//                        └─ inner epoll (cookie) ─┬─ links of SDP sockets
//                                                 ├─ SDP listeners: a connection, which may never say Hello
//                                                 └─ kick: an eventfd: readiness from another thread's call
//
// The parts are Registrations (SDP sockets), ListenerRegistrations, Kick, and DeviceSpin for each wait; this
// class has the inner epoll, the lock, and the order in which a wait goes through the parts.
//
// Locks: `mutex_` is the last in every order; sockets are called without it.
#ifndef SDP_PRELOAD_READINESS_EPOLL_SET_H_
#define SDP_PRELOAD_READINESS_EPOLL_SET_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "preload/critical.h"
#include "preload/readiness/kick.h"
#include "preload/readiness/listener_registrations.h"
#include "preload/readiness/look.h"
#include "preload/readiness/registrations.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class EpollSet final : public ReadinessObserver {
 public:
  // Makes the set serve the epoll descriptor `epfd`; false with errno if it is none, or no descriptor is
  // left.
  bool Open(int epfd);
  // The epoll descriptor is closed for good: detaches from every socket, and may be opened again for another.
  void Close();

  // What an event of the inner descriptor carries: an address of this library's, which no data of the
  // application's is. Sets live for ever.
  [[nodiscard]] uint64_t Cookie() const { return reinterpret_cast<uint64_t>(this); }
  // See ListenerRegistrations::Merge.
  int MergeListeners(epoll_event* events, int first, int end) { return listeners_.Merge(events, first, end); }
  // Whether `epfd` is a duplicate, made behind our back, of the descriptor it serves.
  bool Serves(int epfd);
  // Of its descriptor: see plain_sleep.h.
  [[nodiscard]] uint32_t group() const { return group_; }
  // The number it was known by is closed; it is now to be known by `epfd`, a duplicate.
  void SetNumber(int epfd);

  // A managed socket is registered with this data.
  [[nodiscard]] bool HasData(uint64_t data);
  // EPOLL_CTL_* of a managed socket.
  int Control(int epfd, int operation, int fd, epoll_event* event);
  // The application has closed the number `fd`.
  void Forget(int fd);
  int Wait(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask);
  // It is, or may be, in another epoll set: from now on it is readable to the kernel whenever there may be
  // something of ours to report.
  void SetNested();
  // While a thread sleeps in poll for the epoll descriptor itself.
  void AddSleeper() { kick_.AddSleeper(); }
  void RemoveSleeper() { kick_.RemoveSleeper(); }
  // For poll on the epoll descriptor itself: whether a wait would report something of ours at once.
  bool ProgressAndCheck();
  // Several processes hold a connection in it: a thread that sleeps in poll for the epoll descriptor looks
  // again soon.
  [[nodiscard]] bool HasShared() const { return sockets_.HasShared(); }

  // ReadinessObserver, with the socket's lock held.
  void OnChange(int fd) override;
  void OnWatch(int fd, int link_fd, short events) override;
  void OnPlain(int fd) override;

  // Threads that are in a call on the set; see EpollSetRef.
  std::atomic<int> users{0};

  void LockForFork() { mutex_.lock(); }
  // In the child, locked: the inner epoll is the parent's too, and its registrations are the parent's
  // business.
  void DisownAfterFork() { sockets_.Disown(); }
  void UnlockAfterFork() { mutex_.unlock(); }

 private:
  class WaitCall;  // epoll_wait.cc
  using Asked = Registrations::Asked;
  using Entry = Registrations::Entry;

  // What the kick is marked with in the inner epoll, beside descriptor numbers.
  static constexpr uint64_t kKickTag = ~uint64_t{0};

  bool TryToOpen(int epfd);
  int Add(int fd, StreamSocket* socket, const epoll_event& event);
  int Modify(int fd, const epoll_event& event);
  int Delete(int fd);
  // The registration `key` is over, whatever keeps its socket open.
  void Drop(int key);
  void KeepForDuplicate(int duplicate, SocketRef socket, const Asked& asked);
  // A registered socket listens now.
  void OnListen(int key, const StreamSocket::Readiness& readiness);
  // Lets the links that have something make progress: their sockets become candidates. Returns whether there
  // is a kick; it is taken in only on demand.
  bool ProgressLinks(bool take_kick);
  // Returns the socket that a link in the inner epoll belongs to, which becomes a candidate.
  SocketRef SocketOfLink(int key);
  bool HasCandidates();
  bool AnyHolds();  // of the candidates, which they stay
  // See Registrations::LookAtShared.
  Time LookAtShared();

  int epfd_ = -1;  // a number it is known by; for registrations made outside a call on it
  uint32_t group_ = 0;
  std::atomic<int> inner_{-1};
  std::atomic<bool> kernel_turn_{false};
  Mutex mutex_;
  Registrations sockets_{inner_};
  ListenerRegistrations listeners_{mutex_, inner_};
  Kick kick_;
  LookTurn look_turn_;  // which thread looks at kernel RNICs
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_EPOLL_SET_H_
