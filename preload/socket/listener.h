// The SDP side of a listening socket: the SDP listener beside the conventional one, its registration with the port mapper, and the
// connections that came in over it.
//
// Who answers a connection request: the thread that calls accept; if none does for a while (kPatience), the helper thread, so that a
// busy or single-threaded server does not keep its clients waiting, as the kernel's backlog does for TCP. The helper leaves the
// listener alone in a process that has forked and never accepted from it: such a process (a master) would swallow connections
// that its workers wait for.
//
// Where an RDMA device has the listener's address, a KernelListener stands beside the SDP listener, for one process: a child of fork has the
// SDP listener alone, and a parent that has not used the listener by then closes its own KernelListener until it does.
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
#include "preload/socket/handover.h"
#include "preload/socket/kernel_listener.h"
#include "preload/socket/option_log.h"
#include "preload/stats_segment.h"

namespace sdp::preload {

class StreamSocket;

class Listener final : private KernelListenerOwner {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(5);
  // How often it looks for a port mapper daemon after its own ended.
  static constexpr Duration kRenewalInterval = std::chrono::seconds(1);

  // Why there can be no SDP side.
  struct Refusal {
    stats::FallbackReason reason = stats::FallbackReason::kNotRegistered;
    std::string text;
  };
  // `fd`: the conventional listener, listening, on which `options` were set before. Null if there can be no SDP side: *refusal says why, and so does the log. `owner`
  // outlives it.
  static std::unique_ptr<Listener> Open(StreamSocket* owner, int fd, int domain, int backlog, const OptionLog& options, bool may_wait,
                                        Refusal* refusal);
  // One that another program had. Takes both descriptors over; `registration_fd` may be -1. Null: there is no descriptor left.
  static std::unique_ptr<Listener> TakeUp(StreamSocket* owner, const Handover::Listener& from, int sdp_fd, int registration_fd);
  ~Listener();

  // Its descriptors and what else another program has to know, which gets the listener. The lock is held (LockAllForFork). False: closed.
  bool HandOver(Handover::Listener* out, std::vector<int>* descriptors) const;

  // A connection over SDP, shaken hands with; empty if there is none now. *fd is its descriptor with `flags` applied.
  // errno tells: EAGAIN, or what stopped it (EMFILE, ...).
  std::unique_ptr<Session> Accept(int flags, int* fd);

  // Takes what waits at the SDP listener and shakes hands; where a request is incomplete, the helper does it. ready_fd() tells when a
  // connection is there, which sdp_fd()'s readiness does not (it may be a connection that never says Hello). False if nothing could be taken.
  bool TakeOn();
  void SetBacklog(int backlog);
  // The conventional listener is closed: no more connections, those that wait are reset. The object stays until its owner dies,
  // since the helper may be at work in it.
  void Close();
  // The owner of the application's descriptor `fd` is told by a signal of each connection (socket/owner_signal.h); -1: nobody is.
  void SetSignals(int fd);
  // The application has called listen or accept or waited for this listener: the helper may take part.
  void NoteUse();
  // In the child of a fork, and in the parent: other processes may wait for the same connections.
  void NoteFork(bool in_child);

  // No port mapper daemon knows this listener yet: its clients come by TCP. The application's next use of the listener after a daemon
  // has appeared has it registered; until then it costs no thread, and a look at the clock for each accept.
  [[nodiscard]] bool dormant();

  [[nodiscard]] int sdp_fd() const { return sdp_fd_.load(); }
  [[nodiscard]] int ready_fd() const { return ready_fd_.load(); }
  [[nodiscard]] const Address& sdp_address() const { return sdp_address_; }
  // Connections shaken hands with and waiting for Accept.
  [[nodiscard]] size_t waiting();
  // connect() to the SDP side of a listener of this process is under way: the thread that waits in connect may be the one that would
  // accept, so the helper answers at once.
  static void AnswerConnectTo(const Address& sdp_address);
  // Around fork(): the list of listeners, and each listener.
  static void LockAllForFork();
  static void UnlockAllAfterFork();

 private:
  struct Incoming : Background::Task {
    Incoming(Listener* listener, int fd, AcceptHandshake handshake)
        : listener(listener), fd(fd), handshake(std::move(handshake)) {
      this->handshake.SetFd(fd);
    }
    Background::Wait Run(Time now) override;
    Socket* owner() override;

    Listener* listener;
    int fd;  // hidden
    AcceptHandshake handshake;
    std::unique_ptr<Session> session;  // shaken hands with; its HelloAck may still wait for the peer's first FPDU
    Time expires = kNever;
    bool finished = false;
  };
  struct Watch : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override;

    Listener* listener = nullptr;
    bool readable_seen = false;
    bool at_once = false;  // no patience with the next request
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
    Time expires;  // how long its HelloAck may wait for the peer's first FPDU
  };
  // Hands were shaken by who waits for the listener, and the HelloAck waits for the peer's first FPDU: if nobody accepts for a while, the
  // peer must get it all the same.
  struct Tending : Background::Task {
    Background::Wait Run(Time now) override;
    Socket* owner() override;

    Listener* listener = nullptr;
  };

  // Connections that the library has taken on and nobody has accepted. A finished handshake the helper may have a little longer.
  [[nodiscard]] size_t in_stock() const {
    return ready_.size() + static_cast<size_t>(std::count_if(incoming_.begin(), incoming_.end(), [](const auto& i) { return !i->finished; }));
  }
  [[nodiscard]] bool full() const { return in_stock() >= backlog_; }

  Listener(StreamSocket* owner, int domain, const OptionLog& options) : owner_(owner), domain_(domain), options_(options) {
    watch_.listener = this;
    renewal_.listener = this;
    tending_.listener = this;
  }
  bool MakeReadyFd();
  void Enlist();
  bool WakesUp();
  // Opens and registers what a kernel RNIC can do for it, if that is not done yet. Without the lock. False: *why.
  bool OpenKernelSide(int conventional_fd, Duration limit, std::string* why);
  void CloseKernelSide();
  // KernelListenerOwner:
  Mutex& kernel_listener_mutex() override { return mutex_; }
  bool HasRoom() const override { return !full(); }
  void TakeOnFromRnic(std::unique_ptr<verbs::Connector> connector) override;
  Socket* owning_socket() override;
  bool HelperMayAccept() const;
  // Takes what the SDP listener has; `shake_hands`: at once where the request is complete, else the helper does it.
  bool AcceptAhead(bool shake_hands);
  void PushReady(int fd, std::unique_ptr<Session> session);
  void DropFinished();

  StreamSocket* const owner_;
  const int domain_;
  const OptionLog options_;  // for connections that do not inherit them
  Mutex mutex_;
  std::atomic<int> sdp_fd_{-1};
  std::atomic<int> ready_fd_{-1};
  std::atomic<int> registration_fd_{-1};
  std::atomic<int> signal_fd_{-1};  // of the conventional listener's open file, which knows the owner
  int signal_number_ = -1;          // the application's
  Address sdp_address_;
  Watch watch_;
  Renewal renewal_;
  Tending tending_;
  std::vector<std::unique_ptr<KernelListener>> kernel_;
  std::vector<std::unique_ptr<KernelListener>> kernel_gone_;  // the helper may still have them
  bool kernel_looked_ = false;  // for addresses of kernel RNICs
  std::list<std::unique_ptr<Incoming>> incoming_;
  std::deque<Ready> ready_;
  size_t backlog_ = 1;  // connections the library takes on before the application asks for them
  bool closed_ = false;
  bool used_ = false;
  bool dormant_ = false;
  Time next_look_{};  // for a daemon
  bool forked_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LISTENER_H_
