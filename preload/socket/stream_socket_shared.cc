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
constexpr Duration kFirstNap = std::chrono::milliseconds(1);
constexpr int kLongestNap = 5;          // 32 ms, as a power of two
constexpr int kLongestNapOfClosed = 8;  // 256 ms: of a connection that the program has closed under its call

}  // namespace

void SocketMutex::Enter() { socket_->EnterShared(); }
void SocketMutex::Leave() { socket_->LeaveShared(); }

void StreamSocket::EnterShared() {
  SharedConnection::View view = shared_->Lock();
  away_ = view == SharedConnection::View::kElsewhere;
  if (!Confined()) nonblocking_.reset();  // the open file's, which others may have changed
  if (away_) return;
  waited_in_vain_ = false;
  if (session_ == nullptr) return;
  if (state_ == State::kSdp && Background::Runs()) QuietLinks::Enter(&quiet_);
  if (view == SharedConnection::View::kStale) {
    naps_ = 0;
    responsible_ = false;
    if (!ThawShared()) view = SharedConnection::View::kBroken;
  }
  const bool alone = !shared_->HasOthers(/*sure=*/false);
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
  unchanged_ = !session_->changed();
  session_->SetChanged(true);
}

void StreamSocket::AwaitOwner(Lock& lock) {
  if (!away_ || waited_in_vain_) return;
  const Time give_up = Now() + kPatienceForOwner;
  while (away_ && Now() < give_up) {
    lock.unlock();
    Pause(std::chrono::milliseconds(1));
    lock.lock();
  }
  waited_in_vain_ = away_;
}

StreamSocket::Lock StreamSocket::LockWithOwner() {
  Lock lock(mutex_);
  AwaitOwner(lock);
  return lock;
}

void StreamSocket::OnlyLooks() {
  if (shared_ != nullptr && !away_ && session_ != nullptr && unchanged_) session_->SetChanged(false);
}

void StreamSocket::LeaveShared() {
  PublishShared();
  shared_->Unlock();
}

void StreamSocket::PublishShared() {
  if (away_ || session_ == nullptr) return;
  responsible_ = session_->has_unsent();
  if (!session_->freezable() || !FreezeShared()) shared_->Keep();
}

void StreamSocket::DropShared() {
  if (shared_ == nullptr) return;
  if (shared_->locked()) PublishShared();
  mutex_.set_shared(false);
  shared_.reset();
  away_ = false;
}

// All that a process needs which has nothing of the connection but its descriptor.
template <typename Archive>
void StreamSocket::VisitShared(Archive& ar) {
  auto error = static_cast<uint32_t>(pending_error_);
  ar.Flag(receive_shut_);
  ar.Flag(send_shut_);
  ar.Flag(abort_noted_);
  ar.Flag(connect_reported_);
  ar.Number(error);
  pending_error_ = static_cast<int>(error);
  report_.Visit(ar);
  Visit(ar, local_);
  Visit(ar, peer_);
  Visit(ar, sdp_peer_);
  options_.Visit(ar);
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
  session_ = Session::Blank(LinkFd(), shared_->TakeMemory());
  session_->ReadLittle(true);
  away_ = true;
  return true;
}

bool StreamSocket::FreezeShared() {
  std::vector<std::byte> front = FreezeFront();
  if (!session_->changed() && front == left_front_ && !shared_->Keeps()) return true;
  Writer ar;
  ar.Append(front);
  session_->Freeze(ar);
  if (!shared_->Publish(ar)) return false;
  left_front_ = std::move(front);
  session_->SetChanged(false);
  return true;
}

bool StreamSocket::ThawShared() {
  std::vector<std::byte> state;
  if (!shared_->Read(&state)) return false;
  Reader ar(state);
  const auto before = std::pair(receive_shut_, pending_error_);
  VisitShared(ar);
  if (!ar.ok()) return false;
  // No edge of the engine's tells of these. A thread that is about to sleep looks again.
  if (std::pair(receive_shut_, pending_error_) != before) board_.Bump();
  left_front_.assign(state.begin(), state.end() - static_cast<ptrdiff_t>(ar.left()));
  urgent_mark_.Forget();
  if (session_ == nullptr) {
    session_ = Session::Thawed(ar.Take(ar.left()), LinkFd(), shared_->TakeMemory());
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
          ToEndpoint(peer_).ToString().c_str());
  shared_->Break();
  StopSharing();
  session_->engine().Abort(engine::AbortReason::kLocal);
  session_->Pump();
  pending_error_ = ECONNRESET;
  if (state_ == State::kSdp) AfterProgress();
}

