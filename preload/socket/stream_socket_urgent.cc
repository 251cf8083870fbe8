// Urgent data of a StreamSocket that is received: the mark, and the byte that stands apart from the stream
// (SO_OOBINLINE off).
#include <errno.h>

#include "preload/socket/stream_socket.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

int Fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

ssize_t StreamSocket::ReceiveOutOfBand(std::span<const MutableBytes> room, int flags, int* out_flags) {
  engine::Engine& e = session_->engine();
  session_->ReadAvailable();
  AfterProgress();
  if (options_.out_of_band_inline()) return Fail(EINVAL);
  if (!e.oob_available()) return Fail(e.oob_pending() ? EAGAIN : EINVAL);
  if (e.state() == engine::State::kAborted && !e.peer_closed()) return Fail(ENOTCONN);
  if (!room.empty() && (flags & MSG_TRUNC) == 0 && !MayWrite(room.front().data(), 1)) return Fail(EFAULT);
  const auto byte = e.TakeOob({.peek = (flags & MSG_PEEK) != 0});
  AfterProgress();
  if (out_flags != nullptr) *out_flags |= MSG_OOB;
  if (room.empty()) {
    if (out_flags != nullptr) *out_flags |= MSG_TRUNC;
    return 0;
  }
  if ((flags & MSG_TRUNC) == 0) room.front().front() = *byte;
  return 1;
}

// As on TCP, a receive that begins at the mark has passed it, and the byte is gone: even if nothing has come
// behind it yet, or nothing ever will. The engine passes it with the next byte that is read.
void StreamSocket::PassMark() {
  if (!engine().at_mark() || options_.out_of_band_inline()) return;
  passed_mark_ = engine().urgent_announcements();
  if (engine().oob_available()) session_->engine().TakeOob({});
}

bool StreamSocket::AtMark() const { return engine().at_mark() && !MarkPassed(); }

// And no other byte has come to the same place since.
bool StreamSocket::MarkPassed() const {
  return engine().at_mark() && passed_mark_ == engine().urgent_announcements();
}

bool StreamSocket::Urgent() const { return engine().oob_pending() || (engine().urgent() && !MarkPassed()); }

uint64_t StreamSocket::ReadableAtOnce() const {
  return MarkPassed() ? engine().readable_bytes() : engine().readable_to_mark();
}

}  // namespace sdp::preload
