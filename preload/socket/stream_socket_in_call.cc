// A StreamSocket whose last number is closed while other threads sleep in its calls. The kernel keeps a file
// for the calls that are in it; so does the library: a hidden number stands for the connection until the last
// of those calls returns, and that one closes it.
#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "preload/socket/departure.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

// A thread that a handler took out of its call by a jump does not come back; and the handler's own thread
// would ask the kernel for the number again, which is no more.
bool StreamSocket::Departure::KeepForCalls(int fd) {
  if (s_.calls_inside_.count() == 0 || !s_.usable() || s_.session_->link_ended()) return false;
  if (!s_.calls_inside_.all_return() || Confined() || Critical::MayBeInHandler()) return false;
  const int hidden = HiddenFds::Duplicate(fd);
  if (hidden < 0) return false;
  QuietLinks::Unwatch(&s_.upkeep_, fd);
  s_.lingering_.Begin(hidden);
  s_.calls_inside_.Keep();
  s_.session_->queue_pair().SetEventFd(hidden);
  s_.board_.ForgetObservers();
  if (s_.upkeep_.relied_on()) s_.board_.WakeAll();
  return true;
}

void StreamSocket::Departure::EndForCalls(Lock& lock) {
  const NoCancellation no_cancellation;
  s_.calls_inside_.EndKeeping();
  const int fd = s_.lingering_.End();
  if (fd < 0) return;
  if (s_.state_ == State::kSdp) {
    CloseLast(lock, fd);
  } else {
    HiddenFds::Close(fd);
  }
}

}  // namespace sdp::preload