void StreamSocket::StopSharing() {
  mutex_.set_shared(false);
  shared_.reset();
  away_ = false;
  session_->ReadLittle(false);
  if (!report_.open() && state_ == State::kSdp) report_.Open(Statistics(), *session_, names());
}

// With the shared lock, which is given back unless they do.
bool StreamSocket::OthersGoOn() {
  if (shared_ == nullptr || session_ == nullptr) return false;
  const SharedConnection::View view = shared_->Lock();
  const bool needed = session_->being_read() || HasSleepers() ||
                      (view == SharedConnection::View::kCurrent && (responsible_ || shared_->Keeps()));
  if (!needed && shared_->HasOthers(/*sure=*/true)) return true;
  shared_->Unlock();
  return false;
}

// With the shared lock: the others' from here on.
void StreamSocket::ForgetShared() {
  mutex_.set_shared(false);
  shared_.reset();
  foreign_ = true;
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
  if (shared_ != nullptr) shared_->Prepare();
  if (!descriptors_.empty()) IsNonblocking(descriptors_.front());
  if (listener_ != nullptr) listener_->Bar();
  if (state_ == State::kNew && !native_ && pending_error_ == 0) {
    BecomePlain(fd, stats::FallbackReason::kSocketOption,
                "a seccomp filter was set before the socket was connected");
  }
}

void StreamSocket::FinishConfinement(Time give_up) {
  std::unique_lock own(mutex_.own());  // what the one before has found out stays
  Listener* const listener = listener_.get();
  own.unlock();
  if (listener != nullptr) listener->PrepareConfinement(give_up);
}

int StreamSocket::AwaitConnection(Lock& lock, bool nonblocking, Duration timeout, Time* deadline) {
  if (*deadline == kNever && timeout != Duration::zero()) *deadline = Now() + timeout;
  const Signals signals = *deadline == kNever ? Signals::kRestart : Signals::kInterrupt;
  while (foreign()) {
    if (foreign_) return EIO;
    if (nonblocking) return EAGAIN;
    pollfd none{.fd = -1, .events = 0, .revents = 0};
    const int error = SleepAsWaiter(lock, &none, *deadline, signals);
    if (state_ != State::kSdp) return EBADF;
    if (error == EINTR || (error == EAGAIN && Now() >= *deadline)) return error;
  }
  return 0;
}

Duration StreamSocket::NextNap() {
  const Duration nap = kFirstNap * (1 << naps_);
  naps_ = std::min(naps_ + 1, kept_for_calls_ ? kLongestNapOfClosed : kLongestNap);
  return nap;
}

bool StreamSocket::FinishSharedAtOnce() {
  const SharedConnection::View view = shared_->Lock();
  const bool alone = !shared_->HasOthers(/*sure=*/true);
  bool known = view == SharedConnection::View::kCurrent;
  // What those have left of it who have gone since. Behind a filter its memory might be malloc's (heap.h).
  if (alone && view == SharedConnection::View::kStale && !Confined()) known = ThawShared();
  shared_->Leave();
  shared_->Unlock();
  return alone && known;
}

bool StreamSocket::StartSharing() {
  corked_.Push(*session_);
  if (LeaveBell()) Look();
  shared_ = SharedConnection::Make();
  if (shared_ == nullptr) return false;
  mutex_.set_shared(true);
  left_front_.clear();
  session_->ReadLittle(true);
  responsible_ = session_->has_unsent();
  // From here on they look by themselves: what another process takes from the link wakes nobody here.
  board_.TellChange();
  board_.WakeAll();
  return true;
}

}  // namespace sdp::preload
