// The direct way of a Session: usual Data passes between the link and the program's memory past the queues of
// the engine and the queue pair. Sends take it over both links of the embedded RNIC. Receives take it over a
// link that is memory, in one copy. Made for one call; the session has what lasts.
#ifndef SDP_PRELOAD_SOCKET_SESSION_DIRECT_H_
#define SDP_PRELOAD_SOCKET_SESSION_DIRECT_H_

#include <optional>

#include "preload/socket/iovec_cursor.h"
#include "preload/socket/session.h"

namespace sdp::preload {

class Session::Direct {
 public:
  explicit Direct(Session& session) : s_(session) {}

  // Sends all of `data` in one message past the queues, and returns its size; or sends nothing.
  size_t TrySend(std::span<const Bytes> data);
  // If nothing received is unread: takes whole messages off the link, straight into `room`. Returns the
  // number of bytes; 0 if a read has to be tried. A message that is larger than the room left becomes
  // readable where it is, in the link.
  size_t Receive(ReceiveCursor* room);

  // The next ones are for the express way (stream_socket_express.cc), too.
  // Returns true if the link is memory, and nothing is under way but usual Data past the queues.
  [[nodiscard]] bool plain() const { return !s_.lent_ && Link() != nullptr && s_.engine_->plain(); }
  // Returns true if Send() may follow, with `size` bytes. Needs a queue pair that sends past its queue.
  [[nodiscard]] bool MaySend(size_t size) {
    return s_.engine_->may_send_direct(size) &&
           s_.queue_pair_->direct_send()->MaySendDirect(engine::kDataHeader + size);
  }
  // Sends all of `data` in one message.
  void Send(std::span<const Bytes> data, size_t total);
  // Does what Receive() does, without its rare cases. Needs plain(). Returns 0 if `room` is too small for all
  // that the link has. Returns less than all where something is due, or another kind of message comes: the
  // caller goes on the usual way.
  size_t ReceiveAll(MutableBytes room);
  // After Send() or ReceiveAll(): returns true if more is due, or the link has ended: Finish() and a look at
  // everything have to follow.
  [[nodiscard]] bool due() const {
    return s_.engine_->due_after_direct() || s_.queue_pair_->facts().send_failed;
  }
  void Finish() {
    if (due()) s_.Pump();
  }

  // Returns true if the link has one message that ReceiveAll() would take, false if it has nothing. Returns
  // nothing if only a look by the usual way tells.
  [[nodiscard]] std::optional<bool> OneComes() const;
  [[nodiscard, gnu::always_inline]] bool link_empty() const {
    const verbs::Direct* const link = s_.queue_pair_->direct();
    return link == nullptr || link->InLink() == 0;
  }
  // Returns true if the link has a message that Receive() would take.
  [[nodiscard]] bool Comes() const;
  // Returns how many bytes Receive() would find in the link behind what is readable. Returns nothing if
  // something else is there, or too much to be looked at. What is behind the next message is judged later.
  [[nodiscard]] std::optional<uint64_t> BytesInLink() const;

  // Returns true if a message is readable where it is, in the link.
  [[nodiscard]] bool lends() const { return s_.lent_.has_value(); }
  // What is unread of that message leaves the link.
  void TakeLentOut();

 private:
  // Returns the link if the next message may be taken off it.
  [[nodiscard]] verbs::Direct* Link() const {
    return s_.reads_little_ || s_.link_ended_ || s_.moving() ? nullptr : s_.queue_pair_->direct();
  }
  // The message stays in the link while it is unread, until something else is read from there (KeepLent).
  void Lend(verbs::Direct* link, Bytes header, const verbs::Direct::Arrived& arrived);
  void Take(verbs::Direct* link, Bytes header, const verbs::Direct::Arrived& arrived,
            std::span<const MutableBytes> places);

  Session& s_;
};

inline Session::Direct Session::direct() { return Direct(*this); }

// Before a read of anything else.
inline void Session::KeepLent() {
  if (lent_) [[unlikely]]
    direct().TakeLentOut();
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SESSION_DIRECT_H_
