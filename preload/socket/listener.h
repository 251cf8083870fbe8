// The SDP side of a listening socket: the SDP listener beside the conventional one, its registration with the
// port mapper, and the connections that came in over it.
//
// The thread that calls accept answers a connection request. If no thread does for a while (kPatience), the
// helper thread answers. So a busy or single-threaded server does not keep its clients waiting, as with the
// kernel's backlog for TCP.
//
// Processes may share a listener, by fork, exec or in a message (listener_shared.cc). Then what the helper of
// one has taken on waits in a queue that all of them have (common_queue.h). So does what a polling thread has
// taken on and not accepted within kPatience. Where a process cannot use that queue, its helper takes on one
// connection at a time. If the process has not used the listener since it was shared, its helper takes on
// none: others wait for these connections.
//
// Where an RDMA device has the listener's address, a KernelListener stands beside the SDP listener, for one
// process. A child of fork has the SDP listener alone. A parent that has not used the listener by then closes
// its own KernelListener until it does.
#ifndef SDP_PRELOAD_SOCKET_LISTENER_H_
#define SDP_PRELOAD_SOCKET_LISTENER_H_

#include <algorithm>
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "preload/critical.h"
#include "preload/socket/accept_handshake.h"
#include "preload/socket/address.h"
#include "preload/socket/background.h"
#include "preload/socket/common_queue.h"
#include "preload/socket/connection_tuning.h"
#include "preload/socket/handover.h"
#include "preload/socket/kernel_listener.h"
#include "preload/socket/option_log.h"
#include "preload/socket/registration.h"
#include "preload/stats_segment.h"

namespace sdp::preload {

class Listener final : private KernelListenerOwner {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(5);
  // The most descriptors for connections that no thread has accepted yet, whatever the backlog.
  static constexpr int kMostTakenOn = 256;
  // The time between two looks for a port mapper daemon, after the listener's own ended.
  static constexpr Duration kRenewalInterval = std::chrono::seconds(1);

  // Closes a descriptor that was taken from the kernel, which tells the peer. `fd` is -1 once another object
  // has the descriptor.
  struct Taken {
    explicit Taken(int taken, bool is_hidden = false) : fd(taken), hidden(is_hidden) {}
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken();
    int fd;
    bool hidden;
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
  [[nodiscard]] int ready_fd() const { return ready_fd_.load(); }
  // Returns a descriptor that is readable while a connection waits for any of the listener's processes; -1 if
  // there is none.
  [[nodiscard]] int common_fd() const { return common_.fd(); }
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
  struct Incoming : Background::Task {
    Incoming(Listener* listener, int fd, AcceptHandshake handshake, bool begun)
        : listener(listener), fd(fd), handshake(std::move(handshake)), begun(begun) {
      this->handshake.SetFd(fd);
    }
    Background::Wait Run(Time now) override;
    Background::Wait Advance(Time now);
    Background::Wait Continue(Time now);
    Socket* owner() override;

    Listener* listener;
    int fd;  // hidden
    AcceptHandshake handshake;
    std::unique_ptr<Session>
        session;  // past the handshake; its HelloAck may still wait for the peer's first FPDU
    bool begun;   // at work for all (CommonQueue::BeginWork)
    bool finished = false;
  };
  struct Watch : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override;

    Listener* listener = nullptr;
    bool readable_seen = false;
    bool at_once = false;  // no patience with the next request
    bool rested = false;   // skips every other request where another process is likely to accept
  };
  // The port mapper daemon ended: registers again until another one is there.
  struct Renewal : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override;

    std::optional<Background::Wait> RegisterAgain(int conventional_fd, Time now);

    Listener* listener = nullptr;
    bool was_registered = false;
  };
  struct Ready {
    int fd;  // hidden; becomes the application's
    std::unique_ptr<Session> session;
    Address peer;
    Time since;  // the handshake was complete: not later than the peer may have learnt of that
    bool begun;
    bool too_long = false;  // for the common queue
  };
  // Looks after connections that wait for accept. A HelloAck may wait for the peer's first FPDU: if no thread
  // accepts for a while, the peer must get it all the same. Where processes share the listener, another one
  // may accept then.
  struct Tending : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override;

