// How much a StreamSocket's reader waits for, and how much its writer may leave: from the options, the engine
// and the link. Made for one call; keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_LIMITS_H_
#define SDP_PRELOAD_SOCKET_LIMITS_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Limits {
 public:
  // A link with less room than this, and less than the caller has to send, is full.
  static constexpr size_t kLeastRoom = 32 * 1024;

  explicit Limits(StreamSocket& socket) : s_(socket) {}

  // Returns SO_RCVLOWAT, but no more than the peer can send. (The kernel bounds it by the receive buffer.)
  size_t LowWater() const;
  // Returns how many bytes may be unsent at a time.
  [[nodiscard]] size_t SendLimit() const;
  // Returns how many bytes a send may take now.
  [[nodiscard]] size_t SendRoom() const { return RoomWithin(SendLimit()); }
  [[nodiscard]] uint64_t Queued() const;  // bytes that have not left
  [[nodiscard]] size_t RoomWithin(size_t limit) const;
  // Returns true if a send may leave so many bytes to the library and return, though the peer has taken none.
  [[nodiscard]] bool MayBuffer(size_t bytes) const;
  // Returns true if poll reports room to a writer.
  [[nodiscard]] bool Writable() const;
  // Returns true if a writer has found the link full, and it still is.
  [[nodiscard]] bool AwaitsLinkRoom() const;
  // Returns how much of `wanted` a call may hand to the link at a time. Returns 0 if the link is full; room
  // is then an edge (Board::NoteRoom).
  size_t LinkRoom(size_t wanted);
  // After progress: notes whether there is room again for a writer that found none.
  void NoteSendRoom();

 private:
  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LIMITS_H_
