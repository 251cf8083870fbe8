// A StreamSocket around a fork.
#include <fcntl.h>

#include "preload/real_calls.h"
#include "preload/socket/forking.h"
#include "preload/socket/holders.h"
#include "preload/socket/session_transfer.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

bool StreamSocket::Forking::LockForFork() {
  if (s_.share_.locked_for_fork) return false;
  s_.mutex_.own().lock();
  s_.share_.locked_for_fork = true;
  if (s_.state_ == State::kNew && s_.share_.co_holders == CoHolders::kNone)
    s_.share_.co_holders = CoHolders::kBySameNumber;
  return true;
}

void StreamSocket::Forking::UnlockAfterFork() {
  s_.share_.locked_for_fork = false;
  s_.mutex_.own().unlock();
}

void StreamSocket::Forking::NoteForkInParent() {
  if (s_.listening_.listener != nullptr) s_.listening_.listener->NoteFork(/*in_child=*/false);
  // The message that asks for the memory back may not have left. The helper sends it, and looks for the
  // answer.
  if (s_.state_ == State::kSdp && s_.lending_.offered()) s_.upkeep_.LeaveToBackground();
}

void StreamSocket::Forking::ShareWithChild() {
  s_.share_.child_joins = false;
  if (!s_.shareable()) return;
  const bool first = s_.share_.with == nullptr;
  if (first && !Holders(s_).StartSharing()) return;
  (void)s_.share_.with->Lock();
  struct Unlocked {
    SharedConnection& shared;
    ~Unlocked() { shared.Unlock(); }
  } const unlocked{*s_.share_.with};
  if (first && !s_.session_->transfer().freezable()) s_.share_.with->Keep();
  s_.share_.child_joins = s_.share_.with->Add(s_.share_.with->arena().child());
}

void StreamSocket::Forking::DisownAfterFork() {
  s_.corked_.Clear();
  s_.use_.trimming = false;  // the background has forgotten it
  s_.lending_.ForgetInChild();
  if (s_.state_ == State::kSdp || s_.state_ == State::kClosed) {
    s_.report_.ForgetSlot();
    s_.share_.left_unsent = s_.share_.closing_unsent = false;
    if (s_.session_ != nullptr) s_.session_.last_known()->recorder().ForgetAfterFork();
    s_.share_.given_up = s_.share_.given_up || s_.share_.with == nullptr || !s_.share_.child_joins;
    if (!s_.share_.given_up) {
      s_.share_.with->AdoptAfterFork();
    } else if (s_.share_.with != nullptr) {
      s_.share_.with->ForgetAfterFork();
      s_.share_.with.reset();
      s_.mutex_.set_shared(false);
    }
  }
  if (s_.state_ == State::kClosed && s_.connecting_.attempt != nullptr) {
    s_.connecting_.attempt->Disown();
    s_.connecting_.attempt.reset();
  }
  if (s_.listening_.listener != nullptr) {
    s_.listening_.listener->NoteFork(/*in_child=*/true);
    s_.report_.ForgetAccepted();
  }
  if (s_.state_ == State::kConnecting) {
    s_.connecting_.attempt->Disown();
    s_.connecting_.attempt.reset();
    s_.state_ = State::kNew;
    // The handshake on the link is the parent's: what the child would say there, or hear, is none of its
    // business.
    const int fresh = real.socket(s_.family_.domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (const int fd : s_.numbers_.all()) {
      if (fresh < 0 || !PutInPlace(fresh, fd)) real.close(fd);
    }
    if (fresh >= 0) real.close(fresh);
  }
  s_.board_.ForgetWaiters();
  s_.calls_inside_.ForgetInChild();
}

}  // namespace sdp::preload
