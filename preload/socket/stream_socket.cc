#include "preload/socket/stream_socket.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>

#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/link_calls.h"
#include "preload/native_family.h"
#include "preload/process_life.h"
#include "preload/real_calls.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/clock.h"
#include "preload/socket/memory_keeper.h"
#include "preload/socket/options.h"
#include "preload/socket/stats.h"
#include "preload/unwind.h"

namespace sdp::preload {
namespace {

// How often a program that only sends, or asks whether it may, looks at what the peer has said.
constexpr Duration kLooksForRefusal = std::chrono::milliseconds(10);
// How often one looks for what stands behind what has come, should the peer go on sending.
constexpr int kMostLooks = 64;
// Numbers that a signal handler may add: the standard descriptors, and some.
constexpr size_t kRoomForHandlers = 5;

}  // namespace

Socket* Socket::New(int domain, int fd) {
  auto* const socket = new StreamSocket(domain);
  socket->AddDescriptor(fd);
  return socket;
}

StreamSocket::StreamSocket(int domain)
    : domain_(domain == kFamilySdp ? AF_INET : domain), native_(domain == kFamilySdp) {
  descriptors_.reserve(1 + kRoomForHandlers);
}

StreamSocket::StreamSocket(int domain, int fd, std::unique_ptr<Session> session, const Address& local,
                           const Address& peer, const KeptOptions& options, bool nonblocking)
    : domain_(domain == kFamilySdp ? AF_INET : domain),
      native_(domain == kFamilySdp),
      nonblocking_(nonblocking),
      options_(options),
      gives_control_(options.gives_control()),
      connect_reported_(true) {
  descriptors_.reserve(1 + kRoomForHandlers);
  descriptors_.push_back(fd);
  EnterSdp(std::move(session), local, peer, stats::Role::kAccepting);
}

StreamSocket::~StreamSocket() { DropSession(); }

void StreamSocket::NoteFirst() {
  static constinit std::atomic<bool> noted{false};
  if (noted.load(std::memory_order_relaxed) || PrepareUnwind == nullptr || Confined() ||
      Critical::MayBeInHandler())
    return;
  PrepareUnwind();
  noted = true;
}

void StreamSocket::EnterSdp(std::unique_ptr<Session> session, const Address& local, const Address& peer,
                            stats::Role role) {
  session_ = std::move(session);
  session_->queue_pair().SetOrd(session_->engine().ord());  // SDP 8.1.1, 4e and 7d
  session_->engine().SetOutOfBandInline(options_.out_of_band_inline());
  if (queue_pair().device() != nullptr || !WithinHost(local, peer)) {
    options_.RestoreCongestionControl(descriptors_.front());
  } else {
    options_.ForgoCongestionControl(descriptors_.front());
  }
  ApplyBcopyThreshold();
  seen_move_steps_ = 0;
  options_set_ = {};
  local_ = local;
  peer_ = peer;
  reader_patience_ = {};
  state_ = State::kSdp;
  report_.Begin(role);
  ExpectSignals();
  if (!Confined()) memory_keeper::Begin();
  NoteFirst();
  report_.Open(Statistics(), *session_, names());
  AfterProgress();
  LeaveToBackground();
  QuietLinks::Enter(&quiet_);
}

// The kernel answers for the descriptor from here on.
void StreamSocket::BecomePlain(int fd, stats::FallbackReason reason, const std::string& text) {
  state_ = State::kPlain;
  options_.Apply(fd);
  if (reason != stats::FallbackReason::kCount) {
    RecordFallback(fd, reason, text, attempt_ != nullptr ? attempt_->target() : Address{});
  }
  for (const int descriptor : descriptors_) FdTable::Remove(descriptor, this);
  descriptors_.clear();
  board_.TellPlain();
}

bool StreamSocket::IsNonblocking(int fd) {
  if (!nonblocking_) {
    const int flags = real.fcntl(fd, F_GETFL);
    nonblocking_ = flags >= 0 && (flags & O_NONBLOCK) != 0;
    appends_ = flags >= 0 && (flags & O_APPEND) != 0;
  }
  return *nonblocking_;
}

bool StreamSocket::Appends(int fd) {
  std::lock_guard lock(mutex_.own());
  IsNonblocking(fd);
  return appends_;
}

int StreamSocket::VisibleStatusFlags(int kernel_flags) {
  std::lock_guard lock(mutex_);
  if (kernel_flags < 0 || !listener_forced_nonblocking_) return kernel_flags;
  return nonblocking_.value_or(false) ? kernel_flags : kernel_flags & ~O_NONBLOCK;
}

int StreamSocket::ChangeStatusFlags(int flags) {
  std::lock_guard lock(mutex_);
  nonblocking_ = (flags & O_NONBLOCK) != 0;
  appends_ = (flags & O_APPEND) != 0;
  return listener_forced_nonblocking_ ? flags | O_NONBLOCK : flags;
}

void StreamSocket::AddDescriptor(int fd) {
  std::lock_guard lock(mutex_.own());
  // A handler may call dup2, and have interrupted malloc: what it adds has room already.
  if (descriptors_.capacity() - descriptors_.size() < kRoomForHandlers && !Critical::MayBeInHandler())
    descriptors_.reserve(2 * (descriptors_.size() + kRoomForHandlers));
  descriptors_.push_back(fd);
}

int StreamSocket::AnyDescriptor() {
  std::lock_guard lock(mutex_);
  return descriptors_.empty() ? -1 : descriptors_.front();
}

int StreamSocket::OtherDescriptor(int fd) {
  std::lock_guard lock(mutex_);
  const auto other = std::find_if(descriptors_.begin(), descriptors_.end(),
                                  [fd](int descriptor) { return descriptor != fd; });
  return other == descriptors_.end() ? -1 : *other;
}

bool StreamSocket::MoveDescriptor(int from, int to) {
  std::lock_guard lock(mutex_.own());
  std::replace(descriptors_.begin(), descriptors_.end(), from, to);
  QuietLinks::Unwatch(&quiet_, from);
  if (quiet_.relied_on()) board_.WakeAll();
  if (session_ != nullptr && session_->queue_pair().event_fd() == from) session_->queue_pair().SetEventFd(to);
  if (attempt_ != nullptr) attempt_->SetFd(to);
  return true;
}

// --- Readiness

short StreamSocket::WatchEvents() const { return session_->watch_events(); }

// Nobody knows how far the call has got: the connection is at its end, and the peer is told by its link's.
void StreamSocket::RanOutOfMemory(int fd) {
  if (state_ == State::kSdp) LinkShutdown(fd, SHUT_RDWR);
}

int StreamSocket::TakeErrorAhead() {
  const Lock lock(mutex_);
  OnlyLooks();
  if (state_ != State::kSdp || foreign()) return 0;
  if (!session_->being_read()) LookToTheEnd();
  return TakeError();
}

bool StreamSocket::IsCommon(int fd) const { return !native_ && OthersHold(fd, others_); }

void StreamSocket::ReportLater(int error) {
  const Lock lock(mutex_);
  if (state_ != State::kSdp || pending_error_ != 0) return;
  pending_error_ = error;
  board_.Bump();
  AfterProgress();
}

void StreamSocket::Progress(bool polled) {
  std::lock_guard lock(mutex_);
  OnlyLooks();
  if (state_ != State::kSdp || foreign()) return;
  // Else the set reports it where it is.
  if (!polled || !board_.heard_by_one() || !ComesDirect()) TakeFromLink();
}

// A TCP link stays ready for the rest: the core's own cache would lose more before the program takes it.
void StreamSocket::TakeFromLink() {
  if (queue_pair().pollable() != nullptr || board_.hears_doorbells()) return Look();
  session_->ReadSome();
  AfterProgress();
}

void StreamSocket::Look() {
  if (foreign()) return;
  session_->ReadAvailable();
  AfterProgress();
}

bool StreamSocket::OnLocalLink() const {
  if (session_ == nullptr) return false;
  const verbs::Pollable* const pollable = queue_pair().pollable();
  return pollable != nullptr && pollable->always_told();
}

// Takes all that is there, and looks at a local link's TCP connection, whose end comes without a doorbell.
bool StreamSocket::LookForEnd() {
  if (queue_pair().device() != nullptr) return LookAtLink();
  const bool any = session_->ReadAvailable();
  AfterProgress();
  return any;
}

void StreamSocket::LookToTheEnd() {
  if (foreign()) return;
  for (int looks = 0; looks < kMostLooks && LookForEnd();) ++looks;
}

void StreamSocket::LookForRefusal() {
  const Time now = CoarseNow();
  if (!engine().can_send() || session_->being_read() || (!engine().peer_closed() && now < look_for_refusal_))
    return;
  look_for_refusal_ = now + kLooksForRefusal;
  const KeepErrno keep;  // the caller may only have asked
  queue_pair().device() != nullptr ? (void)LookAtLink() : TakeFromLink();
}

// A sender that has credit reads nothing, and may not know that the link has ended.
void StreamSocket::GlanceAtLink() {
  if (Confined() || queue_pair().device() != nullptr || session_->being_read() || session_->moving()) return;
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  pollfd link{.fd = queue_pair().event_fd(), .events = POLLRDHUP, .revents = 0};
  if (real.poll(&link, 1, 0) == 1) LookToTheEnd();
}

// Data stays in the link for the program's next call, if nothing else may come of it: there is room to send,
// a byte is enough for the reader, and nothing else is behind it. The link is the peer's memory, too. Should
// it take the bytes back, that call finds an error (RingReader::Look), and does not block.
std::optional<uint64_t> StreamSocket::LeftInLink() const {
  const bool may_stay = TakesDirect() && engine().writable() && LowWater() == 1 && !receive_shut_;
  return may_stay ? session_->DirectBytes() : std::nullopt;
}

// --- After every input and command: who has to hear of it.

void StreamSocket::AfterProgress(bool publish) {
  if (foreign()) return;  // since a sleep: what is known of it here is old
  if (lending_.offered()) CollectLoans();
  if (session_->moving() || seen_move_steps_ != session_->move_steps()) FollowMove();
  const engine::Engine& e = engine();
  if (receive_shut_ && e.refused_data()) AnswerRefused();
  if (board_.observed()) WantBcopy(LowWater());
  if (!abort_noted_ && (e.state() == engine::State::kAborted || session_->link_ended())) NoteAbort();
  NoteSendRoom();
  const bool changed = board_.Compare(e);
  if (changed) TellOwner();
  if (board_.observed()) board_.TellObservers(*session_, WatchEvents(), changed);
  if (publish) report_.Publish(*session_, names());
}

// A message may cost less than its statistics.
void StreamSocket::PublishTraffic() {
  if (foreign()) return;
  const bool helper_looks = quiet_.looked_at() && Background::Runs() && !QuietLinks::stopped();
  if (!helper_looks || session_->link_ended()) return report_.Publish(*session_, names());
  report_.PublishTraffic(*session_, names(), CoarseNow());
}

// Shut down both ways, a socket takes no more: as TCP, it resets who sends all the same.
void StreamSocket::AnswerRefused() {
  engine::Engine& e = session_->engine();
  if (e.state() == engine::State::kAborted || session_->link_ended()) return;
  e.Abort(engine::AbortReason::kLocal);
  session_->Pump();
  pending_error_ = ECONNRESET;
}

// The connection ended, in whatever way: what the next call reports.
void StreamSocket::NoteAbort() {
  const engine::Engine& e = session_->engine();
  const verbs::LinkCause& cause = session_->cause();
  abort_noted_ = true;
  board_.Bump();
  if (e.state() != engine::State::kAborted) return;  // in good order
  if (PeerLeftInOrder(e, cause)) return;
  if (e.abort_reason() != engine::AbortReason::kLocal) {
    pending_error_ = cause.end == verbs::LinkEnd::kReset && cause.os_error != 0 ? cause.os_error : ECONNRESET;
    if (pending_error_ == EPIPE) pending_error_ = ECONNRESET;
    if (e.peer_closed() && pending_error_ == ECONNRESET)
      pending_error_ = EPIPE;  // as TCP: receives end nevertheless
    LogAbort(peer_, e.abort_reason(), cause, session_->recorder());
  }
  if (session_->link_outlives_abort()) Background::Add(&task_, Duration::zero());
  report_.PublishAll(*session_, names());
}

int StreamSocket::TakeError() {
  const int error = pending_error_;
  pending_error_ = 0;
  error_outlived_ = false;
  return error;
}

}  // namespace sdp::preload
