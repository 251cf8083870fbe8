// The SDP side of a listening socket: the SDP listener beside the conventional one, its registration with the
// port mapper, and the connections that came in over it.
//
// The thread that calls accept answers a connection request. If no thread does for a while (kPatience), the
// helper thread answers. So a busy or single-threaded server does not keep its clients waiting, as with the
// kernel's backlog for TCP.
//
// Processes may share a listener, by fork, exec or in a message (listener_shared.cc). The helper of each
// takes connections on for all of them (arrivals.h). Where a process cannot use the common queue, its helper
// takes on one connection at a time. If the process has not used the listener since it was shared, its helper
// takes on none: others wait for these connections.
//
// A KernelSide stands beside the SDP listener, for one process. A child of fork has the SDP listener alone. A
// parent that has not used the listener by then closes its own KernelSide until it does.
#ifndef SDP_PRELOAD_SOCKET_LISTENER_H_
#define SDP_PRELOAD_SOCKET_LISTENER_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "preload/critical.h"
#include "preload/socket/address.h"
#include "preload/socket/arrivals.h"
#include "preload/socket/background.h"
#include "preload/socket/connection_tuning.h"
#include "preload/socket/handover.h"
#include "preload/socket/kernel_side.h"
#include "preload/socket/option_log.h"
#include "preload/socket/registration.h"
#include "preload/stats_segment.h"

namespace sdp::preload {

class Listener final : private KernelListenerOwner {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(5);
  // The time between two looks for a port mapper daemon, after the listener's own ended.
  static constexpr Duration kRenewalInterval = std::chrono::seconds(1);

  // Closes a descriptor that was taken from the kernel, which tells the peer. `fd` is -1 once another object
  // has the descriptor.
  struct Taken {
    explicit Taken(int taken) : fd(taken) {}
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken();
    int fd;
  };

  // Why there can be no SDP side.
  struct Refusal {
    stats::FallbackReason reason = stats::FallbackReason::kNotRegistered;
    std::string text;
  };
  // `fd`: the conventional listener, listening, on which `options` were set before. Returns null if there can
  // be no SDP side: *refusal says why, and so does the log. `owner` outlives it.
  static std::unique_ptr<Listener> Open(Socket* owner, int fd, int domain, int backlog,
                                        const OptionLog& options, const ConnectionTuning& tuning,
                                        bool may_wait, Refusal* refusal);
  // Takes over the listener of another program, with its descriptors. Returns null if no descriptor is left.
  static std::unique_ptr<Listener> TakeUp(Socket* owner, const Handover::Listener& from,
                                          const Handover::ListenerFds& fds);
  ~Listener();

  // Gives the descriptors, and what else another program has to know to take over the listener and what waits
  // for accept. The lock is held (LockAllForFork). Returns false if the listener is closed.
  bool HandOver(Handover::Listener* out, std::vector<int>* descriptors);

  // Returns a connection over SDP whose handshake is complete; null if there is none now. Then errno is
  // EAGAIN, or says what stopped it (EMFILE, ...). *fd is its descriptor with `flags` applied. *peer is the
  // client's address, empty for a kernel RNIC's connection.
  std::unique_ptr<Session> Accept(int flags, int* fd, Address* peer);

  // For the statistics: what Accept returned came over a kernel RNIC.
  void CountAccepted(const Session& session);

  // Takes what waits at the SDP listener and does the handshake; where a request is incomplete, the helper
  // does it. When ready_fd() is readable, a connection is there. sdp_fd()'s readiness does not tell that: its
  // peer may never say Hello. Returns false if nothing could be taken.
  bool TakeOn();
  void SetBacklog(int backlog);
  // For the connections whose handshake begins from now on.
  void SetTuning(const ConnectionTuning& tuning);
  // The conventional listener is closed: no more connections come, and those that wait are reset. The object
  // stays until its owner dies, since the helper may be at work in it.
  void Close() { End(/*for_all=*/false); }
  // Ends the listener in all processes that have it, which notice by IsShut. Descriptors that a thread may
  // sleep on, or that an epoll set has registered, stay open as long as the object.
  void ShutDown() { End(/*for_all=*/true); }
  // Returns true if a process has shut the listener down.
  [[nodiscard]] bool IsShut() const;
  // Has the owner of the application's descriptor `fd` get a signal for each connection
  // (socket/owner_signal.h); -1 ends that.
  void SetSignals(int fd);
  // The application has called listen or accept or waited for this listener: the helper may take part.
  void NoteUse();
  // Before a fork, with all listeners locked (LockAllForFork): the child will have them, too.
  static void ShareAll();
  // After the fork, in the child and in the parent.
  void NoteFork(bool in_child);
  // The process ends: leaves to others what waits for accept. Takes nothing more on, since that would go with
  // the process. Ends handshakes that are not finished; peers with this library ask again.
  void LeaveToOthers();
  // The process is about to be confined (preload/confinement.h): first Bar() for all its listeners, then
  // PrepareConfinement(), which may wait until `give_up`.
  void Bar();
  void PrepareConfinement(Time give_up);

