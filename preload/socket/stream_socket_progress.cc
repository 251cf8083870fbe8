// A StreamSocket's beginning as a connection, and what follows from progress of it.
#include <poll.h>

#include <new>

#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/link_calls.h"
#include "preload/process_life.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/departure.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/memory_keeper.h"
#include "preload/socket/option_calls.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/session_moves.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/watch.h"
#include "preload/unwind.h"

namespace sdp::preload {
namespace {

// How often a program that only sends, or asks whether it may, looks at what the peer has said.
constexpr Duration kLooksForRefusal = std::chrono::milliseconds(10);
constexpr Duration kReadTellsFor =
    kLooksForRefusal / 2;  // so long a read of the link spares a sender the look
// How often one looks for what stands behind what has come, should the peer go on sending.
constexpr int kMostLooks = 64;

}  // namespace

Socket* Socket::New(int domain, int fd) {
  auto* const socket = new StreamSocket(domain);
  socket->AddDescriptor(fd);
  return socket;
}

StreamSocket::StreamSocket(int domain, int fd, std::unique_ptr<Session> session, const Address& local,
                           const Address& peer, const KeptOptions& options, bool nonblocking)
    : StreamParts(this, domain) {
  numbers_.Add(fd);
  numbers_.SetNonblocking(nonblocking);
  options_.Set(options);
  tcp_.connect_reported = true;
  EnterSdp(std::move(session), local, peer, stats::Role::kAccepting);
}

StreamSocket::~StreamSocket() { Departure(*this).DropSession(); }

void StreamSocket::EnterSdp(std::unique_ptr<Session> session, const Address& local, const Address& peer,
                            stats::Role role) {
  session_ = std::move(session);
  session_->queue_pair().SetOrd(session_->engine().ord());  // SDP 8.1.1, 4e and 7d
  session_->engine().SetOutOfBandInline(options_.kept.out_of_band_inline());
  if (queue_pair().device() != nullptr || !WithinHost(local, peer)) {
    options_.kept.RestoreCongestionControl(numbers_.any());
  } else {
    options_.kept.ForgoCongestionControl(numbers_.any());
  }
  OptionCalls(*this).ApplyBcopyThreshold();
  options_.log = {};
  names_.local = local;
  names_.peer = peer;
  lending_.patience() = {};
  state_ = State::kSdp;
  report_.Begin(role);
  ExpectSignals();
  if (!Confined()) memory_keeper::Begin();
  PrepareToThrow();
  report_.Open(Statistics(), *session_, names());
  AfterProgress();
  upkeep_.LeaveToBackground();
  QuietLinks::Enter(&upkeep_);
}

// The kernel answers for the descriptor from here on.
void StreamSocket::BecomePlain(int fd, stats::FallbackReason reason, const std::string& text) {
  state_ = State::kPlain;
  options_.kept.Apply(fd);
  if (reason != stats::FallbackReason::kCount) {
    RecordFallback(fd, reason, text,
                   connecting_.attempt != nullptr ? connecting_.attempt->target() : Address{});
  }
  for (const int descriptor : numbers_.all()) FdTable::Remove(descriptor, this);
  numbers_.Clear();
  board_.TellPlain();
}

bool StreamSocket::Appends(int fd) {
  std::lock_guard lock(mutex_.own());
  return numbers_.Appends(fd);
}

int StreamSocket::VisibleStatusFlags(int kernel_flags) {
  std::lock_guard lock(mutex_);
  return numbers_.Visible(kernel_flags);
}

int StreamSocket::ChangeStatusFlags(int flags) {
  std::lock_guard lock(mutex_);
  return numbers_.Set(flags);
}

void StreamSocket::AddDescriptor(int fd) {
  std::lock_guard lock(mutex_.own());
  numbers_.Add(fd);
}

int StreamSocket::AnyDescriptor() {
  std::lock_guard lock(mutex_);
  return numbers_.any();
}

bool StreamSocket::MoveDescriptor(int from, int to) {
  std::lock_guard lock(mutex_.own());
  numbers_.Replace(from, to);
  Departure(*this).GoOnWithout(from);
  return true;
}

// How far the call got is unknown. The connection ends, and the end of its link tells the peer.
// What the call has left in the queues refers to memory of the program's.
void StreamSocket::RanOutOfMemory(int fd) {
  if (state_ != State::kSdp) return;
  LinkShutdown(fd, SHUT_RDWR);
  try {
    const Lock lock(mutex_);
    if (!usable()) return;
    session_->Abort();
    AfterProgress();
  } catch (const std::bad_alloc&) {  // the end of the link clears the rest
  }
}

int StreamSocket::TakeErrorAhead() {
  const Lock lock(mutex_);
  Holders(*this).OnlyLooks();
  if (!usable()) return 0;
  Looks(*this).LookToTheEnd();
  return tcp_.TakeError();
}

void StreamSocket::ReportLater(int error) {
  const Lock lock(mutex_);
  if (state_ != State::kSdp || tcp_.pending_error != 0) return;
  tcp_.pending_error = error;
  board_.Bump();
  AfterProgress();
}

void StreamSocket::Watch::Progress(bool polled) {
  std::lock_guard lock(s_.mutex_);
  Holders(s_).OnlyLooks();
  if (!s_.usable()) return;
  // Else the set reports it where it is.
  if (!polled || !s_.board_.heard_by_one() || !Looks(s_).ComesDirect()) Looks(s_).TakeFromLink();
}

// A TCP link stays ready for the rest: the core's own cache would lose more before the program takes it.
void StreamSocket::Looks::TakeFromLink() {
  if (s_.queue_pair().pollable() != nullptr || s_.board_.hears_doorbells()) return Look();
  s_.session_->Read(Session::ReadFor::kSome);
  s_.AfterProgress();
}

void StreamSocket::Looks::Look() {
  if (s_.foreign()) return;
  s_.session_->Read();
  s_.AfterProgress();
}

// Takes all that is there, and looks at a local link's TCP connection, whose end comes without a doorbell.
bool StreamSocket::Looks::LookForEnd() {
  if (s_.queue_pair().device() != nullptr) return LookAtLink();
  const bool any = s_.session_->Read();
  s_.AfterProgress();
  return any;
}

void StreamSocket::Looks::LookToTheEnd() {
  if (s_.foreign()) return;
  for (int looks = 0; looks < kMostLooks && LookForEnd();) ++looks;
}

void StreamSocket::Looks::LookForRefusal() {
  const bool closed = s_.engine().peer_closed();
  if (!s_.engine().can_send() || (!IsRefusalDue() && !closed)) return;
  s_.use_.look_for_refusal = CoarseNow() + kLooksForRefusal;
  const KeepErrno keep;  // the caller may only have asked
  if (s_.queue_pair().device() != nullptr) {
    LookAtLink();
  } else if (!s_.OnLocalLink() || closed || LookAtLink()) {
    TakeFromLink();  // a doorbell, too, which would have to be armed again, and rung
  }
}

bool StreamSocket::Looks::IsRefusalDue() {
  const Time now = CoarseNow();
  Time& next = s_.use_.look_for_refusal;
  if (now < next) return false;
  const Time lately = now - kReadTellsFor;
  // What is unread may be all that a peer has left that is gone.
  const bool unread = !s_.session_->direct().link_empty();
  if (next == Time{} || unread || !s_.session_->reads().Since(lately, s_.session_->recorder())) return true;
  next = now + std::chrono::milliseconds(1);  // with the next tick of the coarse clock
  return false;
}

// A sender that has credit reads nothing, and may not know that the link has ended.
void StreamSocket::Looks::GlanceAtLink() {
  if (Confined() || s_.queue_pair().device() != nullptr || s_.session_->moving()) return;
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  pollfd link{.fd = s_.queue_pair().event_fd(), .events = POLLRDHUP, .revents = 0};
  if (real.poll(&link, 1, 0) == 1) LookToTheEnd();
}

// Data stays in the link for the program's next call, if nothing else may come of it: there is room to send,
// a byte is enough for the reader, and nothing else is behind it. The link is the peer's memory, too. Should
// it take the bytes back, that call finds an error (RingReader::Look), and does not block.
std::optional<uint64_t> StreamSocket::Looks::LeftInLink() const {
  const bool may_stay =
      s_.TakesDirect() && s_.engine().writable() && Limits(s_).LowWater() == 1 && !s_.tcp_.receive_shut;
  return may_stay ? s_.session_->direct().BytesInLink() : std::nullopt;
}

// --- After every input and command: who has to hear of it.

void StreamSocket::AfterProgress(bool publish) {
  if (foreign()) return;  // since a sleep: what is known of it here is old
  if (lending_.offered()) Lender(*this).CollectLoans();
  if (session_->moving() || session_->moves().stepped()) upkeep_.FollowMove();
  const engine::Engine& e = engine();
  if (tcp_.receive_shut && e.refused_data()) Departure(*this).AnswerRefused();
  if (board_.observed()) Lender(*this).WantBcopy(Limits(*this).LowWater());
  if (!tcp_.abort_noted && (e.state() == engine::State::kAborted || session_->link_ended()))
    Departure(*this).NoteAbort();
  Limits(*this).NoteSendRoom();
  const bool changed = board_.Compare(e);
  if (changed && urgent_mark_.TakeAnnouncement(e) && !numbers_.none() && SignalUrgent(numbers_.any()))
    urgent_mark_.NoteRaised();
  if (board_.observed()) board_.TellObservers(*session_, session_->watch_events(), changed);
  if (publish) report_.Publish(*session_, names());
}

}  // namespace sdp::preload
