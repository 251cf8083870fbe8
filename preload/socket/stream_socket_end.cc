// A StreamSocket whose process ends: by itself, by a signal (signal_end.h) or by an exec. The process ends
// each connection as close() would, and then waits until the last bytes have left.
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>

#include "preload/bounded_lock.h"
#include "preload/confinement.h"
#include "preload/real_calls.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/aborted_link.h"
#include "preload/socket/clock.h"
#include "preload/socket/departure.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/stream_socket.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

// The process is ending, and its last bytes are on their way. Other threads may still send, and SIGPIPE must
// not end the process sooner.
constinit std::atomic<bool> process_ends{false};

}  // namespace

void StreamSocket::Departure::NoteProcessEnds() { process_ends.store(true, std::memory_order_relaxed); }

bool StreamSocket::Departure::ProcessEnds() { return process_ends.load(std::memory_order_relaxed); }

// A process that keeps a shared connection to itself is not waited for: its end is that process's to make.
bool StreamSocket::Departure::StepToEnd(ProcessEnd how) {
  const bool exec = how == ProcessEnd::kExec;
  {
    std::unique_lock own(s_.mutex_.own(), std::defer_lock);
    if (!LockBounded(own, Pause)) return false;
    if (exec && s_.numbers_.SurvivesExec()) return true;
    if (Holders(s_).OthersGoOn()) {
      // The exec may fail, and then the connection goes on here, too.
      exec ? s_.share_.with->Unlock() : Holders(s_).ForgetShared();
      return true;
    }
  }
  Lock lock(s_.mutex_, std::defer_lock);
  if (!LockBounded(lock, Pause)) return false;
  if (s_.share_.with != nullptr && s_.session_ != nullptr) {
    const auto has_to_leave = [this] {
      return !s_.foreign() && (s_.share_.left_unsent || s_.lending_.offered()) &&
             Holders(s_).keeps_from_others() && !s_.session_->link_ended();
    };
    if (has_to_leave()) {
      StepToSent();
      if (has_to_leave()) return false;
    }
    if (!s_.foreign() && !s_.share_.with->HasOthers(/*sure=*/true)) Holders(s_).StopSharing();
  }
  if (s_.listening_.listener != nullptr) s_.listening_.listener->LeaveToOthers();
  if (s_.state_ == State::kClosed && s_.connecting_.attempt != nullptr && !s_.foreign() &&
      !StepClosedConnect(Now()))
    return false;
  if (s_.session_ == nullptr) return true;
  if (s_.share_.with != nullptr) {
    if (exec) return true;  // if it fails, this process still has the connection, too
    Holders(s_).DropShared();
    s_.share_.given_up = true;
    return true;
  }
  if (s_.foreign() || s_.session_->link_ended() || s_.LinkFd() < 0) return true;
  if (!s_.lingering_.process_ends() && (s_.state_ == State::kSdp || s_.share_.closing_unsent)) {
    s_.share_.closing_unsent = false;
    EndStream();
    s_.lingering_.NoteProcessEnds();
  }
  StepToSent();
  return AllSent(s_.LinkFd());
}

// What the peer sent and no thread reads would make the kernel reset the connection, and the peer lose our
// last bytes. So the link is read as well.
void StreamSocket::Departure::StepToSent() {
  s_.session_->Pump();
  s_.session_->Read();
  Lender(s_).CollectLoans();
  s_.upkeep_.LeadMove();
}

void StreamSocket::Departure::EndAtOnce() {
  std::unique_lock own(s_.mutex_.own(), std::defer_lock);
  if (!LockBounded(own, Pause)) return;
  if (s_.share_.with != nullptr) {
    // A process that dies in the middle of its use takes a shared connection with it. The lock is not given
    // back: no other thread of this process uses the connection any more.
    own.release();
    if (!Holders(s_).FinishSharedAtOnce()) return;
  }
  if (s_.state_ != State::kSdp || s_.share_.given_up || s_.session_->link_ended() || s_.LinkFd() < 0) return;
  int unread = 0;
  if (!Confined()) {
    s_.session_->Read();  // the peer's end is not unread data
    (void)real.ioctl(s_.LinkFd(), FIONREAD, &unread);
  }
  // Unread data is for TCP to reset the connection, and a link that just ends is that to the peer.
  if (unread != 0 || s_.engine().readable_bytes() + s_.engine().advertised_bytes() > 0 ||
      s_.options_.kept.resets_at_close())
    return;
  if (s_.session_->link_ended() || s_.session_->has_unsent()) return;
  s_.corked_.Push(*s_.session_);
  s_.session_->engine().CloseSend();
  s_.session_->Pump();
}

// Shut down both ways, a socket takes no more: as TCP, it resets who sends all the same.
void StreamSocket::Departure::AnswerRefused() {
  engine::Engine& e = s_.session_->engine();
  if (e.state() == engine::State::kAborted || s_.session_->link_ended()) return;
  e.Abort(engine::AbortReason::kLocal);
  s_.session_->Pump();
  s_.tcp_.pending_error = ECONNRESET;
}

void StreamSocket::Departure::NoteAbort() {
  const engine::Engine& e = s_.session_->engine();
  const verbs::LinkCause& cause = s_.session_->cause();
  s_.tcp_.abort_noted = true;
  s_.board_.Bump();
  if (e.state() != engine::State::kAborted) return;  // in good order
  if (PeerLeftInOrder(e, cause)) return;
  if (e.abort_reason() != engine::AbortReason::kLocal) {
    s_.tcp_.pending_error = ErrorOfAbort(e, cause);
    LogAbort(s_.names_.peer, e.abort_reason(), cause, s_.session_->recorder());
  }
  if (s_.session_->aborted_link().outlives()) Background::Add(&s_.upkeep_, Duration::zero());
  s_.report_.PublishAll(*s_.session_, s_.names());
}

}  // namespace sdp::preload