  // Returns true while no port mapper daemon has known this listener yet: its clients come by TCP. Once a
  // daemon has appeared, the application's next use registers the listener. Until then it costs no thread,
  // and a look at the clock for each accept.
  [[nodiscard]] bool dormant();
  // Returns whether a port mapper daemon knows this listener, where and since when, as far as this process
  // has heard.
  [[nodiscard]] Standing standing();

  [[nodiscard]] int sdp_fd() const { return sdp_fd_.load(); }
  [[nodiscard]] int ready_fd() const { return arrivals_.fd(); }
  // Returns a descriptor that is readable while a connection waits for any of the listener's processes; -1 if
  // there is none.
  [[nodiscard]] int common_fd() const { return arrivals_.common().fd(); }
  [[nodiscard]] const Address& sdp_address() const { return sdp_address_; }
  // Returns how many connections are past the handshake and wait for Accept.
  [[nodiscard]] size_t waiting();
  // Has the helper answer at once a connect() to a listener of this process: the thread that waits in connect
  // may be the one that would accept.
  static void AnswerConnectTo(const Address& sdp_address);
  // Binds a socket that may have to share its port with a listener's SDP side, as the connections accepted
  // there do. Returns -1 with errno on failure.
  static int BindBeside(int fd, const Address& address);
  // Around fork(): the list of listeners, and each listener.
  static void LockAllForFork();
  static void UnlockAllAfterFork();

 private:
  struct Watch : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override { return listener->owner_; }

    Listener* listener = nullptr;
    bool readable_seen = false;
    bool at_once = false;  // no patience with the next request
    bool rested = false;   // skips every other request where another process is likely to accept
  };
  // The port mapper daemon ended: registers again until another one is there.
  struct Renewal : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override { return listener->owner_; }

    std::optional<Background::Wait> RegisterAgain(int conventional_fd, Time now);

    Listener* listener = nullptr;
    bool was_registered = false;
  };
  Listener(Socket* owner, int domain, const OptionLog& options, const ConnectionTuning& tuning)
      : owner_(owner),
        domain_(domain),
        options_(options),
        tuning_(tuning),
        arrivals_(owner, &mutex_, kPatience) {
    watch_.listener = this;
    renewal_.listener = this;
  }
  void End(bool for_all);
  void Enlist();
  // Opens and registers the side on kernel RNICs, if that is not done yet. Called without the lock. Returns
  // false with *why on failure.
  bool OpenKernelSide(int conventional_fd, Duration limit, std::string* why);
  // KernelListenerOwner:
  Mutex& kernel_listener_mutex() override { return mutex_; }
  bool HasRoom() const override { return !arrivals_.full(); }
  void TakeOnFromRnic(std::unique_ptr<verbs::Connector> connector) override;
  Socket* owning_socket() override { return owner_; }
  // Returns true if no other process is likely to wait for its connections.
  [[nodiscard]] bool first_hand() const { return used_ || !arrivals_.shared(); }
  [[nodiscard]] bool HelperMayAccept() const {
    return !closed_ && (first_hand() || arrivals_.common().usable());
  }
  // Takes what the SDP listener has. `shake_hands`: does the handshake at once where the request is complete;
  // else the helper does it.
  bool AcceptAhead(bool shake_hands);
  void Share();

  Socket* const owner_;
  const int domain_;
  const OptionLog options_;  // for connections that do not inherit them
  ConnectionTuning tuning_;
  Mutex mutex_;
  std::atomic<int> sdp_fd_{-1};
  Enrolment enrolment_;
  Address sdp_address_;
  uint16_t service_ = 0;  // the conventional port; 0: another program's listener, inherited
  Watch watch_;
  Renewal renewal_;
  KernelSide kernel_{this};
  Arrivals arrivals_;
  bool closed_ = false;
  bool leaving_ = false;
  bool used_ = false;
  bool at_it_ = false;  // the program has taken a connection since the helper looked
  Time next_wait_{};    // for a peer's answer, in accept
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LISTENER_H_
