// A Session's state, as another process gets it: one that takes the connection over, or that shares it. Made
// for one call; the session has what lasts.
#ifndef SDP_PRELOAD_SOCKET_SESSION_TRANSFER_H_
#define SDP_PRELOAD_SOCKET_SESSION_TRANSFER_H_

#include <memory>
#include <vector>

#include "core/base/archive.h"
#include "preload/socket/session.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {

class Session::Transfer {
 public:
  explicit Transfer(Session& session) : s_(session) {}

  // Returns false if the connection stays with its process: a child of fork must not destroy such a session.
  [[nodiscard]] bool portable() const { return s_.queue_pair_->portable() != nullptr; }
  [[nodiscard]] bool freezable() const {
    return !s_.moving() && s_.engine_->freezable() && portable() && s_.queue_pair_->portable()->freezable();
  }
  // Needs freezable().
  [[nodiscard]] std::vector<std::byte> Freeze();
  // Appends the frozen state to `ar`, which refers to the data until the session's next call.
  void Freeze(Writer& ar);

  using Memory = std::shared_ptr<iwarp::LocalMemory>;
  // Returns a session on the link `fd` in place of one that is still to be thawed, from what another process
  // will leave. Its answers belong to no connection. `memory`: the link's, if it is a local one.
  [[nodiscard]] static std::unique_ptr<Session> Blank(int fd, Memory memory);
  // Returns the session that another process has frozen; nullptr if these bytes are none.
  [[nodiscard]] static std::unique_ptr<Session> Thawed(Bytes frozen, int fd, Memory memory);
  // Becomes the session that was frozen, on the link `fd`; engine() stays where it is. Returns false if these
  // bytes are no session.
  bool Thaw(Bytes frozen, int fd) { return Thaw(frozen, fd, iwarp::MemoryOf(*s_.queue_pair_)); }
  // Returns the descriptor that another program needs besides the link, or -1. The session owns it.
  [[nodiscard]] int memory_fd() const { return iwarp::DescriptorOf(iwarp::MemoryOf(*s_.queue_pair_).get()); }

  // Returns true if the frozen part may have changed since SetChanged(false).
  [[nodiscard]] bool changed() const { return s_.changed_; }
  void SetChanged(bool changed) { s_.changed_ = changed; }
  // What is read is going to be moved: every read takes little, and see full(). Survives Thaw().
  void ReadLittle(bool little);

 private:
  bool Thaw(Bytes frozen, int fd, Memory memory);

  Session& s_;
};

inline Session::Transfer Session::transfer() { return Transfer(*this); }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SESSION_TRANSFER_H_
