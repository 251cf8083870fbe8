// A process that a signal ends (signal_end.h): what becomes of its connections. It is what close does to
// each, and then the last bytes have to leave.
#include <mutex>
#include <utility>

#include "preload/bounded_lock.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

bool StreamSocket::StepToEnd(pthread_t interrupted) {
  {
    std::unique_lock own(mutex_.own(), std::defer_lock);
    if (!LockBounded(own)) return false;
    if (session_ != nullptr && session_->being_read() && reader_.Is(interrupted)) {
      reader_.Clear();
      session_->AbandonReading();  // it was asleep (SignalEnd)
    }
    if (LeaveToOthers()) {
      foreign_ = true;
      return true;
    }
  }
  Lock lock(mutex_, std::defer_lock);
  if (!LockBounded(lock)) return false;
  if (shared_ != nullptr && session_ != nullptr) {
    const auto has_to_leave = [this] {
      return !foreign() && (responsible_ || lending_.offered()) && keeps_from_others() &&
             !session_->link_ended();
    };
    if (has_to_leave()) {
      session_->Pump();
      session_->ReadAvailable();
      CollectLoans();
      LeadMove();
      if (has_to_leave()) return false;
    }
    FinishShared(lock, Time{});
  }
  const bool first = !std::exchange(ending_, true);
  if (listener_ != nullptr && first) listener_->LeaveToOthers();
  if (session_ == nullptr) return true;
  if (shared_ != nullptr) {
    DropShared();
    foreign_ = true;
    return true;
  }
  if (foreign() || session_->link_ended() || LinkFd() < 0) return true;
  if (first && (state_ == State::kSdp || leaving_)) {
    leaving_ = false;
    EndStream();
  }
  session_->Pump();
  session_->ReadAvailable();  // also for the kernel's sake, which resets a connection with bytes unread
  CollectLoans();
  LeadMove();
  return AllSent(LinkFd());
}

void StreamSocket::EndAtOnce() {
  std::unique_lock own(mutex_.own(), std::defer_lock);
  if (!LockBounded(own)) return;
  if (shared_ != nullptr) {
    own.release();  // as FinishAtOnce()
    if (!FinishSharedAtOnce()) return;
  }
  SayEndAtOnce();
}

}  // namespace sdp::preload
