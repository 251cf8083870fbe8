// A StreamSocket whose process ends: by itself, by a signal (signal_end.h) or by an exec. The process ends
// each connection as close() would, and then waits until the last bytes have left.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <mutex>

#include "preload/bounded_lock.h"
#include "preload/confinement.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

// A process that keeps a shared connection to itself is not waited for: its end is that process's to make.
bool StreamSocket::StepToEnd(ProcessEnd how, pthread_t interrupted) {
  const bool exec = how == ProcessEnd::kExec;
  {
    std::unique_lock own(mutex_.own(), std::defer_lock);
    if (!LockBounded(own)) return false;
    if (session_ != nullptr && session_->being_read() && sleeps_.reader.Is(interrupted)) {
      sleeps_.reader.Clear();
      session_->AbandonReading();  // it was asleep (SignalEnd)
    }
    if (exec && numbers_.SurvivesExec()) return true;
    if (OthersGoOn()) {
      // The exec may fail, and then the connection goes on here, too.
      exec ? share_.with->Unlock() : ForgetShared();
      return true;
    }
  }
  Lock lock(mutex_, std::defer_lock);
  if (!LockBounded(lock)) return false;
  if (share_.with != nullptr && session_ != nullptr) {
    const auto has_to_leave = [this] {
      return !foreign() && (share_.left_unsent || lending_.offered()) && keeps_from_others() &&
             !session_->link_ended();
    };
    if (has_to_leave()) {
      StepToSent();
      if (has_to_leave()) return false;
    }
    if (!foreign() && !share_.with->HasOthers(/*sure=*/true)) StopSharing();
  }
  if (listening_.listener != nullptr) listening_.listener->LeaveToOthers();
  if (state_ == State::kClosed && connecting_.attempt != nullptr && !foreign() && !StepClosedConnect(Now()))
    return false;
  if (session_ == nullptr) return true;
  if (share_.with != nullptr) {
    if (exec) return true;  // if it fails, this process still has the connection, too
    DropShared();
    share_.not_inherited = true;
    return true;
  }
  if (foreign() || session_->link_ended() || LinkFd() < 0) return true;
  if (!lingering_.process_ends() && (state_ == State::kSdp || share_.closing_unsent)) {
    share_.closing_unsent = false;
    EndStream();
    lingering_.NoteProcessEnds();
  }
  StepToSent();
  return AllSent(LinkFd());
}

// What the peer sent and no thread reads would make the kernel reset the connection, and the peer lose our
// last bytes. So the link is read as well.
void StreamSocket::StepToSent() {
  session_->Pump();
  session_->ReadAvailable();
  CollectLoans();
  LeadMove();
}

void StreamSocket::EndAtOnce() {
  std::unique_lock own(mutex_.own(), std::defer_lock);
  if (!LockBounded(own)) return;
  if (share_.with != nullptr) {
    // A process that dies in the middle of its use takes a shared connection with it. The lock is not given
    // back: no other thread of this process uses the connection any more.
    own.release();
    if (!FinishSharedAtOnce()) return;
  }
  if (state_ != State::kSdp || share_.not_inherited || session_->link_ended() || LinkFd() < 0) return;
  int unread = 0;
  if (!Confined()) {
    session_->ReadAvailable();  // the peer's end is not unread data
    (void)real.ioctl(LinkFd(), FIONREAD, &unread);
  }
  // Unread data is for TCP to reset the connection, and a link that just ends is that to the peer.
  const linger& option = options_.kept.linger_option();
  if (unread != 0 || engine().readable_bytes() + engine().advertised_bytes() > 0 ||
      (option.l_onoff != 0 && option.l_linger == 0))
    return;
  if (session_->link_ended() || session_->has_unsent()) return;
  corked_.Push(*session_);
  session_->engine().CloseSend();
  session_->Pump();
}

}  // namespace sdp::preload
