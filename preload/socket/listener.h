// The SDP side of a listening socket: the SDP listener beside the conventional one, its registration with the
// port mapper, and the connections that came in over it.
//
// Who answers a connection request: the thread that calls accept; if none does for a while (kPatience), the
// helper thread, so that a busy or single-threaded server does not keep its clients waiting, as the kernel's
// backlog does for TCP.
//
// Processes may share a listener, by fork, exec or in a message (listener_shared.cc). Then what the helper of
// one has taken on waits in a queue that all of them have (common_queue.h), and so does what a thread that
// polls has taken on and not accepted within kPatience. Where a process cannot use that queue, its helper
// takes on one connection at a time, and none in a process that has shared the listener and not used it
// since: it would swallow connections that others wait for.
//
// Where an RDMA device has the listener's address, a KernelListener stands beside the SDP listener, for one
// process: a child of fork has the SDP listener alone, and a parent that has not used the listener by then
// closes its own KernelListener until it does.
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
  // Descriptors it may hold for connections nobody has accepted yet, whatever its backlog.
  static constexpr int kMostTakenOn = 256;
  // How often it looks for a port mapper daemon after its own ended.
  static constexpr Duration kRenewalInterval = std::chrono::seconds(1);

  // What was taken from the kernel: closed, which tells its peer, unless somebody has it (`fd` is -1 then)
  // before memory is wanted in vain.
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
  // `fd`: the conventional listener, listening, on which `options` were set before. Null if there can be no
  // SDP side: *refusal says why, and so does the log. `owner` outlives it.
  static std::unique_ptr<Listener> Open(Socket* owner, int fd, int domain, int backlog,
                                        const OptionLog& options, const ConnectionTuning& tuning,
                                        bool may_wait, Refusal* refusal);
  // One that another program had. Takes the descriptors over. Null: there is no descriptor left.
  static std::unique_ptr<Listener> TakeUp(Socket* owner, const Handover::Listener& from,
                                          const Handover::ListenerFds& fds);
  ~Listener();

  // Its descriptors and what else another program has to know, which gets the listener, and with it what
  // waits for accept. The lock is held (LockAllForFork). False: closed.
  bool HandOver(Handover::Listener* out, std::vector<int>* descriptors);

  // A connection over SDP whose handshake is complete; empty if there is none now. *fd is its descriptor with
  // `flags` applied, *peer the client's address, or empty of a kernel RNIC's connection. errno tells: EAGAIN,
  // or what stopped it (EMFILE, ...).
  std::unique_ptr<Session> Accept(int flags, int* fd, Address* peer);

  // For the statistics: what Accept returned came over a kernel RNIC.
  void CountAccepted(const Session& session);

  // Takes what waits at the SDP listener and shakes hands; where a request is incomplete, the helper does it.
  // ready_fd() tells when a connection is there, which sdp_fd()'s readiness does not (it may be a connection
  // that never says Hello). False if nothing could be taken.
  bool TakeOn();
  void SetBacklog(int backlog);
  // Of the connections whose handshake begins from now on.
  void SetTuning(const ConnectionTuning& tuning);
  // The conventional listener is closed: no more connections, those that wait are reset. The object stays
  // until its owner dies, since the helper may be at work in it.
  void Close() { End(/*for_all=*/false); }
  // It was shut down, which ends it in all processes that have it: those notice by IsShut. What a thread may
  // sleep on, or an epoll set have registered, stays open until nobody has the object.
  void ShutDown() { End(/*for_all=*/true); }
  // Another process has shut it down.
  [[nodiscard]] bool IsShut() const;
  // The owner of the application's descriptor `fd` is told by a signal of each connection
  // (socket/owner_signal.h); -1: nobody is.
  void SetSignals(int fd);
  // The application has called listen or accept or waited for this listener: the helper may take part.
  void NoteUse();
  // Before a fork, with all of them locked (LockAllForFork): the child will have them, too.
  static void ShareAll();
  // Behind it, in the child and in the parent.
  void NoteFork(bool in_child);
  // The process ends: what waits for its accept is for others, if there may be any, and nothing more is taken
  // on, for it would go with the process. Handshakes that are not finished end; peers of ours ask again.
  void LeaveToOthers();
  // The process is about to be confined (preload/confinement.h): the first for all its listeners, then, which
  // may wait until `give_up`, the other.
  void Bar();
  void PrepareConfinement(Time give_up);

  // No port mapper daemon knows this listener yet: its clients come by TCP. The application's next use of the
  // listener after a daemon has appeared has it registered; until then it costs no thread, and a look at the
  // clock for each accept.
  [[nodiscard]] bool dormant();
  // Returns whether a port mapper daemon knows this listener, where and since when, as far as this process
  // has heard.
  [[nodiscard]] Standing standing();

  [[nodiscard]] int sdp_fd() const { return sdp_fd_.load(); }
  [[nodiscard]] int ready_fd() const { return ready_fd_.load(); }
  // Readable while a connection waits that any process may accept which has the listener; -1: there is no
  // such thing.
  [[nodiscard]] int common_fd() const { return common_.fd(); }
  [[nodiscard]] const Address& sdp_address() const { return sdp_address_; }
  // Connections shaken hands with and waiting for Accept.
  [[nodiscard]] size_t waiting();
  // connect() to the SDP side of a listener of this process is under way: the thread that waits in connect
  // may be the one that would accept, so the helper answers at once.
  static void AnswerConnectTo(const Address& sdp_address);
  // bind() of a socket that may have to share its port with a listener's SDP side, as the connections
  // accepted there do. -1 and errno.
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
        session;  // shaken hands with; its HelloAck may still wait for the peer's first FPDU
    bool begun;   // at work for all (CommonQueue::BeginWork)
    bool finished = false;
  };
  struct Watch : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override;

    Listener* listener = nullptr;
    bool readable_seen = false;
    bool at_once = false;  // no patience with the next request
    bool rested = false;   // where another is likely to accept: not every request is worth a look
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
  // Hands were shaken by who waits for the listener, and the HelloAck waits for the peer's first FPDU: if
  // nobody accepts for a while, the peer must get it all the same. And where processes share the listener,
  // another one may accept then.
  struct Tending : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override;

    Listener* listener = nullptr;
  };

  // Connections that the library has taken on and nobody has accepted. A finished handshake the helper may
  // have a little longer.
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
  // Opens and registers what a kernel RNIC can do for it, if that is not done yet. Without the lock. False:
  // *why.
  bool OpenKernelSide(int conventional_fd, Duration limit, std::string* why);
  void CloseKernelSide();
  // KernelListenerOwner:
  Mutex& kernel_listener_mutex() override { return mutex_; }
  bool HasRoom() const override { return !full(); }
  void TakeOnFromRnic(std::unique_ptr<verbs::Connector> connector) override;
  Socket* owning_socket() override;
  // Nobody else is likely to wait for its connections.
  [[nodiscard]] bool first_hand() const { return used_ || !shared_; }
  [[nodiscard]] bool HelperMayAccept() const { return !closed_ && (first_hand() || common_.usable()); }
  // Takes what the SDP listener has; `shake_hands`: at once where the request is complete, else the helper
  // does it.
  bool AcceptAhead(bool shake_hands);
  bool PutIntoCommon(const Ready& ready) {
    return common_.Put(ready.session->Freeze(), ready.fd, ready.session->memory_fd(), ready.peer, ready.since,
                       ready.begun);
  }
  // Leaves it in the common queue if that is possible, else Keep()s it.
  void PushReady(Ready ready);
  // For this process.
  void Keep(Ready ready);
  // Those that were answered may have sent their first FPDU by now, and then come before all that connect
  // later.
  void AdvanceAnswered();
  // Ends the work in the common queue when nothing is left of what was begun.
  void SettleWork();
  void DropFinished();
  // The first of ready_; the first of the common queue. errno tells as for Accept.
  std::unique_ptr<Session> AcceptKept(int flags, int* fd, Address* peer);
  std::unique_ptr<Session> AcceptCommon(int flags, int* fd, Address* peer, Time* since);
  // True: a connection that waits for accept may go to another process as it is.
  static bool MayMove(const Session& session);
  // Such a one waits here for room in the common queue, and nobody who came later is to get there before it.
  [[nodiscard]] bool AwaitsRoom() const;
  // Puts those that have waited for `patience` into the common queue. When it is time to try again; kNever:
  // all is done that can be.
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
  std::deque<Ready> ready_;  // by this process alone; who has waited longest comes first
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