    Listener* listener = nullptr;
  };

  // Returns how many connections the library has taken on and no thread has accepted. A finished handshake
  // that the helper still has does not count.
  [[nodiscard]] size_t in_stock() const {
    return ready_.size() + static_cast<size_t>(std::count_if(incoming_.begin(), incoming_.end(),
                                                             [](const auto& i) { return !i->finished; }));
  }
  [[nodiscard]] bool full() const { return in_stock() + (shared_ ? common_.size() : 0) >= backlog_; }

  Listener(Socket* owner, int domain, const OptionLog& options, const ConnectionTuning& tuning)
      : owner_(owner), domain_(domain), options_(options), tuning_(tuning) {
    watch_.listener = this;
    renewal_.listener = this;
    tending_.listener = this;
  }
  void End(bool for_all);
  bool MakeReadyFd();
  void Enlist();
  bool WakesUp();
  // Opens and registers the side on kernel RNICs, if that is not done yet. Called without the lock. Returns
  // false with *why on failure.
  bool OpenKernelSide(int conventional_fd, Duration limit, std::string* why);
  void CloseKernelSide();
  // KernelListenerOwner:
  Mutex& kernel_listener_mutex() override { return mutex_; }
  bool HasRoom() const override { return !full(); }
  void TakeOnFromRnic(std::unique_ptr<verbs::Connector> connector) override;
  Socket* owning_socket() override;
  // Returns true if no other process is likely to wait for its connections.
  [[nodiscard]] bool first_hand() const { return used_ || !shared_; }
  [[nodiscard]] bool HelperMayAccept() const { return !closed_ && (first_hand() || common_.usable()); }
  // Takes what the SDP listener has. `shake_hands`: does the handshake at once where the request is complete;
  // else the helper does it.
  bool AcceptAhead(bool shake_hands);
  bool PutIntoCommon(const Ready& ready) {
    return common_.Put(ready.session->Freeze(), ready.fd, ready.session->memory_fd(), ready.peer, ready.since,
                       ready.begun);
  }
  // Puts the connection into the common queue if that is possible, else calls Keep().
  void PushReady(Ready ready);
  // Keeps the connection for this process.
  void Keep(Ready ready);
  // Advances answered connections. One whose peer has sent its first FPDU by now comes before all that
  // connect later.
  void AdvanceAnswered();
  // Ends the work in the common queue when nothing is left of what was begun.
  void SettleWork();
  void DropFinished();
  // Return the first of ready_, and the first of the common queue; errno tells as for Accept.
  std::unique_ptr<Session> AcceptKept(int flags, int* fd, Address* peer);
  std::unique_ptr<Session> AcceptCommon(int flags, int* fd, Address* peer, Time* since);
  // Returns true if a connection that waits for accept may go to another process as it is.
  static bool MayMove(const Session& session);
  // Returns true if such a connection waits for room in the common queue. No later one is to get there first.
  [[nodiscard]] bool AwaitsRoom() const;
  // Puts those that have waited for `patience` into the common queue. Returns when it is time to try again;
  // kNever if all is done that can be.
  Time MoveToCommon(Time now, Duration patience);
  void Share();

  Socket* const owner_;
  const int domain_;
  const OptionLog options_;  // for connections that do not inherit them
  ConnectionTuning tuning_;
  Mutex mutex_;
  std::atomic<int> sdp_fd_{-1};
  std::atomic<int> ready_fd_{-1};
  std::atomic<int> registration_fd_{-1};
  Standing standing_;
  std::atomic<int> signal_fd_{-1};  // of the conventional listener's open file, which knows the owner
  int signal_number_ = -1;          // the application's
  Address sdp_address_;
  uint16_t service_ = 0;  // the conventional port; 0: another program's listener, inherited
  Watch watch_;
  Renewal renewal_;
  Tending tending_;
  std::vector<std::unique_ptr<KernelListener>> kernel_;
  std::vector<std::unique_ptr<KernelListener>> kernel_gone_;  // the helper may still have them
  bool kernel_looked_ = false;                                // for addresses of kernel RNICs
  std::list<std::unique_ptr<Incoming>> incoming_;
  std::deque<Ready> ready_;  // for this process alone; the one that has waited longest comes first
  CommonQueue common_;       // empty until the listener is shared
  size_t backlog_ = 1;       // connections the library takes on before the application asks for them
  bool closed_ = false;
  bool leaving_ = false;
  bool used_ = false;
  bool at_it_ = false;  // the program has taken a connection since the helper looked
  bool dormant_ = false;
  Time next_look_{};     // for a daemon
  Time next_wait_{};     // for a peer's answer, in accept
  bool shared_ = false;  // other processes have, or had, the listener, too
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LISTENER_H_
