// A StreamSocket around a fork.
#include <time.h>

#include "preload/critical.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

// How long a thread that leaves its read has the lock to itself.
constexpr Duration kRestForReader = std::chrono::microseconds(50);

}  // namespace

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
    Pause(kRestForReader);
    own.lock();
  }
}

void StreamSocket::UnlockAfterFork() {
  locked_for_fork_ = reads_by_poll_ = false;
  mutex_.own().unlock();
}

void StreamSocket::NoteForkInParent() {
  if (listener_ != nullptr) listener_->NoteFork(/*in_child=*/false);
  // The message that asks for the memory back may not have left. The helper sends it, and looks for the
  // answer.
  if (state_ == State::kSdp && lending_.offered()) LeaveToBackground();
}

void StreamSocket::ShareWithChild() {
  child_shares_ = false;
  if (!shareable()) return;
  const bool first = shared_ == nullptr;
  if (first && !StartSharing()) return;
  (void)shared_->Lock();
  struct Unlocked {
    SharedConnection& shared;
    ~Unlocked() { shared.Unlock(); }
  } const unlocked{*shared_};
  if (first && !session_->freezable()) shared_->Keep();
  child_shares_ = shared_->Add(shared_->arena().child());
}

void StreamSocket::DisownAfterFork() {
  corked_.Clear();
  trimming_ = false;  // the background has forgotten it
  lending_.ForgetInChild();
  if (state_ == State::kSdp || state_ == State::kClosed) {
    report_.ForgetSlot();
    responsible_ = leaving_ = false;
    if (session_ != nullptr) {
      session_->ForgetReader();
      session_->recorder().ForgetAfterFork();
    }
    foreign_ = foreign_ || shared_ == nullptr || !child_shares_;
    if (!foreign_) {
      shared_->AdoptAfterFork();
    } else if (shared_ != nullptr) {
      shared_->ForgetAfterFork();
      shared_.reset();
      mutex_.set_shared(false);
    }
  }
  if (state_ == State::kClosed && attempt_ != nullptr) {
    attempt_->Disown();
    attempt_.reset();
  }
  if (listener_ != nullptr) {
    listener_->NoteFork(/*in_child=*/true);
    report_.ForgetAccepted();
  }
  if (state_ == State::kConnecting) {
    attempt_->Disown();
    attempt_.reset();
    state_ = State::kNew;
    // The handshake on the link is the parent's: what the child would say there, or hear, is none of its
    // business.
    const int fresh = real.socket(domain_, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (const int fd : descriptors_) {
      if (fresh < 0 || real.dup3(fresh, fd, (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) < 0)
        real.close(fd);
    }
    if (fresh >= 0) real.close(fresh);
  }
  board_.ForgetWaiters();
  calls_inside_ = 0;  // those threads are the parent's
}

}  // namespace sdp::preload
