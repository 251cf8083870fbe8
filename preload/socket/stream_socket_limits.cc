// SO_SNDBUF, SO_RCVBUF and SO_RCVLOWAT of a connection.
//
// The link's kernel has the first two as well, and bounds by them what is on its way. Here they bound what
// the library holds for the program besides: bytes of messages that credit allows and the link has not taken,
// and the engine's send buffer. SO_RCVBUF decides the number and the size of the Private Buffers (options.h).
// Without a size that the program has set neither bounds anything, except what waits for a local link.
#include <algorithm>

#include "preload/socket/limits.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// What a peer of TCP's, which does not read, holds beside what the sender's buffer does.
constexpr size_t kPeersShare = 128 * 1024;
// What waits for a local link at most, before a writer waits: it has been copied, and is copied again.
constexpr size_t kMostUnsent = 512 * 1024;

// How many bytes of payload fit into so much room of a link, with what frames them.
size_t WithoutFraming(size_t room) {
  const size_t framing = room / 64 + 64;
  return room > framing ? room - framing : 0;
}

}  // namespace

size_t StreamSocket::Limits::LowWater() const {
  const auto wanted = static_cast<size_t>(s_.options_.kept.receive_low_water());
  if (wanted <= 1) return 1;
  const engine::Engine& e = s_.engine();
  const size_t limit = s_.share_.with != nullptr ? std::min<size_t>(e.receive_limit(), Session::kMostToMove)
                                                 : e.receive_limit();
  // While three receives of full size fit beside what is held the peer may send payload (SDP 10.5).
  const size_t three = size_t{3} * e.stats().local_buffer_size;
  const size_t spare = limit > three ? limit - three : 0;
  return std::min(wanted, std::max<size_t>(1, std::min(limit / 2, spare)));
}

// Of what is unsent; 0: none. With a shared connection it goes from process to process, like what is unread.
size_t StreamSocket::Limits::SendLimit() const {
  const size_t limit = s_.options_.kept.send_buffer();
  if (s_.share_.with == nullptr) return limit == 0 && s_.OnLocalLink() ? kMostUnsent : limit;
  return limit == 0 ? Session::kMostToMove : std::min<size_t>(limit, Session::kMostToMove);
}

uint64_t StreamSocket::Limits::Queued() const {
  return s_.queue_pair().unsent_bytes() + s_.engine().buffered_bytes();
}

size_t StreamSocket::Limits::RoomWithin(size_t limit) const {
  if (limit == 0) return SIZE_MAX;
  const uint64_t queued = Queued();
  return queued < limit ? limit - queued : 0;
}

// What a local link does not take would be copied, and copied again.
size_t StreamSocket::Limits::LinkRoom(size_t wanted) {
  const size_t room = SendRoom();
  verbs::FileSource* const source = s_.session_->queue_pair().file_source();
  if (!s_.OnLocalLink() || source == nullptr || s_.queue_pair().unsent_bytes() != 0) return room;
  for (bool asked = false;; asked = true) {
    const size_t link_room = WithoutFraming(source->room());
    if (link_room >= std::min(wanted, kLeastRoom)) return std::min(room, link_room);
    if (!source->AwaitRoom() && !asked) continue;  // there is some by now, and no peer keeps the call here
    s_.board_.NoteRoom(/*full=*/true);
    return 0;
  }
}

bool StreamSocket::Limits::MayBuffer(size_t bytes) const {
  const size_t limit = s_.options_.kept.send_buffer();
  return limit == 0 || bytes <= limit + kPeersShare;
}

// As the kernel wakes writers: a third of the buffer is free.
bool StreamSocket::Limits::Writable() const {
  if (!s_.engine().writable() || AwaitsLinkRoom()) return false;
  const size_t limit = SendLimit();
  return RoomWithin(limit) >= limit / 3;
}

bool StreamSocket::Limits::AwaitsLinkRoom() const {
  return s_.board_.full() && s_.queue_pair().file_source() != nullptr &&
         s_.queue_pair().file_source()->full();
}

void StreamSocket::Limits::NoteSendRoom() {
  const bool awaits = AwaitsLinkRoom();
  if (awaits || Queued() == 0) return s_.board_.NoteRoom(awaits);
  const size_t limit = SendLimit();
  s_.board_.NoteRoom(RoomWithin(limit) < limit / 3);
}

}  // namespace sdp::preload
