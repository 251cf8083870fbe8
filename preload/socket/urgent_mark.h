// Urgent data of a connection as its reader sees it: the mark in the stream, and the announcements that raise
// SIGURG. The engine has the mark and the byte. This part has what the reader has passed, and which
// announcements the socket's owner knows. A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_URGENT_MARK_H_
#define SDP_PRELOAD_SOCKET_URGENT_MARK_H_

#include <cstdint>
#include <utility>

#include "core/engine/engine.h"

namespace sdp::preload {

class UrgentMark {
 public:
  // A receive begins. As on TCP, a receive that begins at the mark passes it, and the byte is gone, even if
  // no data follows, now or ever. The engine itself passes the mark only with the next byte that is read.
  // Returns true if the byte is to be taken out of the engine. `in_line`: SO_OOBINLINE.
  [[nodiscard]] bool Pass(const engine::Engine& e, bool in_line) {
    if (!e.at_mark() || in_line) return false;
    passed_at_ = e.urgent_announcements();
    passed_ = true;
    return e.oob_available();
  }
  // Bytes were read: the next mark is another one.
  void NoteRead() { passed_ = false; }

  // Returns true if a receive has stopped at the next mark, and no other urgent byte has come there since.
  [[nodiscard]] bool passed(const engine::Engine& e) const {
    return passed_ && e.at_mark() && passed_at_ == e.urgent_announcements();
  }
  [[nodiscard]] bool at_mark(const engine::Engine& e) const { return e.at_mark() && !passed(e); }
  // Returns true for POLLPRI.
  [[nodiscard]] bool urgent(const engine::Engine& e) const {
    return e.oob_pending() || (e.urgent() && !passed(e));
  }
  // Returns FIONREAD's answer.
  [[nodiscard]] uint64_t readable_at_once(const engine::Engine& e) const {
    return passed(e) ? e.readable_bytes() : e.readable_to_mark();
  }

  // After progress: returns true if the peer has announced urgent data since the last call, and SIGURG is
  // due.
  [[nodiscard]] bool TakeAnnouncement(const engine::Engine& e) {
    const uint32_t announced = e.urgent_announcements();
    return std::exchange(announced_, announced) != announced;
  }
  // The engine counts announcements from zero again, as after a move to another link.
  void ForgetAnnouncements() { announced_ = 0; }
  // The state is another process's, which may have passed other marks.
  void Forget() {
    ForgetAnnouncements();
    NoteRead();
  }

  // SIGURG was raised in this process. TakeRaised() tells whether it was since a reader began to sleep.
  void NoteRaised() { raised_ = true; }
  bool TakeRaised() { return std::exchange(raised_, false); }

 private:
  uint32_t passed_at_ = 0;  // urgent_announcements() when a receive stopped at the mark
  bool passed_ = false;     // a receive has stopped at it
  uint32_t announced_ = 0;  // announcements that the owner knows of
  bool raised_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_URGENT_MARK_H_
