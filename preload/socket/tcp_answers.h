// How TCP would report a connection in its odd states: closed by the peer alone (CLOSE_WAIT), shut down here,
// reset. Each answer comes from values alone: the engine, the end of the link, and what the socket remembers.
// The socket acts on the answers, and forgets an error that was reported. Has no state and no lock.
#ifndef SDP_PRELOAD_SOCKET_TCP_ANSWERS_H_
#define SDP_PRELOAD_SOCKET_TCP_ANSWERS_H_

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "core/engine/engine.h"
#include "verbs/rnic.h"

namespace sdp::preload {

// A connection as TCP would have it.
struct TcpView {
  const engine::Engine& engine;
  bool link_ended = false;    // Session::link_ended()
  int pending_error = 0;      // SO_ERROR
  bool receive_shut = false;  // shutdown(SHUT_RD)
  bool send_shut = false;     // in CLOSE_WAIT, when the engine has ended: shutdown(SHUT_WR), or a send
};

// Returns true if the peer had nothing more to say, and left without waiting for our end. Only what we send
// from now on is an error. The peer's AbortConn may come together with the link's end, and is a reset. A
// reset that comes while credit updates of ours are under way is its kernel's answer to these.
[[nodiscard]] inline bool PeerLeftInOrder(const engine::Engine& e, const verbs::LinkCause& cause) {
  const bool left =
      cause.end == verbs::LinkEnd::kClosedByPeer ||
      (cause.end == verbs::LinkEnd::kReset && cause.os_error == ECONNRESET && e.only_updates_unheard());
  return left && e.state() == engine::State::kAborted && e.peer_closed() &&
         e.abort_reason() == engine::AbortReason::kLinkLost;
}

// Returns the error of a connection that its peer, or the link, has aborted.
[[nodiscard]] inline int ErrorOfAbort(const engine::Engine& e, const verbs::LinkCause& cause) {
  const bool of_link = cause.end == verbs::LinkEnd::kReset && cause.os_error != 0 && cause.os_error != EPIPE;
  const int error = of_link ? cause.os_error : ECONNRESET;
  return e.peer_closed() && error == ECONNRESET ? EPIPE : error;  // receives end nevertheless
}

// Returns true if the peer has closed and left, and the program has not closed yet. TCP keeps such a
// connection in CLOSE_WAIT. Programs that treat POLLHUP as an error must still be able to read the data.
[[nodiscard]] inline bool InCloseWait(const TcpView& view, const verbs::LinkCause& cause) {
  return PeerLeftInOrder(view.engine, cause) && !view.engine.send_closed() && !view.send_shut &&
         view.pending_error == 0;
}

// What poll depends on, beside the view; ReadyEvents returns poll events.
struct ReadyFacts {
  size_t low_water = 1;     // SO_RCVLOWAT
  bool writable = false;    // there is room for a writer
  bool urgent = false;      // urgent data is announced, or next
  bool told = false;        // the error queue has a message
  bool close_wait = false;  // InCloseWait()
};
[[nodiscard]] short ReadyEvents(const TcpView& view, const ReadyFacts& facts);

// How a receive ends, without waiting, that has less than it wants. kShut: an end of the stream, once the
// link has been looked at.
enum class ReceiveEnd : uint8_t { kWaits, kEndOfStream, kError, kShut };
[[nodiscard]] inline ReceiveEnd EndOfReceive(const TcpView& view, bool peek) {
  const engine::Engine& e = view.engine;
  // Even if a reset came after the peer's end.
  if (e.peer_closed() && (peek || e.readable_bytes() == 0)) return ReceiveEnd::kEndOfStream;
  if (view.pending_error != 0) return ReceiveEnd::kError;
  if (view.receive_shut) return ReceiveEnd::kShut;
  // Any error was reported before.
  const bool over = e.state() == engine::State::kAborted || view.link_ended;
  return over ? ReceiveEnd::kEndOfStream : ReceiveEnd::kWaits;
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_TCP_ANSWERS_H_
