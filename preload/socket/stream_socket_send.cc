// Send of a StreamSocket.
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "preload/fail.h"
#include "preload/signal_end.h"
#include "preload/socket/call.h"
#include "preload/socket/clock.h"
#include "preload/socket/iovec_cursor.h"
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

}  // namespace

struct StreamSocket::Sending {
  // Not an aggregate: GCC would clear all of it first, the cursor's spans, too.
  Sending(const iovec* iov, size_t count, int message_flags)
      : data(iov, count), flags{.out_of_band = (message_flags & MSG_OOB) != 0} {}
  SendCursor data;
  const size_t total = data.left();
  engine::SendFlags flags;
  bool promised = false;       // poll told a caller that does not block of room
  bool looked = false;         // for credit that has come meanwhile
  bool found_end = false;      // the link has ended under this call
  bool ahead = false;          // then: some of the data had left before
  Time credit_until = kNever;  // the end of kPatienceForCredit
  [[nodiscard]] size_t done() const { return total - data.left(); }
};

ssize_t StreamSocket::Send(int fd, const iovec* iov, size_t count, int flags) {
  if (count == 1) {
    if (const auto sent = SendExpress(*iov, flags)) return *sent;
  }
  const SignalEnd::NoReturn on_end;
  if ((flags & MSG_ZEROCOPY) != 0) [[unlikely]]
    return SendZeroCopy(fd, iov, count, flags & ~MSG_ZEROCOPY);
  Call call(this, fd, flags, Call::Way::kSend);
  if (const auto result = call.Enter(__builtin_frame_address(0))) return *result;
  Sending send(iov, count, flags);
  if (!call.blocks()) send.promised = Writable();
  LookAheadOfSend(send.total);
  if (MayCork(call, send, flags) && Cork({iov, count}, send.total)) return static_cast<ssize_t>(send.total);
  share_.reader_elsewhere_until = kNever;
  for (;;) {
    if (!call.Usable()) return call.Ended(send.done());
    if (const auto end = EndOfSend(call, send)) return *end;
    Step step = SendByLoan(call, &send);
    if (step == Step::kGoOn) step = SendByCopy(&send);
    if (step == Step::kGoOn) step = AwaitRoom(call, &send);
    if (step == Step::kOver) return call.Ended(send.done());
    if (step == Step::kDone) break;
  }
  if (send.found_end) {
    if (const auto end = EndOfLink(call, send)) return *end;
  }
  TakeCredit();
  const ssize_t sent = call.Done(send.done());
  OpenExpress(/*inside=*/1);
  return sent == 0 && send.total > 0 ? Fail(EAGAIN) : sent;
}

// What TCP would know before it takes anything.
void StreamSocket::LookAheadOfSend(size_t total) {
  if (total == 0) return LookToTheEnd();
  if (use_.calls - use_.calls_at_glance >= kCallsBetweenGlances) {
    use_.calls_at_glance = use_.calls;
    GlanceAtLink();
  }
  LookForRefusal();
}

bool StreamSocket::MayCork(const Call& call, const Sending& send, int flags) const {
  const bool more =
      (flags & MSG_MORE) != 0 || options_.kept.cork() || (call.blocks() && ForcesTransactions());
  return more && !send.flags.out_of_band && send.total > 0 && tcp_.pending_error == 0 && engine().can_send();
}

// Returns what the call returns if nothing can be sent any more.
std::optional<ssize_t> StreamSocket::EndOfSend(Call& call, const Sending& send) {
  if (!CannotSend()) [[likely]]
    return std::nullopt;
  if (send.done() > 0) return call.Done(send.done());
  if (tcp_.pending_error == 0) LookToTheEnd();  // a reset comes before that
  if (tcp_.pending_error != 0) return call.Failed(tcp_.TakeError());
  return InCloseWait() ? SendToNobody(send.total) : call.Failed(EPIPE);
}

