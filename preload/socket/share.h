// A connection's place among the processes that may hold it. Usually this process holds it alone. After a
// fork, an exec or a message, others hold it as well (`with`), or have it in this one's place. Each holder
// takes the newest state with the lock, and leaves what became of it (holders.h). A value;
// guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_SHARE_H_
#define SDP_PRELOAD_SOCKET_SHARE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/base/types.h"
#include "preload/socket/clock.h"
#include "preload/socket/co_holders.h"
#include "preload/socket/shared_connection.h"

namespace sdp::preload {

struct Share {
  std::unique_ptr<SharedConnection> with;  // while other processes hold the connection, too
  bool given_up = false;                   // for good another process's: since a fork, a close or an exit
  bool elsewhere = false;                  // another process keeps the connection to itself
  // Of a socket without a connection: how another process may have it.
  CoHolders co_holders = CoHolders::kNone;
  bool locked_for_fork = false;
  bool child_joins = false;  // around a fork: the child holds the connection, too

  bool left_unsent = false;     // this process left bytes unsent when it used the connection last
  bool closing_unsent = false;  // closed here, except for those bytes; others may hold the connection
  // Nothing but the lock's owner has changed the state since it was left to the others.
  bool clean_when_locked = false;
  std::vector<std::byte> published_front;  // what was published last (Holders::FreezeFront)
  bool gave_up_on_owner = false;           // waited in vain for the process that keeps the connection
  // A writer leaves reading to another process until then. kNever: no writer does.
  Time reader_elsewhere_until = kNever;

  // Returns true if this process cannot use the connection now.
  [[nodiscard]] bool foreign() const { return given_up || elsewhere; }

  // Returns after how long a sleeper looks again: no process tells another what it does to the connection.
  // The pause doubles each time, up to 32 ms; up to 256 ms for a connection that is `closed` under its call.
  [[nodiscard]] Duration NextLook(bool closed) {
    const Duration pause = kFirstPause * (1 << looks_in_vain_);
    looks_in_vain_ = std::min(looks_in_vain_ + 1, closed ? kMostDoublingsOfClosed : kMostDoublings);
    return pause;
  }
  // Another process has used the connection.
  void NoteUse() {
    looks_in_vain_ = 0;
    left_unsent = false;
  }

 private:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr int kMostDoublings = 5;
  static constexpr int kMostDoublingsOfClosed = 8;

  int looks_in_vain_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SHARE_H_
