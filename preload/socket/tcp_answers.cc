#include "preload/socket/tcp_answers.h"

#include <poll.h>

namespace sdp::preload {

short ReadyEvents(const TcpView& view, const ReadyFacts& facts) {
  const engine::Engine& e = view.engine;
  const bool aborted = e.state() == engine::State::kAborted || (view.link_ended && !e.peer_closed());
  const bool no_more = e.peer_closed() || aborted || view.receive_shut;
  const bool send_closed = !e.can_send();
  short events = 0;
  if (e.readable_bytes() >= facts.low_water || no_more) events |= POLLIN | POLLRDNORM;
  if (facts.writable || send_closed) events |= POLLOUT | POLLWRNORM;
  if (no_more) events |= POLLRDHUP;
  if (no_more && send_closed && !facts.close_wait) events |= POLLHUP;
  if (view.pending_error != 0 || facts.told) events |= POLLERR;
  if (facts.urgent) events |= POLLPRI;
  return events;
}

}  // namespace sdp::preload
