// How a StreamSocket looks at its link without waiting: for data, room, or the connection's end. Made for one
// call; keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_LOOKS_H_
#define SDP_PRELOAD_SOCKET_LOOKS_H_

#include <cstdint>
#include <optional>

#include "preload/socket/session.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Looks {
 public:
  explicit Looks(StreamSocket& socket) : s_(socket) {}

  // Takes what has come, if the connection is this process's to read.
  void Look();
  // Like Look(), but may leave a part of what has come in the link. The kernel goes on to report that part.
  void TakeFromLink();
  // Looks until nothing more has come. A reset comes behind earlier bytes, and TCP knows of it before those
  // are read.
  void LookToTheEnd();
  // Takes what the link does not report to a wait, before a thread waits by poll or epoll
  // (Pollable::has_untold). Returns false if there was nothing.
  bool TakeUntold();
  // Looks for the reset by which a closed peer answers what is sent. The next call has to know of it.
  void LookForRefusal();
  // Returns true if a send has to look for it first: nothing has read the link for a while.
  [[nodiscard]] bool IsRefusalDue();
  // Asks the kernel whether the link has ended, and reads only if it has.
  void GlanceAtLink();
  // Looks at the beginning of a call for what has come, without a system call where the RNIC can do that.
  // Returns true if something came. `takes`: the caller takes the data, and publishes that.
  bool LookAtLink(bool takes = false, Session::PollFor wanted = Session::PollFor::kNow);
  // Returns how many bytes in the link make the socket readable where they are. Returns nothing if only a
  // look at the link tells what is there.
  [[nodiscard]] std::optional<uint64_t> LeftInLink() const;
  [[nodiscard]] bool ComesDirect() const { return LeftInLink().value_or(0) != 0; }
  // Returns true if something has come that the link does not report to a wait.
  [[nodiscard]] bool HasUntold() const;

 private:
  bool LookForEnd();

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LOOKS_H_
