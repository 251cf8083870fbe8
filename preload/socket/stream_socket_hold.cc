// MSG_MORE and TCP_CORK: a small piece waits for the next one, and both leave as one message with one call on
// the link. With SDP_FORCE=transaction every small write of a blocking socket waits likewise, for the read of
// its answer, and leaves in that read's SinkAvail (SDP 9.4).
#include <algorithm>
#include <array>

#include "preload/config.h"
#include "preload/socket/clock.h"
#include "preload/socket/options.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// How long TCP keeps back a frame that is not full (tcp(7), TCP_CORK).
constexpr Duration kLongestHold = std::chrono::milliseconds(200);

}  // namespace

bool StreamSocket::Hold(const iovec* iov, size_t count, size_t total) {
  if (shared_ != nullptr) return false;  // the others would not know of it
  const engine::Engine& e = session_->engine();
  const size_t wanted = held_.size() + total;
  // What is as long as a message waits for nothing. The rest must fit into the send buffer in any case, since
  // it may have to leave when there is no credit.
  if (wanted >= e.stats().remote_buffer_size || e.buffered_bytes() + wanted > config().send_buffer ||
      wanted > SendRoom() || !e.writable())
    return false;
  if (held_.empty()) {
    const Duration longest = ForcesTransactions() ? Background::kGrace : kLongestHold;
    held_until_ = Now() + longest;
    if (!Background::Add(&task_, longest)) return false;
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
  return *moved - of_held;
}

void StreamSocket::PushHeld() {
  if (held_.empty()) return;
  if (!session_->engine().can_send()) {
    held_.clear();
    return;
  }
  size_t moved;
  SendBehindHeld({}, {.buffering = engine::Buffering::kFull}, &moved);
}

}  // namespace sdp::preload
