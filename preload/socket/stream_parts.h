// The parts of a StreamSocket, and what can be told from them. Each part owns its data and has a header of
// its own. The socket's calls (stream_socket.h) and the classes that it names work on them.
//
// One lock per socket guards all parts, with the session's engine and queue pair. A thread holds it over
// system calls that do not block, and drops it over those that do. Lock order: StreamSocket, then an
// observer's (EpollSet), a Listener's, Background's; never two StreamSockets.
#ifndef SDP_PRELOAD_SOCKET_STREAM_PARTS_H_
#define SDP_PRELOAD_SOCKET_STREAM_PARTS_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "preload/socket/board.h"
#include "preload/socket/calls_inside.h"
#include "preload/socket/corked.h"
#include "preload/socket/held_session.h"
#include "preload/socket/lending.h"
#include "preload/socket/lingering.h"
#include "preload/socket/link_names.h"
#include "preload/socket/numbers.h"
#include "preload/socket/report.h"
#include "preload/socket/session.h"
#include "preload/socket/session_transfer.h"
#include "preload/socket/share.h"
#include "preload/socket/socket.h"
#include "preload/socket/socket_mutex.h"
#include "preload/socket/socket_parts.h"
#include "preload/socket/tcp_answers.h"
#include "preload/socket/tcp_side.h"
#include "preload/socket/urgent_mark.h"

namespace sdp::preload {

class StreamParts : public Socket {
 public:
  enum class State : uint8_t { kNew, kListening, kConnecting, kSdp, kPlain, kClosed };

  [[nodiscard]] bool listening() const { return state_.load(std::memory_order_relaxed) == State::kListening; }
  [[nodiscard]] bool connected() const { return state_.load(std::memory_order_relaxed) == State::kSdp; }
  // Returns true if all that there may be to report is in the link.
  [[nodiscard]] bool NothingTaken() const { return mutex_.express_open(); }
  // Returns true if this is an SDP connection that other processes can have, too. The caller holds the lock.
  [[nodiscard]] bool shareable() const {
    return state_ == State::kSdp && session_ != nullptr && !share_.given_up &&
           session_.last_known()->transfer().portable();
  }
  // Returns a descriptor of the socket that is not `fd`; -1 if there is none.
  int OtherDescriptor(int fd);

 protected:
  // `socket`: this object. `domain`: AF_INET, AF_INET6, or kFamilySdp, which means SDP or nothing.
  StreamParts(StreamSocket* socket, int domain) : mutex_(socket), family_(domain) {}

  [[nodiscard]] bool foreign() const { return share_.foreign(); }
  // Returns true if this is an SDP connection, and this process has its newest state.
  [[nodiscard]] bool usable() const { return state_ == State::kSdp && !foreign(); }
  // Return what this process knows of the connection: perhaps old, unless usable().
  [[nodiscard]] const engine::Engine& engine() const {
    return std::as_const(*session_.last_known()).engine();
  }
  [[nodiscard]] const verbs::QueuePair& queue_pair() const {
    return std::as_const(*session_.last_known()).queue_pair();
  }
  [[nodiscard]] TcpView tcp_view() const {
    return {.engine = engine(),
            .link_ended = session_->link_ended(),
            .pending_error = tcp_.pending_error,
            .receive_shut = tcp_.receive_shut,
            .send_shut = tcp_.send_shut};
  }
  [[nodiscard]] bool InCloseWait() const { return preload::InCloseWait(tcp_view(), session_->cause()); }
  // Returns true if nothing can be sent, ever again or before the error is reported.
  [[nodiscard]] bool CannotSend() const { return tcp_.pending_error != 0 || !engine().can_send(); }
  // Returns true if the link is a local one.
  [[nodiscard]] bool OnLocalLink() const;
  // Returns true if a receive may take messages off the link itself (Session::Direct::Receive).
  [[nodiscard]] bool TakesDirect() const {
    return queue_pair().direct() != nullptr && share_.with == nullptr && !board_.hears_doorbells() &&
           !options_.kept.tells_queue();
  }
  // Returns true if threads sleep in Send or Receive, and hear of all that comes. A thread that jumped out of
  // its call is none.
  [[nodiscard]] bool HasSleepers() const {
    if (calls_inside_.count() == 0 || !calls_inside_.all_return()) return false;
    return OnLocalLink() || (share_.with == nullptr && queue_pair().pollable() == nullptr);
  }
  // Returns true if another process also has the socket, which has no connection yet and may become TCP.
  // Neither process would know what the other makes of it.
  [[nodiscard]] bool IsCommon(int fd) const;

  int LinkOf(int fd) const { return session_ != nullptr ? preload::LinkOf(*session_.last_known(), fd) : fd; }
  [[nodiscard]] int LinkFd() const { return lingering_.fd() >= 0 ? lingering_.fd() : numbers_.any(); }
  // Returns `fd` if it is still the socket's, else another descriptor of its link.
  [[nodiscard]] int NumberNow(int fd) const;
  [[nodiscard]] Report::Names names() const {
    return {.fd = numbers_.any(), .local = names_.local, .peer = names_.peer, .sdp_peer = names_.sdp_peer};
  }

  SocketMutex mutex_;
  std::atomic<State> state_{State::kNew};
  const SocketFamily family_;
  Numbers numbers_;
  SocketOptions options_;
  ConnectionNames names_;
  TcpSide tcp_;
  Share share_;

  Listening listening_;
  Connecting connecting_;
  HeldSession session_{share_};
  UrgentMark urgent_mark_;
  Lending lending_;
  Corked corked_;
  Board board_;
  CallsInside calls_inside_;
  ConnectionUse use_;
  Report report_;
  Lingering lingering_;  // since the program has closed its descriptors
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STREAM_PARTS_H_
