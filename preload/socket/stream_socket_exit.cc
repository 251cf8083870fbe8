// What a StreamSocket does when its process ends, by itself, by an exec or at once, and around a fork.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>

#include "preload/bounded_lock.h"
#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/unbounded_poll.h"

namespace sdp::preload {
namespace {

// How often one looks what a reader in its sleep, or the helper, has brought about.
constexpr Duration kLookAtReader = std::chrono::milliseconds(1);
constexpr Duration kLookAtHelper = std::chrono::milliseconds(10);
// How long a thread that leaves its read has the lock to itself.
constexpr timespec kRestForReader{.tv_sec = 0, .tv_nsec = 50'000};

// A handler may have interrupted whoever has what that needs; and to ask whether it is one takes a system
// call that a confined process may not make.
bool MayLeadOthers() { return !Confined() && !Critical::MayBeInHandler(); }

}  // namespace

void StreamSocket::BeginToFinish() {
  std::unique_lock own(mutex_.own(), std::defer_lock);
  if (!LockBounded(own)) return;
  if (listener_ != nullptr) listener_->LeaveToOthers();  // before any connection keeps the process waiting
  if (shared_ != nullptr || state_ != State::kSdp || foreign() || session_->link_ended()) return;
  EndStream();
  if (MayLeadOthers()) LeaveToBackground();
}

bool StreamSocket::SurvivesExec() const {
  return std::any_of(descriptors_.begin(), descriptors_.end(),
                     [](int fd) { return (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0; });
}

void StreamSocket::LeaveListenerForExec() {
  std::unique_lock own(mutex_.own(), std::defer_lock);
  if (LockBounded(own) && listener_ != nullptr && !SurvivesExec()) listener_->LeaveToOthers();
}

bool StreamSocket::EndForExec(Time deadline) {
  {
    // Nor is anybody waited for who has the connection to himself (AwaitOwner).
    std::unique_lock own(mutex_.own(), std::defer_lock);
    if (!LockBounded(own) || SurvivesExec() || EndsWithOthers()) return false;
  }
  Lock lock(mutex_, std::defer_lock);
  if (!LockBounded(lock)) return false;
  AwaitOwner(lock, deadline);
  if (session_ == nullptr || foreign()) return false;
  if (shared_ != nullptr) {
    FinishShared(lock, deadline);  // or what it has of the connection, the others lose
    if (shared_ != nullptr || session_ == nullptr || foreign()) return false;
  }
  if (state_ == State::kClosed && !leaving_) return true;
  if ((state_ != State::kSdp && !leaving_) || session_->link_ended()) return false;
  leaving_ = false;
  EndStream();
  return true;
}

void StreamSocket::FinishAtExit(Time deadline) {
  {
    // Nor does one wait for whoever has the connection to himself, as in a move (AwaitOwner).
    std::unique_lock own(mutex_.own(), std::defer_lock);
    if (!LockBounded(own)) return;
    if (LeaveToOthers()) {
      foreign_ = true;
      return;
    }
  }
  Lock lock(mutex_, std::defer_lock);
  if (!LockBounded(lock)) return;
  AwaitOwner(lock, deadline);
  if (shared_ != nullptr && session_ != nullptr) FinishShared(lock, deadline);
  if (listener_ != nullptr) listener_->LeaveToOthers();
  while (state_ == State::kClosed && attempt_ != nullptr && !foreign() && Now() < deadline &&
         !StepClosedConnect(Now())) {
    const Background::Wait wait = attempt_->wait();
    pollfd link{.fd = wait.fd, .events = wait.events, .revents = 0};
    timespec storage;
    const timespec* const timeout =
        Remaining(std::min({wait.deadline, linger_until_, deadline, Now() + kLookAtHelper}), &storage);
    lock.unlock();
    UnboundedPoll(&link, 1, timeout, nullptr);
    lock.lock();
  }
  if (session_ == nullptr) return;  // or over, while that waited
  if (shared_ != nullptr) {
    DropShared();
    foreign_ = true;
    return;
  }
  if (foreign() || session_->link_ended()) return;
  if (LinkFd() < 0) return;
  if (state_ == State::kSdp || leaving_) {  // alone now
    leaving_ = false;
    if (session_->engine().can_send()) EndStream();  // it was common to several when the process began to end
  }
  session_->Pump();
  while (!session_->AllTaken() && Now() < deadline) {
    // A thread that sleeps in a read still lives, and takes what the peer says. So does the helper, which
    // goes on with all the connections meanwhile: whoever reads this one may first want another's end.
    const bool read = session_->being_read();
    pollfd link{.fd = read ? -1 : LinkOf(LinkFd()), .events = WatchEvents(), .revents = 0};
    const Time again = Now() + (read ? kLookAtReader : kLookAtHelper);
    timespec storage;
    const timespec* const timeout =
        Remaining(std::min({again, deadline, session_->move_deadline()}), &storage);
    lock.unlock();
    UnboundedPoll(&link, 1, timeout, nullptr);
    if (MayLeadOthers()) (void)Background::RunInline();
    lock.lock();
    if (session_ == nullptr || LinkFd() < 0) return;
    session_->Pump();
    if (session_->being_read()) continue;
    session_->ReadAvailable();
    LeadMove();
  }
  // What the peer sent and nobody reads would make the kernel reset the connection, and the peer lose our
  // last bytes.
  if (!session_->being_read()) session_->ReadAvailable();
}

void StreamSocket::FinishAtOnce() {
  std::unique_lock own(mutex_.own(), std::defer_lock);
  if (mutex_.shared()) {
    // Whoever dies in the middle of its use takes a shared connection with it. The lock is not given back: no
    // other thread of this process uses the connection any more.
    if (!LockBounded(own)) return;
    own.release();
  } else if (!own.try_lock()) {
    return;
  }
  if (shared_ != nullptr && !FinishSharedAtOnce()) return;
  SayEndAtOnce();
}

void StreamSocket::SayEndAtOnce() {
  if (state_ != State::kSdp || foreign_ || session_->link_ended() || LinkFd() < 0) return;
  int unread = 0;
  if (!Confined()) {
    session_->ReadAvailable();  // the peer's end, say, is nothing that anybody has missed
    (void)real.ioctl(LinkFd(), FIONREAD, &unread);
  }
  // Unread data is for TCP to reset the connection, and a link that just ends is that to the peer.
  const linger& option = options_.linger_option();
  if (unread != 0 || engine().readable_bytes() + engine().advertised_bytes() > 0 ||
      (option.l_onoff != 0 && option.l_linger == 0))
    return;
  if (session_->link_ended() || session_->has_unsent()) return;
  corked_.Push(*session_);
  session_->engine().CloseSend();
  session_->Pump();
}

bool StreamSocket::LockForFork() {
  if (locked_for_fork_) return false;
  mutex_.own().lock();
  locked_for_fork_ = true;
  if (state_ == State::kNew && others_ == CoHolders::kNone) others_ = CoHolders::kBySameNumber;
  return true;
}

void StreamSocket::EndLinkRead(Time deadline) {
  std::unique_lock own(mutex_.own());
  if (state_ != State::kSdp || session_ == nullptr) return;
  reads_by_poll_ = true;
  if (!session_->being_read()) return;
  if (reader_.IsCaller()) {  // in a handler, or it has jumped
    const bool sleeps = !reader_.JumpedOver(__builtin_frame_address(0));
    if (!sleeps) return session_->AbandonReading();
    if (!Critical::BreakOff(queue_pair().event_fd()) || !session_->LeaveReader(LinkFd())) return;
    urgent_mark_.ForgetAnnouncements();  // what was frozen does not count them
    return;
  }
  if (!reader_.End()) return session_->NudgeReader();
  while (session_ != nullptr && session_->being_read() && Now() < deadline) {
    own.unlock();
    nanosleep(&kRestForReader, nullptr);
    own.lock();
  }
}

void StreamSocket::UnlockAfterFork() {
  locked_for_fork_ = reads_by_poll_ = false;
  mutex_.own().unlock();
}

void StreamSocket::NoteForkInParent() {
  if (listener_ != nullptr) listener_->NoteFork(/*in_child=*/false);
  // What asks for it back may not have left; for the answer somebody has to look.
  if (state_ == State::kSdp && lending_.offered()) LeaveToBackground();
}

}  // namespace sdp::preload
