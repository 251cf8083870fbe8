// Urgent data of a connection, as its reader is told of it: the mark in the stream, and the announcements
// that raise SIGURG. The engine has the mark and the byte; here is what the reader has passed, and what the
// socket's owner has been told. A value; guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_URGENT_MARK_H_
#define SDP_PRELOAD_SOCKET_URGENT_MARK_H_

#include <cstdint>
#include <utility>

#include "core/engine/engine.h"

namespace sdp::preload {

class UrgentMark {
 public:
  // A receive begins. As on TCP, one that begins at the mark has passed it, and the byte is gone, even if
  // nothing has come behind it yet, or nothing ever will: the engine passes the mark with the next byte that
  // is read. True: the byte is to be taken out of the engine. `in_line`: SO_OOBINLINE.
  [[nodiscard]] bool Pass(const engine::Engine& e, bool in_line) {
    if (!e.at_mark() || in_line) return false;
    passed_at_ = e.urgent_announcements();
    passed_ = true;
    return e.oob_available();
  }
  // Bytes were read: the next mark is another one.
  void NoteRead() { passed_ = false; }

  // A receive has stopped at the mark that is next, and no other urgent byte has come to that place since.
  [[nodiscard]] bool passed(const engine::Engine& e) const {
    return passed_ && e.at_mark() && passed_at_ == e.urgent_announcements();
  }
  [[nodiscard]] bool at_mark(const engine::Engine& e) const { return e.at_mark() && !passed(e); }
  // POLLPRI.
  [[nodiscard]] bool urgent(const engine::Engine& e) const {
    return e.oob_pending() || (e.urgent() && !passed(e));
  }
  // FIONREAD.
  [[nodiscard]] uint64_t readable_at_once(const engine::Engine& e) const {
    return passed(e) ? e.readable_bytes() : e.readable_to_mark();
  }

  // After progress: the peer has announced urgent data since this was last asked, and SIGURG is due.
  [[nodiscard]] bool TakeAnnouncement(const engine::Engine& e) {
    const uint32_t announced = e.urgent_announcements();
    return std::exchange(announced_, announced) != announced;
  }
  // The engine counts announcements from zero again, as behind a move to another link.
  void ForgetAnnouncements() { announced_ = 0; }
  // The state is another process's, which may have passed other marks.
  void Forget() {
    ForgetAnnouncements();
    NoteRead();
  }

  // SIGURG was raised in this process; has it been since a reader began to sleep?
  void NoteRaised() { raised_ = true; }
  bool TakeRaised() { return std::exchange(raised_, false); }

 private:
  uint32_t passed_at_ = 0;  // urgent_announcements() when a receive stopped at the mark
  bool passed_ = false;     // one has
  uint32_t announced_ = 0;  // announcements that the owner was told of
  bool raised_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_URGENT_MARK_H_
