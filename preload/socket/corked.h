// Small writes that wait for the next one: those with MSG_MORE or TCP_CORK, and those of a stream of small
// writes (WriteStream). With SDP_FORCE=transaction, every small write of a blocking socket waits for the read
// of its answer, and leaves in that read's SinkAvail (SDP 9.4). Owns the bytes, and the time at which they
// leave without a next write; the socket has the helper thread wait for that time. A value; guarded by the
// socket's lock.
#ifndef SDP_PRELOAD_SOCKET_CORKED_H_
#define SDP_PRELOAD_SOCKET_CORKED_H_

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/base/types.h"
#include "preload/socket/clock.h"
#include "preload/socket/session.h"

namespace sdp::preload {

class Corked {
 public:
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  // Returns when the bytes have to leave; kNever if there are none.
  [[nodiscard]] Time due() const { return empty() ? kNever : due_; }

  // Returns true if `total` more bytes may wait. A full message never waits. The bytes must fit into the send
  // buffer (`send_buffer` bytes) and into `room`, since they may have to leave when there is no credit.
  [[nodiscard]] bool Fits(const engine::Engine& e, size_t total, size_t room, size_t send_buffer) const;
  void Append(std::span<const iovec> data);
  // `in_stream`: the program has not asked for the bytes to wait.
  void SetDue(Time due, bool in_stream = false) {
    due_ = due;
    in_stream_ = in_stream;
  }
  // Returns true if bytes wait that the program has not asked the library to hold.
  [[nodiscard]] bool in_stream() const { return in_stream_ && !empty(); }
  void Clear() { bytes_.clear(); }
  // Gives memory back that has not been used since the last call. Returns true if there is more to give.
  bool Trim() {
    if (std::exchange(at_rest_, true) && empty()) std::vector<std::byte>().swap(bytes_);
    return bytes_.capacity() != 0;
  }

  // Takes bytes as Engine::Send does, those that have waited first, and hands them to the link. Returns how
  // many of `data` were taken; `*moved`: with those that waited.
  size_t Send(Session& session, std::span<const Bytes> data, engine::SendFlags flags, size_t* moved) {
    if (!empty()) [[unlikely]]
      return SendJoined(session, data, flags, moved);
    return *moved = session.Send(data, flags);
  }
  // Sends the bytes that wait, without a next write. They are lost if the connection can no longer send.
  void Push(Session& session);
  // Push() for bytes that the program has not asked the library to hold: it begins to wait.
  void PushStream(Session& session) {
    if (in_stream()) Push(session);
  }

 private:
  size_t SendJoined(Session& session, std::span<const Bytes> data, engine::SendFlags flags, size_t* moved);

  std::vector<std::byte> bytes_;
  Time due_ = kNever;
  bool in_stream_ = false;
  bool at_rest_ = true;  // since the last Trim()
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CORKED_H_
