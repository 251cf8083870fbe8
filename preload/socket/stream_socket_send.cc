// Send of a StreamSocket.
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "preload/config.h"
#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/signal_end.h"
#include "preload/socket/call.h"
#include "preload/socket/clock.h"
#include "preload/socket/express_way.h"
#include "preload/socket/iovec_cursor.h"
#include "preload/socket/lender.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/options.h"

namespace sdp::preload {
namespace {

// How long a blocking sender waits for credit before its data is copied instead (SDP 9.5.6: two peers that
// both send before they receive must not wait for each other for ever).
constexpr Duration kPatienceForCredit = std::chrono::milliseconds(2);

// How long a sender whose bytes are kept for want of credit does not look again after a look in vain. A look
// may be a system call.
constexpr Duration kBetweenLooksForCredit = std::chrono::microseconds(200);

// What is sent behind the peer's end, TCP takes until the reset comes: no more than its send buffer holds.
constexpr size_t kMostToNobody = 512 * 1024;

// How often a program that goes on sending looks whether the link is over.
constexpr uint64_t kCallsBetweenGlances = 256;

// How long TCP keeps back a frame that is not full (tcp(7), TCP_CORK).
constexpr Duration kLongestCork = std::chrono::milliseconds(200);

}  // namespace

// One send, from the program's bytes to what it returns.
class StreamSocket::Sending {
 public:
  Sending(StreamSocket& socket, Call& call, const iovec* iov, size_t count, int flags)
      : s_(socket),
        call_(call),
        data_(iov, count),
        corks_((flags & MSG_MORE) != 0),
        flags_{.out_of_band = (flags & MSG_OOB) != 0} {}
  ssize_t Run(std::span<const iovec> pieces);

 private:
  void LookAhead();
  // Keeps the pieces for the next message, if that is asked for, or if they are part of a stream of small
  // writes. Returns false if they are to be sent at once.
  bool Keeps(std::span<const iovec> pieces);
  [[nodiscard]] bool IsInStream();
  bool Cork(std::span<const iovec> pieces, bool in_stream);
  std::optional<ssize_t> End();
  Step ByLoan();
  Step ByCopy();
  Step AwaitRoom();
  void TakeCredit();
  std::optional<ssize_t> EndOfLink();
  // In CLOSE_WAIT, when the peer has gone: takes the bytes as TCP does. The reset that answers them is the
  // next call's error.
  ssize_t ToNobody();
  [[nodiscard]] size_t done() const { return total_ - data_.left(); }

