// MSG_MORE and TCP_CORK: a small piece waits for the next one, and both leave as one message with one call on
// the link. A small write that the read of a large answer always follows waits for that (request_timing.h), and leaves in its SinkAvail (SDP 9.4);
// with SDP_FORCE=transaction every small write.
#include <algorithm>
#include <array>

#include "preload/config.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// How long TCP keeps back a frame that is not full (tcp(7), TCP_CORK).
constexpr Duration kLongestHold = std::chrono::milliseconds(200);

}  // namespace

bool StreamSocket::MayBeRequest(size_t total) const {
  if (config().force != Mechanism::kTransaction && !AwaitsAnswer()) return false;
  const engine::Stats& stats = session_->engine().stats();
  return stats.sink_mode == engine::FlowMode::kPipelined &&
         held_.size() + total + engine::kMaxHeader <= stats.remote_buffer_size;
}

bool StreamSocket::AwaitsAnswer() const {
  // Nobody else uses the socket, or looks at it, who would have to see that the request has not left.
  return config().force == Mechanism::kChosen && turns_.ShouldLend(engine().sink_threshold()) && turns_.short_answers() && shared_ == nullptr && waiters_.empty() && observers_.empty() &&
         !session_->being_read() && !sink_loan_.offered() && options_.receive_timeout() == Duration::zero();
}

void StreamSocket::HandOverRequest(bool with_sink_avail) {
  if (!held_request_) return;
  if (!with_sink_avail) {
    PushHeld();
    return;
  }
  held_request_ = false;
  size_t moved;
  SendBehindHeld({}, {.buffering = engine::Buffering::kFull, .hold = true}, &moved);
}

bool StreamSocket::Hold(const iovec* iov, size_t count, size_t total, bool is_request) {
  if (shared_ != nullptr) return false;  // the others would not know of it
  const engine::Engine& e = session_->engine();
  const size_t wanted = held_.size() + total;
  // What is as long as a message waits for nothing. The rest must fit into the send buffer in any case, since
  // it may have to leave when there is no credit.
  if (wanted >= e.stats().remote_buffer_size || e.buffered_bytes() + wanted > config().send_buffer || wanted > SendRoom() || !e.writable())
    return false;
  if (held_.empty()) {
    const Duration longest = is_request ? Background::kGrace : kLongestHold;
    held_until_ = Now() + longest;
    if (!Background::Add(&task_, longest)) return false;
    held_request_ = is_request;
  }
  for (size_t i = 0; i < count; ++i) {
    const auto* const bytes = static_cast<const std::byte*>(iov[i].iov_base);
    held_.insert(held_.end(), bytes, bytes + iov[i].iov_len);
  }
  return true;
}

size_t StreamSocket::SendBehindHeld(std::span<const Bytes> data, engine::SendFlags flags, size_t* moved) {
  engine::Engine& e = session_->engine();
  if (held_.empty()) {
    *moved = e.Send(data, flags);
    session_->Pump();
    return *moved;
  }
  std::array<Bytes, 65> joined;
  const size_t pieces = std::min(data.size(), joined.size() - 1);
  joined[0] = held_;
  std::copy_n(data.begin(), pieces, joined.begin() + 1);
  *moved = e.Send(std::span(joined).first(pieces + 1), flags);
  session_->Pump();  // nothing references held_ from here on
  const size_t of_held = std::min(*moved, held_.size());
  held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(of_held));
  if (held_.empty()) held_request_ = false;
  return *moved - of_held;
}

void StreamSocket::PushHeld() {
  if (held_request_) request_timing_.Missed();
  held_request_ = false;
  if (held_.empty()) return;
  if (!session_->engine().can_send()) {
    held_.clear();
    return;
  }
  size_t moved;
  SendBehindHeld({}, {.buffering = engine::Buffering::kFull}, &moved);
}

}  // namespace sdp::preload
