// Small writes that wait for the next one: MSG_MORE, TCP_CORK, and with SDP_FORCE=transaction every small
// write of a blocking socket, which waits for the read of its answer and leaves in that read's SinkAvail (SDP
// 9.4). Owns their bytes, and the time at which they leave without a next write. Who waits for that time, the
// helper thread, is the socket's concern. A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_CORKED_H_
#define SDP_PRELOAD_SOCKET_CORKED_H_

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/types.h"
#include "preload/socket/clock.h"
#include "preload/socket/session.h"

namespace sdp::preload {

class Corked {
 public:
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  // When the bytes leave at the latest; kNever if there are none.
  [[nodiscard]] Time due() const { return empty() ? kNever : due_; }

  // `total` more bytes may wait. What is as long as a message waits for nothing; the rest must fit into the
  // send buffer (`send_buffer` bytes) and into `room`, since it may have to leave when there is no credit.
  [[nodiscard]] bool Fits(const engine::Engine& e, size_t total, size_t room, size_t send_buffer) const;
  void Append(std::span<const iovec> data);
  void SetDue(Time due) { due_ = due; }
  void Clear() { bytes_.clear(); }

  // Takes bytes as Engine::Send does, those that have waited first, and hands them to the link. Returns how
  // many of `data`; `*moved`: of both.
  size_t Send(Session& session, std::span<const Bytes> data, engine::SendFlags flags, size_t* moved) {
    if (!empty()) [[unlikely]]
      return SendJoined(session, data, flags, moved);
    *moved = session.engine().Send(data, flags);
    session.Pump();
    return *moved;
  }
  // Sends what has waited, without a next write. Where nothing can be sent any more it is lost.
  void Push(Session& session);

 private:
  size_t SendJoined(Session& session, std::span<const Bytes> data, engine::SendFlags flags, size_t* moved);

  std::vector<std::byte> bytes_;
  Time due_ = kNever;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CORKED_H_
