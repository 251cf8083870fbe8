// A thread that sleeps in the link's read of a Session, and brings what wakes it. Made for one call; the
// session has what lasts. While a thread sleeps so, no other thread may read.
#ifndef SDP_PRELOAD_SOCKET_SLEEPING_READ_H_
#define SDP_PRELOAD_SOCKET_SLEEPING_READ_H_

#include "preload/socket/session.h"

namespace sdp::preload {

class Session::SleepingRead {
 public:
  explicit SleepingRead(Session& session) : s_(session) {}

  [[nodiscard]] bool possible() const;
  // Reads, asleep in the link's read until something comes, with `lock` dropped. Only while possible().
  // `memory`: what is registered to be filled.
  verbs::ReadStatus Read(verbs::CallerLock& lock, verbs::SleeperMemory memory);
  // Wakes the thread that sleeps so, although the peer's application sends nothing. A round trip to the
  // peer's RNIC does that, if the RNIC answers by itself or the peer is in a call.
  void Nudge();
  // A jump tore that thread out of its sleep, and it has read nothing.
  void Abandon();
  // That thread is the calling one, in a signal handler, and its read returns nothing. The session continues
  // without it, on the link `fd`. Returns false if the session cannot be frozen now.
  bool Leave(int fd);
  // In the child of a fork: that thread is not here, unless it forked, in a handler.
  void Forget() { s_.read_ = 0; }

  // The work of a nudge; the engine's own ids start at 1.
  static constexpr WorkId kNudge{0};

 private:
  Session& s_;
};

inline Session::SleepingRead Session::sleeping_read() { return SleepingRead(*this); }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SLEEPING_READ_H_