  StreamSocket& s_;
  Call& call_;
  SendCursor data_;
  const size_t total_ = data_.left();
  const bool corks_;
  engine::SendFlags flags_;
  bool promised_ = false;       // poll told a caller that does not block of room
  bool looked_ = false;         // for credit that has come meanwhile
  bool found_end_ = false;      // the link has ended under this call
  bool ahead_ = false;          // then: some of the data had left before
  Time credit_until_ = kNever;  // the end of kPatienceForCredit
};

ssize_t StreamSocket::Send(int fd, const iovec* iov, size_t count, int flags) {
  if (count == 1) {
    if (const auto sent = ExpressWay(*this).Send(*iov, flags)) return *sent;
  }
  const SignalEnd::NoReturn on_end;
  if ((flags & MSG_ZEROCOPY) != 0) [[unlikely]]
    return SendZeroCopy(fd, iov, count, flags & ~MSG_ZEROCOPY);
  Call call(this, fd, flags, Call::Way::kSend);
  if (const auto result = call.Enter(__builtin_frame_address(0))) return *result;
  return Sending(*this, call, iov, count, flags).Run({iov, count});
}

ssize_t StreamSocket::Sending::Run(std::span<const iovec> pieces) {
  if (!call_.blocks()) promised_ = Limits(s_).Writable();
  LookAhead();
  if (Keeps(pieces)) return static_cast<ssize_t>(total_);
  s_.share_.reader_elsewhere_until = kNever;
  for (;;) {
    if (!call_.Usable()) return call_.Ended(done());
    if (const auto end = End()) return *end;
    Step step = ByLoan();
    if (step == Step::kGoOn) step = ByCopy();
    if (step == Step::kGoOn) step = AwaitRoom();
    if (step == Step::kOver) return call_.Ended(done());
    if (step == Step::kDone) break;
  }
  if (found_end_) {
    if (const auto end = EndOfLink()) return *end;
  }
  TakeCredit();
  const ssize_t sent = call_.Done(done());
  ExpressWay(s_).Open(/*inside=*/1);
  return sent == 0 && total_ > 0 ? Fail(EAGAIN) : sent;
}

// What TCP would know before it takes anything.
void StreamSocket::Sending::LookAhead() {
  if (total_ == 0) return Looks(s_).LookToTheEnd();
  if (s_.use_.calls - s_.use_.calls_at_glance >= kCallsBetweenGlances) {
    s_.use_.calls_at_glance = s_.use_.calls;
    Looks(s_).GlanceAtLink();
  }
  Looks(s_).LookForRefusal();
}

bool StreamSocket::Sending::Keeps(std::span<const iovec> pieces) {
  const bool asks = corks_ || s_.options_.kept.cork() || (call_.blocks() && ForcesTransactions());
  if (!asks && !IsInStream()) [[likely]]
    return false;
  return !flags_.out_of_band && total_ > 0 && s_.tcp_.pending_error == 0 && s_.engine().can_send() &&
         Cork(pieces, /*in_stream=*/!asks);
}

// Returns false where another thread, or an epoll set, waits already: it makes no call that would push what
// is kept.
bool StreamSocket::Sending::IsInStream() {
  return total_ < Limits::kLeastRoom && s_.queue_pair().pollable() == nullptr &&
         !s_.options_.kept.no_delay() && s_.board_.empty() && !Confined() &&
         s_.use_.writes.Note(CoarseNow(), s_.engine().stats().bcopy_bytes_in) &&
         (s_.corked_.empty() || s_.corked_.in_stream());
}

bool StreamSocket::Sending::Cork(std::span<const iovec> pieces, bool in_stream) {
  if (s_.share_.with != nullptr) return false;  // the others would not know of it
  Corked& corked = s_.corked_;
  if (!corked.Fits(s_.session_->engine(), total_, Limits(s_).SendRoom(), config().send_buffer)) {
    if (corked.in_stream()) s_.use_.writes.NoteFull();
    return false;
  }
  if (corked.empty()) {
    const Duration longest = in_stream              ? WriteStream::kLongestWait
                             : ForcesTransactions() ? Background::kGrace
                                                    : kLongestCork;
    corked.SetDue(Now() + longest, in_stream);
    if (!Background::Add(&s_.upkeep_, longest)) return false;
  }
  if (in_stream) s_.use_.writes.NoteKept(/*first=*/corked.empty());
  corked.Append(pieces);
  return true;
}

// Returns what the call returns if nothing can be sent any more.
std::optional<ssize_t> StreamSocket::Sending::End() {
  if (!s_.CannotSend()) [[likely]]
    return std::nullopt;
  if (done() > 0) return call_.Done(done());
  if (s_.tcp_.pending_error == 0) Looks(s_).LookToTheEnd();  // a reset comes before that
  if (s_.tcp_.pending_error != 0) return call_.Failed(s_.tcp_.TakeError());
  return s_.InCloseWait() ? ToNobody() : call_.Failed(EPIPE);
}

// Lends the program's memory to the peer, where that is worth it. kGoOn: the data is to be copied.
StreamSocket::Step StreamSocket::Sending::ByLoan() {
  if (!call_.blocks() || flags_.out_of_band || !s_.corked_.empty()) return Step::kGoOn;
  const Bytes front = data_.Front();
  if (front.empty()) return Step::kGoOn;
  if (!s_.engine().wants_source(front.size())) return Step::kGoOn;
  int error = 0;
  data_.Advance(Lender(s_).SendLent(call_, front, &error));
  if (error == EAGAIN && Now() < call_.Deadline()) error = 0;
  if (call_.After(error) == Call::Woke::kOver) return Step::kOver;
  if (data_.left() == 0) return Step::kDone;
  return s_.foreign() || s_.CannotSend() ? Step::kAgain : Step::kGoOn;
}

// Sends what room and credit allow. kGoOn: there is more.
StreamSocket::Step StreamSocket::Sending::ByCopy() {
  ahead_ = done() > 0;
  while (data_.left() > 0) {
    // A write of more pieces than one Rest() names goes on; its out-of-band byte is the very last.
    const size_t left = data_.left();
    size_t room = SIZE_MAX;
    if (!flags_.out_of_band)
      room = left < Limits::kLeastRoom ? Limits(s_).SendRoom() : Limits(s_).LinkRoom(left);
    if (room == 0) {
      Limits(s_).NoteSendRoom();
      break;
    }
    const auto rest = data_.Rest(room);
    engine::SendFlags flags = flags_;
    flags.out_of_band = flags.out_of_band && !data_.RestIsMore(rest);
    size_t moved;
    data_.Advance(s_.corked_.Send(*s_.session_, rest, flags, &moved));
    if (moved == 0) break;
    s_.share_.reader_elsewhere_until = kNever;
    if (data_.left() == 0 || s_.session_->end_unread()) break;
    ahead_ = true;
  }
  found_end_ = s_.session_->end_unread();
  return found_end_ || data_.left() == 0 ? Step::kDone : Step::kGoOn;
}

// Bytes were kept for want of credit, which may have come: else they would wait for the helper.
void StreamSocket::Sending::TakeCredit() {
  if (s_.foreign() || s_.engine().buffered_bytes() == 0) [[likely]]
    return;
  const Time now = Now();
  if (now < s_.use_.look_for_credit) return;
  if (!Looks(s_).LookAtLink()) s_.use_.look_for_credit = now + kBetweenLooksForCredit;
}

// The link has ended, and no thread has read that yet. Nothing: what was sent before counts.
std::optional<ssize_t> StreamSocket::Sending::EndOfLink() {
  Looks(s_).LookToTheEnd();
  s_.AfterProgress();
  if (ahead_ || s_.session_->queue_pair().facts().failed_midway) return std::nullopt;
  if (s_.InCloseWait()) return ToNobody();
  // As on TCP: what finds the connection gone has not been sent.
  return call_.Failed(s_.tcp_.pending_error != 0 ? s_.tcp_.TakeError() : EPIPE);
}

// There is no credit, or no room. The peer may have granted some meanwhile. kDone: a call that does not wait
// takes no more.
StreamSocket::Step StreamSocket::Sending::AwaitRoom() {
  const bool copies_all = flags_.buffering == engine::Buffering::kFull;
  if (!std::exchange(looked_, true) && Looks(s_).LookAtLink() && (Limits(s_).Writable() || s_.CannotSend()))
    return Step::kAgain;
  if (!call_.blocks()) {
    // Room was promised where there is no credit: it is taken by copying, or the caller would be told EAGAIN
    // after POLLOUT.
    if (!promised_ || done() > 0 || copies_all) return Step::kDone;
    flags_.buffering = engine::Buffering::kFull;
    return Step::kAgain;
  }
  if (credit_until_ == kNever) credit_until_ = Now() + kPatienceForCredit;
  Call::Woke woke = call_.Sleep(credit_until_);
  if (woke == Call::Woke::kLate && !copies_all) {
    flags_.buffering = engine::Buffering::kFull;
  } else if (woke == Call::Woke::kLate && !Limits(s_).Writable()) {
    woke = call_.Sleep();
  }
  return woke == Call::Woke::kOver ? Step::kOver : Step::kAgain;
}

ssize_t StreamSocket::Sending::ToNobody() {
  if (total_ == 0) return 0;
  s_.tcp_.pending_error = EPIPE;
  s_.tcp_.send_shut = true;
  s_.board_.Bump();
  s_.AfterProgress();
  return static_cast<ssize_t>(std::min(total_, kMostToNobody));
}

}  // namespace sdp::preload
