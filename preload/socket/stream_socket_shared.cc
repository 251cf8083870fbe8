// A connection that several processes hold after a fork. Each has a copy of its state; whoever uses it takes
// the newest first and leaves what became of it. Alone again, a process goes on without all this.
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/archive.h"
#include "preload/confinement.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

// How long a call that can neither wait for the connection by itself (AwaitConnection) nor say that nothing
// is there waits for a process that keeps it to itself, because it moves data with RDMA.
constexpr Duration kPatienceForOwner = std::chrono::seconds(2);

}  // namespace

void SocketMutex::Enter() { socket_->EnterShared(); }
void SocketMutex::Leave() { socket_->LeaveShared(); }

void StreamSocket::EnterShared() {
  SharedConnection::View view = share_.with->Lock();
  share_.elsewhere = view == SharedConnection::View::kElsewhere;
  if (!Confined()) numbers_.ForgetFlags();  // the open file's, which others may have changed
  if (share_.elsewhere) return;
  share_.gave_up_on_owner = false;
  if (session_ == nullptr) return;
  if (state_ == State::kSdp && Background::Runs()) QuietLinks::Enter(&quiet_);
  if (view == SharedConnection::View::kStale) {
    share_.NoteUse();
    if (!ThawShared()) view = SharedConnection::View::kBroken;
  }
  const bool alone = !share_.with->HasOthers(/*sure=*/false);
  if (view == SharedConnection::View::kBroken) return LoseShared();
  if (!report_.open() && state_ == State::kSdp)
    report_.Open(Statistics(), *session_, names());  // a child's first use of it
  if (alone) {
    StopSharing();
    // What the last of them has left unsent, or unread on the link, is ours to see to: epoll sets, too,
    // looked for that in another way.
    if (state_ == State::kSdp) {
      AfterProgress();
      LeaveToBackground();
      QuietLinks::Enter(&quiet_);
    }
    return;
  }
  if (view == SharedConnection::View::kStale && state_ == State::kSdp) AfterProgress();
  share_.clean_when_locked = !session_->changed();
  session_->SetChanged(true);
}

void StreamSocket::AwaitOwner(Lock& lock) {
  if (!share_.elsewhere || share_.gave_up_on_owner) return;
  const Time give_up = Now() + kPatienceForOwner;
  while (share_.elsewhere && Now() < give_up) {
    lock.unlock();
    Pause(std::chrono::milliseconds(1));
    lock.lock();
  }
  share_.gave_up_on_owner = share_.elsewhere;
}

StreamSocket::Lock StreamSocket::LockWithOwner() {
  Lock lock(mutex_);
  AwaitOwner(lock);
  return lock;
}

void StreamSocket::OnlyLooks() {
  if (share_.with != nullptr && !share_.elsewhere && session_ != nullptr && share_.clean_when_locked)
    session_->SetChanged(false);
}

void StreamSocket::LeaveShared() {
  PublishShared();
  share_.with->Unlock();
}

void StreamSocket::PublishShared() {
  if (share_.elsewhere || session_ == nullptr) return;
  share_.left_unsent = session_->has_unsent();
  if (!session_->freezable() || !FreezeShared()) share_.with->Keep();
}

void StreamSocket::DropShared() {
  if (share_.with == nullptr) return;
  if (share_.with->locked()) PublishShared();
  mutex_.set_shared(false);
  share_.with.reset();
  share_.elsewhere = false;
}

// All that a process needs which has nothing of the connection but its descriptor.
template <typename Archive>
void StreamSocket::VisitShared(Archive& ar) {
  tcp_.Visit(ar);
  report_.Visit(ar);
  Visit(ar, names_.local);
  Visit(ar, names_.peer);
  Visit(ar, names_.sdp_peer);
  options_.kept.Visit(ar);
}

std::vector<std::byte> StreamSocket::FreezeFront() {
  Writer ar;
  VisitShared(ar);
  return ar.Take();
}

bool StreamSocket::ExpectShared(Bytes front) {
  Reader ar(front);
  VisitShared(ar);
  if (!ar.ok() || ar.left() != 0) return false;
  session_ = Session::Blank(LinkFd(), share_.with->TakeMemory());
  session_->ReadLittle(true);
  share_.elsewhere = true;
  return true;
}

bool StreamSocket::FreezeShared() {
  std::vector<std::byte> front = FreezeFront();
  if (!session_->changed() && front == share_.published_front && !share_.with->Keeps()) return true;
  Writer ar;
  ar.Append(front);
  session_->Freeze(ar);
  if (!share_.with->Publish(ar)) return false;
  share_.published_front = std::move(front);
  session_->SetChanged(false);
  return true;
}

