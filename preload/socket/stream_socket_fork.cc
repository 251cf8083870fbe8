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
  if (share_.locked_for_fork) return false;
  mutex_.own().lock();
  share_.locked_for_fork = true;
  if (state_ == State::kNew && share_.co_holders == CoHolders::kNone)
    share_.co_holders = CoHolders::kBySameNumber;
  return true;
}

void StreamSocket::EndLinkRead(Time deadline) {
  std::unique_lock own(mutex_.own());
  if (state_ != State::kSdp || session_ == nullptr) return;
  sleeps_.reads_by_poll = true;
  if (!session_->being_read()) return;
  if (sleeps_.reader.IsCaller()) {  // in a handler, or it has jumped
    const bool sleeps = !sleeps_.reader.JumpedOver(__builtin_frame_address(0));
    if (!sleeps) return session_->AbandonReading();
    if (!Critical::BreakOff(queue_pair().event_fd()) || !session_->LeaveReader(LinkFd())) return;
    urgent_mark_.ForgetAnnouncements();  // what was frozen does not count them
    return;
  }
  if (!sleeps_.reader.End()) return session_->NudgeReader();
  while (session_ != nullptr && session_->being_read() && Now() < deadline) {
    own.unlock();
    Pause(kRestForReader);
    own.lock();
  }
}

void StreamSocket::UnlockAfterFork() {
  share_.locked_for_fork = sleeps_.reads_by_poll = false;
  mutex_.own().unlock();
}

void StreamSocket::NoteForkInParent() {
  if (listening_.listener != nullptr) listening_.listener->NoteFork(/*in_child=*/false);
  // The message that asks for the memory back may not have left. The helper sends it, and looks for the
  // answer.
  if (state_ == State::kSdp && lending_.offered()) LeaveToBackground();
}

void StreamSocket::ShareWithChild() {
  share_.child_joins = false;
  if (!shareable()) return;
  const bool first = share_.with == nullptr;
  if (first && !StartSharing()) return;
  (void)share_.with->Lock();
  struct Unlocked {
    SharedConnection& shared;
    ~Unlocked() { shared.Unlock(); }
  } const unlocked{*share_.with};
  if (first && !session_->freezable()) share_.with->Keep();
  share_.child_joins = share_.with->Add(share_.with->arena().child());
}

void StreamSocket::DisownAfterFork() {
  corked_.Clear();
  use_.trimming = false;  // the background has forgotten it
  lending_.ForgetInChild();
  if (state_ == State::kSdp || state_ == State::kClosed) {
    report_.ForgetSlot();
    share_.left_unsent = share_.closing_unsent = false;
    if (session_ != nullptr) {
      session_->ForgetReader();
      session_->recorder().ForgetAfterFork();
    }
    share_.not_inherited = share_.not_inherited || share_.with == nullptr || !share_.child_joins;
    if (!share_.not_inherited) {
      share_.with->AdoptAfterFork();
    } else if (share_.with != nullptr) {
      share_.with->ForgetAfterFork();
      share_.with.reset();
      mutex_.set_shared(false);
    }
  }
  if (state_ == State::kClosed && connecting_.attempt != nullptr) {
    connecting_.attempt->Disown();
    connecting_.attempt.reset();
  }
  if (listening_.listener != nullptr) {
    listening_.listener->NoteFork(/*in_child=*/true);
    report_.ForgetAccepted();
  }
  if (state_ == State::kConnecting) {
    connecting_.attempt->Disown();
    connecting_.attempt.reset();
    state_ = State::kNew;
    // The handshake on the link is the parent's: what the child would say there, or hear, is none of its
    // business.
    const int fresh = real.socket(family_.domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (const int fd : numbers_.all()) {
      if (fresh < 0 || real.dup3(fresh, fd, (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) < 0)
        real.close(fd);
    }
    if (fresh >= 0) real.close(fresh);
  }
  board_.ForgetWaiters();
  calls_inside_.ForgetInChild();
}

}  // namespace sdp::preload