// Lends the program's memory to the peer, where that is worth it. kGoOn: the data is to be copied.
StreamSocket::Step StreamSocket::SendByLoan(Call& call, Sending* send) {
  if (!call.blocks() || send->flags.out_of_band || !corked_.empty()) return Step::kGoOn;
  const Bytes front = send->data.Front();
  if (front.empty()) return Step::kGoOn;
  if (!engine().wants_source(front.size())) return Step::kGoOn;
  int error = 0;
  send->data.Advance(SendLent(call, front, &error));
  if (error == EAGAIN && Now() < call.Deadline()) error = 0;
  if (call.After(error) == Call::Woke::kOver) return Step::kOver;
  if (send->data.left() == 0) return Step::kDone;
  return foreign() || CannotSend() ? Step::kAgain : Step::kGoOn;
}

// Sends what room and credit allow. kGoOn: there is more.
StreamSocket::Step StreamSocket::SendByCopy(Sending* send) {
  SendCursor& data = send->data;
  send->ahead = send->done() > 0;
  while (data.left() > 0) {
    // A write of more pieces than one Rest() names goes on; its out-of-band byte is the very last.
    const size_t left = data.left();
    size_t room = SIZE_MAX;
    if (!send->flags.out_of_band) room = left < kLeastRoom ? SendRoom() : LinkRoom(left);
    if (room == 0) {
      NoteSendRoom();
      break;
    }
    const auto rest = data.Rest(room);
    engine::SendFlags flags = send->flags;
    flags.out_of_band = flags.out_of_band && !data.RestIsMore(rest);
    size_t moved;
    data.Advance(corked_.Send(*session_, rest, flags, &moved));
    if (moved == 0) break;
    share_.reader_elsewhere_until = kNever;
    if (data.left() == 0 || session_->end_unread()) break;
    send->ahead = true;
  }
  send->found_end = session_->end_unread();
  return send->found_end || data.left() == 0 ? Step::kDone : Step::kGoOn;
}

// Bytes were kept for want of credit, which may have come: else they would wait for the helper.
void StreamSocket::TakeCredit() {
  if (foreign() || engine().buffered_bytes() == 0 || session_->being_read()) [[likely]]
    return;
  const Time now = Now();
  if (now < use_.look_for_credit) return;
  if (!LookAtLink()) use_.look_for_credit = now + kBetweenLooksForCredit;
}

// The link has ended, and no thread has read that yet. Nothing: what was sent before counts.
std::optional<ssize_t> StreamSocket::EndOfLink(Call& call, const Sending& send) {
  while (session_->ReadAvailable()) {
  }
  AfterProgress();
  if (send.ahead || session_->queue_pair().failed_midway()) return std::nullopt;
  if (InCloseWait()) return SendToNobody(send.total);
  // As on TCP: what finds the connection gone has not been sent.
  return call.Failed(tcp_.pending_error != 0 ? tcp_.TakeError() : EPIPE);
}

// There is no credit, or no room. The peer may have granted some meanwhile. kDone: a call that does not wait
// takes no more.
StreamSocket::Step StreamSocket::AwaitRoom(Call& call, Sending* send) {
  const bool copies_all = send->flags.buffering == engine::Buffering::kFull;
  if (!std::exchange(send->looked, true) && LookAtLink() && (Writable() || CannotSend())) return Step::kAgain;
  if (!call.blocks()) {
    // Room was promised where there is no credit: it is taken by copying, or the caller would be told EAGAIN
    // after POLLOUT.
    if (!send->promised || send->done() > 0 || copies_all) return Step::kDone;
    send->flags.buffering = engine::Buffering::kFull;
    return Step::kAgain;
  }
  if (send->credit_until == kNever) send->credit_until = Now() + kPatienceForCredit;
  Call::Woke woke = call.Sleep(send->credit_until);
  if (woke == Call::Woke::kLate && !copies_all) {
    send->flags.buffering = engine::Buffering::kFull;
  } else if (woke == Call::Woke::kLate && !Writable()) {
    woke = call.Sleep();
  }
  return woke == Call::Woke::kOver ? Step::kOver : Step::kAgain;
}

ssize_t StreamSocket::SendToNobody(size_t bytes) {
  if (bytes == 0) return 0;
  bytes = std::min(bytes, kMostToNobody);
  tcp_.pending_error = EPIPE;
  tcp_.send_shut = true;
  board_.Bump();
  AfterProgress();
  return static_cast<ssize_t>(bytes);
}

}  // namespace sdp::preload
