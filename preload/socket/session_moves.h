// Socket Duplication of a Session (SDP 13), at the peer's request. The engine finishes what is In-Process,
// and answers. This part leaves the link, connects anew where the peer says, and continues with another queue
// pair. Made for one call; the session has what lasts.
#ifndef SDP_PRELOAD_SOCKET_SESSION_MOVES_H_
#define SDP_PRELOAD_SOCKET_SESSION_MOVES_H_

#include <utility>

#include "preload/socket/session.h"

namespace sdp::preload {

// While Session::moving(), reads and pumps do all steps except those of Lead(), on events of watch_events()
// and at deadline().
class Session::Moves {
 public:
  explicit Moves(Session& session) : s_(session), m_(session.move_) {}

  // After progress: ends the old link. Once it has ended and no result of a loan is left to be taken,
  // connects anew to `peer`, which the link had. An owner that does not serve the session, such as a
  // listener, does not call this. Returns true if the engine has begun the next connection: its counts begin
  // anew.
  bool Lead(const Address& peer);
  // A seccomp filter is about to be set, and would end the process at the next step. The connection is lost
  // instead.
  void End();
  [[nodiscard]] Time deadline() const;
  // Return true if a move has taken a step since the last TakeStepped(). A waiting thread then looks at its
  // condition again.
  [[nodiscard]] bool stepped() const { return m_.stepped; }
  [[nodiscard]] bool TakeStepped() { return std::exchange(m_.stepped, false); }
  // Returns the sums over all links.
  [[nodiscard]] static verbs::QpCounters CountersOfAllLinks(const Session& session);

  // For the session.
  void Start();
  // Takes the next step. Returns true if there is something new to carry out.
  bool Advance();

 private:
  void Begin();
  bool TakeStep();
  bool EnterNewLink();
  bool Finish(Time now);
  void Fail(verbs::LinkCause cause);

  Session& s_;
  Move& m_;
};

inline Session::Moves Session::moves() { return Moves(*this); }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SESSION_MOVES_H_
