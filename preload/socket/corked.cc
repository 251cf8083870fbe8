#include "preload/socket/corked.h"

#include <algorithm>
#include <array>

namespace sdp::preload {

bool Corked::Fits(const engine::Engine& e, size_t total, size_t room, size_t send_buffer) const {
  const size_t wanted = size() + total;
  return wanted < e.stats().remote_buffer_size && e.buffered_bytes() + wanted <= send_buffer &&
         wanted <= room && e.writable();
}

void Corked::Append(std::span<const iovec> data) {
  at_rest_ = false;
  for (const iovec& piece : data) {
    const auto* const bytes = static_cast<const std::byte*>(piece.iov_base);
    bytes_.insert(bytes_.end(), bytes, bytes + piece.iov_len);
  }
}

size_t Corked::SendJoined(Session& session, std::span<const Bytes> data, engine::SendFlags flags,
                          size_t* moved) {
  std::array<Bytes, 65> joined;
  const size_t pieces = std::min(data.size(), joined.size() - 1);
  joined[0] = bytes_;
  std::copy_n(data.begin(), pieces, joined.begin() + 1);
  *moved = session.Send(std::span(joined).first(pieces + 1), flags);
  // Nothing refers to bytes_ from here on.
  const size_t of_corked = std::min(*moved, bytes_.size());
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(of_corked));
  return *moved - of_corked;
}

void Corked::Push(Session& session) {
  if (empty()) return;
  if (!session.engine().can_send()) return Clear();
  size_t moved;
  Send(session, {}, {.buffering = engine::Buffering::kFull}, &moved);
}

}  // namespace sdp::preload
