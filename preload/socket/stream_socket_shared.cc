// A connection that several processes hold after a fork. Each has a copy of its state; whoever uses it takes
// the newest first and leaves what became of it. Alone again, a process goes on without all this.

#include <poll.h>

#include <cerrno>
#include <new>
#include <utility>

#include "core/base/archive.h"
#include "preload/confinement.h"
#include "preload/log.h"
#include "preload/socket/clock.h"
#include "preload/socket/holders.h"
#include "preload/socket/looks.h"
#include "preload/socket/session_transfer.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

// How long a call that can neither wait for the connection by itself (AwaitConnection) nor say that nothing
// is there waits for a process that keeps it to itself, because it moves data with RDMA.
constexpr Duration kPatienceForOwner = std::chrono::seconds(2);

}  // namespace

void SocketMutex::Enter() { StreamSocket::Holders(*socket_).EnterShared(); }
void SocketMutex::EnterOrUnlock() {
  try {
    Enter();
  } catch (const std::bad_alloc&) {
    StreamSocket::Holders(*socket_).BreakShared();
    own_.unlock();
    throw;
  }
}

void SocketMutex::Leave() { StreamSocket::Holders(*socket_).LeaveShared(); }

void StreamSocket::Holders::EnterShared() {
  SharedConnection::View view = s_.share_.with->Lock();
  s_.share_.elsewhere = view == SharedConnection::View::kElsewhere;
  if (!Confined()) s_.numbers_.ForgetFlags();  // the open file's, which others may have changed
  if (s_.share_.elsewhere) return;
  s_.share_.gave_up_on_owner = false;
  if (s_.session_ == nullptr) return;
  if (s_.state_ == State::kSdp && Background::Runs()) QuietLinks::Enter(&s_.upkeep_);
  if (view == SharedConnection::View::kStale) {
    s_.share_.NoteUse();
    if (!ThawShared()) view = SharedConnection::View::kBroken;
  }
  const bool alone = !s_.share_.with->HasOthers(/*sure=*/false);
  if (view == SharedConnection::View::kBroken) return LoseShared();
  if (!s_.report_.open() && s_.state_ == State::kSdp)
    s_.report_.Open(Statistics(), *s_.session_, s_.names());  // a child's first use of it
  if (alone) {
    StopSharing();
    // What the last of them has left unsent, or unread on the link, is ours to see to: epoll sets, too,
    // looked for that in another way.
    if (s_.state_ == State::kSdp) {
      s_.AfterProgress();
      s_.upkeep_.LeaveToBackground();
      QuietLinks::Enter(&s_.upkeep_);
    }
    return;
  }
  if (view == SharedConnection::View::kStale && s_.state_ == State::kSdp) s_.AfterProgress();
  s_.share_.clean_when_locked = !s_.session_->transfer().changed();
  s_.session_->transfer().SetChanged(true);
}

void StreamSocket::Holders::AwaitOwner(Lock& lock) {
  if (!s_.share_.elsewhere || s_.share_.gave_up_on_owner) return;
  const Time give_up = Now() + kPatienceForOwner;
  while (s_.share_.elsewhere && Now() < give_up) {
    lock.unlock();
    Pause(std::chrono::milliseconds(1));
    lock.lock();
  }
  s_.share_.gave_up_on_owner = s_.share_.elsewhere;
}

StreamSocket::Lock StreamSocket::Holders::LockWithOwner() {
  Lock lock(s_.mutex_);
  AwaitOwner(lock);
  return lock;
}

void StreamSocket::Holders::OnlyLooks() {
  if (s_.share_.with != nullptr && !s_.share_.elsewhere && s_.session_ != nullptr &&
      s_.share_.clean_when_locked)
    s_.session_->transfer().SetChanged(false);
}

void StreamSocket::Holders::LeaveShared() {
  PublishShared();
  s_.share_.with->Unlock();
}

void StreamSocket::Holders::PublishShared() {
  if (s_.share_.elsewhere || s_.session_ == nullptr) return;
  s_.share_.left_unsent = s_.session_->has_unsent();
  if (!s_.session_->transfer().freezable() || !FreezeShared()) s_.share_.with->Keep();
}

void StreamSocket::Holders::DropShared() {
  if (s_.share_.with == nullptr) return;
  if (s_.share_.with->locked()) PublishShared();
  s_.mutex_.set_shared(false);
  s_.share_.with.reset();
  s_.share_.elsewhere = false;
}

// All that a process needs which has nothing of the connection but its descriptor.
template <typename Archive>
void StreamSocket::Holders::VisitShared(Archive& ar) {
  s_.tcp_.Visit(ar);
  s_.report_.Visit(ar);
  Visit(ar, s_.names_.local);
  Visit(ar, s_.names_.peer);
  Visit(ar, s_.names_.sdp_peer);
  s_.options_.kept.Visit(ar);
  s_.options_.NoteKept();
}

std::vector<std::byte> StreamSocket::Holders::FreezeFront() {
  Writer ar;
  VisitShared(ar);
  return ar.Take();
}

bool StreamSocket::Holders::ExpectShared(Bytes front) {
  Reader ar(front);
  VisitShared(ar);
  if (!ar.ok() || ar.left() != 0) return false;
  s_.session_ = Session::Transfer::Blank(s_.LinkFd(), s_.share_.with->TakeMemory());
  s_.session_->transfer().ReadLittle(true);
  s_.share_.elsewhere = true;
  return true;
}