bool StreamSocket::ThawShared() {
  std::vector<std::byte> state;
  if (!share_.with->Read(&state)) return false;
  Reader ar(state);
  const auto before = std::pair(tcp_.receive_shut, tcp_.pending_error);
  VisitShared(ar);
  if (!ar.ok()) return false;
  // No edge of the engine's tells of these. A thread that is about to sleep looks again.
  if (std::pair(tcp_.receive_shut, tcp_.pending_error) != before) board_.Bump();
  share_.published_front.assign(state.begin(), state.end() - static_cast<ptrdiff_t>(ar.left()));
  urgent_mark_.Forget();
  if (session_ == nullptr) {
    session_ = Session::Thawed(ar.Take(ar.left()), LinkFd(), share_.with->TakeMemory());
    if (session_ == nullptr) return false;
    session_->ReadLittle(true);
  } else if (!session_->Thaw(ar.Take(ar.left()), LinkFd())) {
    return false;
  }
  session_->SetChanged(false);
  return true;
}

// Nobody knows any more what was sent and received.
void StreamSocket::LoseShared() {
  SDP_LOG(kInfo, "connection with %s is lost: a process that shared it died while it used it",
          ToEndpoint(names_.peer).ToString().c_str());
  share_.with->Break();
  StopSharing();
  session_->engine().Abort(engine::AbortReason::kLocal);
  session_->Pump();
  tcp_.pending_error = ECONNRESET;
  if (state_ == State::kSdp) AfterProgress();
}

void StreamSocket::StopSharing() {
  mutex_.set_shared(false);
  share_.with.reset();
  share_.elsewhere = false;
  session_->ReadLittle(false);
  if (!report_.open() && state_ == State::kSdp) report_.Open(Statistics(), *session_, names());
}

// With the shared lock, which is given back unless they do.
bool StreamSocket::OthersGoOn() {
  if (share_.with == nullptr || session_ == nullptr) return false;
  const SharedConnection::View view = share_.with->Lock();
  const bool needed =
      session_->being_read() || HasSleepers() ||
      (view == SharedConnection::View::kCurrent && (share_.left_unsent || share_.with->Keeps()));
  if (!needed && share_.with->HasOthers(/*sure=*/true)) return true;
  share_.with->Unlock();
  return false;
}

// With the shared lock: the others' from here on.
void StreamSocket::ForgetShared() {
  mutex_.set_shared(false);
  share_.with.reset();
  share_.not_inherited = true;
}

void StreamSocket::PrepareConfinement(int fd) {
  const Lock lock = LockWithOwner();
  if (state_ == State::kSdp && !foreign()) report_.PublishLate(*session_, names());
  if (state_ == State::kSdp && !foreign() && session_->moving()) {
    session_->EndMove();
    AfterProgress();
  }
  // From here on no thread can be woken by its bell.
  if (state_ == State::kSdp && LeaveBell()) Look();
  board_.WakeAll();
  if (share_.with != nullptr) share_.with->Prepare();
  if (!numbers_.none()) numbers_.IsNonblocking(numbers_.any());
  if (listening_.listener != nullptr) listening_.listener->Bar();
  if (state_ == State::kNew && !family_.native && tcp_.pending_error == 0) {
    BecomePlain(fd, stats::FallbackReason::kSocketOption,
                "a seccomp filter was set before the socket was connected");
  }
}

void StreamSocket::FinishConfinement(Time give_up) {
  std::unique_lock own(mutex_.own());  // what the one before has found out stays
  Listener* const listener = listening_.listener.get();
  own.unlock();
  if (listener != nullptr) listener->PrepareConfinement(give_up);
}

int StreamSocket::AwaitConnection(Lock& lock, bool nonblocking, Duration timeout, Time* deadline) {
  if (*deadline == kNever && timeout != Duration::zero()) *deadline = Now() + timeout;
  const Signals signals = *deadline == kNever ? Signals::kRestart : Signals::kInterrupt;
  while (foreign()) {
    if (share_.not_inherited) return EIO;
    if (nonblocking) return EAGAIN;
    pollfd none{.fd = -1, .events = 0, .revents = 0};
    const int error = SleepAsWaiter(lock, &none, *deadline, signals);
    if (state_ != State::kSdp) return EBADF;
    if (error == EINTR || (error == EAGAIN && Now() >= *deadline)) return error;
  }
  return 0;
}

bool StreamSocket::FinishSharedAtOnce() {
  const SharedConnection::View view = share_.with->Lock();
  const bool alone = !share_.with->HasOthers(/*sure=*/true);
  bool known = view == SharedConnection::View::kCurrent;
  // What those have left of it who have gone since. Behind a filter its memory might be malloc's (heap.h).
  if (alone && view == SharedConnection::View::kStale && !Confined()) known = ThawShared();
  share_.with->Leave();
  share_.with->Unlock();
  return alone && known;
}

bool StreamSocket::StartSharing() {
  corked_.Push(*session_);
  if (LeaveBell()) Look();
  share_.with = SharedConnection::Make();
  if (share_.with == nullptr) return false;
  mutex_.set_shared(true);
  share_.published_front.clear();
  session_->ReadLittle(true);
  share_.left_unsent = session_->has_unsent();
  // From here on they look by themselves: what another process takes from the link wakes nobody here.
  board_.TellChange();
  board_.WakeAll();
  return true;
}

}  // namespace sdp::preload
