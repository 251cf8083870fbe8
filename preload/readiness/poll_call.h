// One poll over SDP sockets, listeners, epoll descriptors with a set, and other descriptors; select uses it
// too. Each round looks at every SDP socket first. Then it asks the kernel about the rest, and sleeps if
// nothing is ready. A PollCall belongs to one thread's call.
#ifndef SDP_PRELOAD_READINESS_POLL_CALL_H_
#define SDP_PRELOAD_READINESS_POLL_CALL_H_

#include <poll.h>
#include <signal.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "preload/readiness/look.h"
#include "preload/readiness/nested.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/socket/waiter.h"
#include "preload/socket/watch.h"

namespace sdp::preload {

// Returns the kernel's answer if epoll descriptors without a set are all that concerns the library. Returns
// nothing if there is more, or if a set has come meanwhile. Allocates nothing: the process may have no TCP
// sockets.
template <typename IsOurs, typename Wait>
std::optional<int> WaitWithoutSets(int count, IsOurs is_ours, Wait wait) {
  if (HaveEpollSets()) return std::nullopt;
  for (int i = 0; i < count; ++i) {
    if (is_ours(i)) return std::nullopt;
  }
  int result;
  {
    const PlainSleep sleep;
    if (HaveEpollSets()) return std::nullopt;
    result = wait();
  }
  if (result >= 0 && HaveEpollSets()) return std::nullopt;
  return result;
}

// A set whose epoll descriptor this call may sleep for.
class WatchedSet {
 public:
  explicit WatchedSet(EpollSetRef set) : set_(std::move(set)) { set_->AddSleeper(); }
  WatchedSet(WatchedSet&&) noexcept = default;
  ~WatchedSet() {
    if (set_) set_->RemoveSleeper();
  }
  [[nodiscard]] EpollSet* get() const { return set_.operator->(); }

 private:
  EpollSetRef set_;
};

class PollCall {
 public:
  PollCall(pollfd* fds, size_t count) : fds_(fds), count_(count) {}
  ~PollCall() { Unregister(); }
  PollCall(const PollCall&) = delete;
  PollCall& operator=(const PollCall&) = delete;

  // A cancellation ends the call before it has done anything, or in its sleep.
  int Run(Time deadline, const sigset_t* mask);

 private:
  // How one entry of the application's array appears in the kernel's array.
  struct Part {
    size_t index;             // in the application's array
    SocketRef socket;         // of an SDP socket or listener
    bool link = false;        // the kernel's entry is an SDP link: its revents only mean "look"
    Watch::Readiness seen{};  // of a link
    bool came = false;        // something of it that the call waits for ended the sleep
    bool queue = false;       // the entry is a listener's SDP side: POLLIN there means POLLIN and POLLRDNORM
    bool request = false;     // the entry is the SDP listener itself: a peer connects
    bool waits = false;       // the kernel need not be asked each time: a link in memory, or a listener
  };

  // Looks at the kernel's answer for a while, before a sleep, if links ask for it. kFound: kernel_ has it.
  LookEnd LookAtKernel(Time deadline, const sigset_t* mask);
  int AskKernel(const timespec* timeout, const sigset_t* mask);
  int Sleep(const timespec* timeout, const sigset_t* mask);
  // Before a look at memory: asks the kernel about the other entries, unless KernelMayWait().
  bool KernelKnowsMore();
  // With something to report, or before a look at memory: returns true if the kernel need not be asked about
  // the other entries. They are links in memory, which Prepare() has looked at, and listeners, and the kernel
  // was asked a moment ago.
  [[nodiscard]] bool KernelMayWait() const;
  // Looks at every SDP socket. Returns the number of entries that are ready without the kernel's answer.
  int Prepare();
  void Clear();
  // Return whether entry `i` is ready.
  bool AddSocket(size_t i, SocketRef socket);
  bool AddConnection(size_t i, SocketRef socket, const Watch::Readiness& readiness);
  bool SetReady(size_t i, const Watch::Readiness& readiness);
  void AddListener(size_t i, const SocketRef& socket, const Watch::Readiness& readiness);
  bool AddPlain(size_t i);
  // Puts the kernel's answer into the application's array. Returns the number of entries that became ready.
  int Collect(bool slept);
  // Return the application's revents for the kernel's entry.
  short CollectLink(Part& part, short revents);
  short CollectPlain(const Part& part, const pollfd& kernel);
  void NoteSlept(Duration lasted);
  void Register();
  void Unregister();
  bool ChangedMeanwhile();
  [[nodiscard]] Time Bounded(Time deadline) const;

  pollfd* const fds_;
  const size_t count_;
  absl::InlinedVector<pollfd, 16> kernel_;
  absl::InlinedVector<Part, 16> parts_;
  absl::InlinedVector<WatchedSet, 2> watched_sets_;
  absl::InlinedVector<PlainSleep, 2> plain_sleeps_;  // for epoll descriptors without a set
  DeviceLook look_;
  Duration look_at_kernel_{};  // how long; zero: not at all
  bool any_link_ = false;      // among parts_
  bool any_looked_ = false;    // Readiness::looked of one of them
  Time slept_at_{};
  Waiter* waiter_ = nullptr;      // while the links know this thread as a waiter
  bool hears_bell_ = false;       // the waiter's bell is in kernel_, before the waiter
  bool woken_by_looked_ = false;  // whether one of those sockets ended the last sleep
  bool unwatched_ = false;
  bool shared_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_POLL_CALL_H_