bool StreamSocket::Holders::FreezeShared() {
  std::vector<std::byte> front = FreezeFront();
  if (!s_.session_->transfer().changed() && front == s_.share_.published_front && !s_.share_.with->Keeps())
    return true;
  Writer ar;
  ar.Append(front);
  s_.session_->transfer().Freeze(ar);
  if (!s_.share_.with->Publish(ar)) return false;
  s_.share_.published_front = std::move(front);
  s_.session_->transfer().SetChanged(false);
  return true;
}

bool StreamSocket::Holders::ThawShared() {
  std::vector<std::byte> state;
  if (!s_.share_.with->Read(&state)) return false;
  Reader ar(state);
  const auto before = std::pair(s_.tcp_.receive_shut, s_.tcp_.pending_error);
  VisitShared(ar);
  if (!ar.ok()) return false;
  // No edge of the engine's tells of these. A thread that is about to sleep looks again.
  if (std::pair(s_.tcp_.receive_shut, s_.tcp_.pending_error) != before) s_.board_.Bump();
  s_.share_.published_front.assign(state.begin(), state.end() - static_cast<ptrdiff_t>(ar.left()));
  s_.urgent_mark_.Forget();
  if (s_.session_ == nullptr) {
    s_.session_ = Session::Transfer::Thawed(ar.Take(ar.left()), s_.LinkFd(), s_.share_.with->TakeMemory());
    if (s_.session_ == nullptr) return false;
    s_.session_->transfer().ReadLittle(true);
  } else if (!s_.session_->transfer().Thaw(ar.Take(ar.left()), s_.LinkFd())) {
    return false;
  }
  s_.session_->transfer().SetChanged(false);
  return true;
}

void StreamSocket::Holders::BreakShared() {
  if (s_.share_.with == nullptr) return;
  s_.share_.with->Break();
  s_.share_.with->Unlock();
}

// Nobody knows any more what was sent and received.
void StreamSocket::Holders::LoseShared() {
  SDP_LOG(kInfo, "connection with %s is lost: a process that shared it died while it used it",
          ToEndpoint(s_.names_.peer).ToString().c_str());
  s_.share_.with->Break();
  StopSharing();
  s_.session_->engine().Abort(engine::AbortReason::kLocal);
  s_.session_->Pump();
  s_.tcp_.pending_error = ECONNRESET;
  if (s_.state_ == State::kSdp) s_.AfterProgress();
}

void StreamSocket::Holders::StopSharing() {
  s_.mutex_.set_shared(false);
  s_.share_.with.reset();
  s_.share_.elsewhere = false;
  s_.session_->transfer().ReadLittle(false);
  if (!s_.report_.open() && s_.state_ == State::kSdp) s_.report_.Open(Statistics(), *s_.session_, s_.names());
}

// With the shared lock, which is given back unless they do.
bool StreamSocket::Holders::OthersGoOn() {
  if (s_.share_.with == nullptr || s_.session_ == nullptr) return false;
  const SharedConnection::View view = s_.share_.with->Lock();
  const bool needed = s_.HasSleepers() || (view == SharedConnection::View::kCurrent &&
                                           (s_.share_.left_unsent || s_.share_.with->Keeps()));
  if (!needed && s_.share_.with->HasOthers(/*sure=*/true)) return true;
  s_.share_.with->Unlock();
  return false;
}

// With the shared lock: the others' from here on.
void StreamSocket::Holders::ForgetShared() {
  s_.mutex_.set_shared(false);
  s_.share_.with.reset();
  s_.share_.given_up = true;
}

int StreamSocket::Holders::AwaitConnection(Lock& lock, bool nonblocking, Duration timeout, Time* deadline) {
  if (*deadline == kNever && timeout != Duration::zero()) *deadline = Now() + timeout;
  const Signals signals = *deadline == kNever ? Signals::kRestart : Signals::kInterrupt;
  while (s_.foreign()) {
    if (s_.share_.given_up) return EIO;
    if (nonblocking) return EAGAIN;
    pollfd none{.fd = -1, .events = 0, .revents = 0};
    const int error = Waiting(s_).SleepAsWaiter(lock, &none, *deadline, signals);
    if (s_.state_ != State::kSdp) return EBADF;
    if (error == EINTR || (error == EAGAIN && Now() >= *deadline)) return error;
  }
  return 0;
}

bool StreamSocket::Holders::FinishSharedAtOnce() {
  const SharedConnection::View view = s_.share_.with->Lock();
  const bool alone = !s_.share_.with->HasOthers(/*sure=*/true);
  bool known = view == SharedConnection::View::kCurrent;
  // What those have left of it who have gone since. Behind a filter its memory might be malloc's (heap.h).
  if (alone && view == SharedConnection::View::kStale && !Confined()) known = ThawShared();
  s_.share_.with->Leave();
  s_.share_.with->Unlock();
  return alone && known;
}

bool StreamSocket::Holders::StartSharing() {
  s_.corked_.Push(*s_.session_);
  if (Waiting(s_).LeaveBell()) Looks(s_).Look();
  s_.share_.with = SharedConnection::Make();
  if (s_.share_.with == nullptr) return false;
  s_.mutex_.set_shared(true);
  s_.share_.published_front.clear();
  s_.session_->transfer().ReadLittle(true);
  s_.share_.left_unsent = s_.session_->has_unsent();
  // From here on they look by themselves: what another process takes from the link wakes nobody here.
  s_.board_.TellChange();
  s_.board_.WakeAll();
  return true;
}

}  // namespace sdp::preload
