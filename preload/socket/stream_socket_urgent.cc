// Urgent data of a StreamSocket that is received: the mark, and the byte that stands apart from the stream
// (SO_OOBINLINE off).
#include "preload/fail.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/urgent.h"
#include "preload/user_memory.h"

namespace sdp::preload {

ssize_t StreamSocket::Urgent::ReceiveOutOfBand(std::span<const MutableBytes> room, int flags,
                                               int* out_flags) {
  engine::Engine& e = s_.session_->engine();
  s_.session_->Read();
  s_.AfterProgress();
  if (s_.options_.kept.out_of_band_inline()) return Fail(EINVAL);
  if (!e.oob_available()) return Fail(e.oob_pending() ? EAGAIN : EINVAL);
  if (e.state() == engine::State::kAborted && !e.peer_closed()) return Fail(ENOTCONN);
  if (!room.empty() && (flags & MSG_TRUNC) == 0 && !MayWrite(room.front().data(), 1)) return Fail(EFAULT);
  const auto byte = e.TakeOob({.peek = (flags & MSG_PEEK) != 0});
  s_.AfterProgress();
  if (out_flags != nullptr) *out_flags |= MSG_OOB;
  if (room.empty()) {
    if (out_flags != nullptr) *out_flags |= MSG_TRUNC;
    return 0;
  }
  if ((flags & MSG_TRUNC) == 0) room.front().front() = *byte;
  return 1;
}

void StreamSocket::Urgent::PassMark() {
  if (s_.urgent_mark_.Pass(s_.engine(), s_.options_.kept.out_of_band_inline()))
    s_.session_->engine().TakeOob({});
}

}  // namespace sdp::preload
