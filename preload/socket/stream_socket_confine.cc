#include <mutex>

#include "preload/socket/confining.h"
#include "preload/socket/holders.h"
#include "preload/socket/looks.h"
#include "preload/socket/session_moves.h"
#include "preload/socket/waiting.h"

namespace sdp::preload {

void StreamSocket::Confining::Prepare(int fd) {
  const Lock lock = Holders(s_).LockWithOwner();
  if (s_.usable()) s_.report_.PublishLate(*s_.session_, s_.names());
  if (s_.usable() && s_.session_->moving()) {
    s_.session_->moves().End();
    s_.AfterProgress();
  }
  // From here on no thread can be woken by its bell.
  if (s_.state_ == State::kSdp && Waiting(s_).LeaveBell()) Looks(s_).Look();
  s_.board_.WakeAll();
  if (s_.share_.with != nullptr) s_.share_.with->Prepare();
  if (!s_.numbers_.none()) s_.numbers_.IsNonblocking(s_.numbers_.any());
  if (s_.listening_.listener != nullptr) s_.listening_.listener->Bar();
  if (s_.state_ == State::kNew && !s_.family_.native && s_.tcp_.pending_error == 0) {
    s_.BecomePlain(fd, stats::FallbackReason::kSocketOption,
                   "a seccomp filter was set before the socket was connected");
  }
}

void StreamSocket::Confining::Finish(Time give_up) {
  std::unique_lock own(s_.mutex_.own());  // what the one before has found out stays
  Listener* const listener = s_.listening_.listener.get();
  own.unlock();
  if (listener != nullptr) listener->PrepareConfinement(give_up);
}

}  // namespace sdp::preload
