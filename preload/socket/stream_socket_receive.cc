// Receive of a StreamSocket.
#include <limits.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "preload/signal_end.h"
#include "preload/socket/call.h"
#include "preload/socket/clock.h"
#include "preload/socket/express_way.h"
#include "preload/socket/iovec_cursor.h"
#include "preload/socket/lender.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/options.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/waiting.h"

namespace sdp::preload {
namespace {

// Copies out, or with MSG_TRUNC drops, what is there.
size_t Take(engine::Engine& e, ReceiveCursor& room, bool discard) {
  size_t taken = 0;
  while (room.left() > 0) {
    std::array<std::byte, 4096> scratch;
    const MutableBytes dropped(scratch.data(), std::min(scratch.size(), room.left()));
    const size_t n = discard ? e.Receive({&dropped, 1}, {}) : e.Receive(room.Rest(), {});
    if (n == 0) break;
    room.Advance(n);
    taken += n;
    if (e.at_mark()) break;
  }
  return taken;
}

// A look cannot be continued where it ended. Apart, for its stack.
[[gnu::noinline]] size_t PeekIntoMany(engine::Engine& e, const ReceiveCursor& room) {
  std::array<MutableBytes, IOV_MAX> pieces;
  return e.Receive(room.Name(SIZE_MAX, pieces), {.peek = true});
}

// With MSG_TRUNC only counts.
size_t Peek(engine::Engine& e, ReceiveCursor& room, bool count_only) {
  if (count_only)
    return std::min<uint64_t>(e.at_mark() ? e.readable_bytes() : e.readable_to_any_mark(), room.left());
  const auto rest = room.Rest();
  return room.RestIsMore(rest) ? PeekIntoMany(e, room) : e.Receive(rest, {.peek = true});
}

}  // namespace

// One receive, from what is there to what the program gets.
class StreamSocket::Receiving {
 public:
  // `taken`: bytes that the program has already got.
  Receiving(StreamSocket& socket, const iovec* iov, size_t count, int flags, size_t taken)
      : s_(socket),
        room_(iov, count),
        peek_((flags & MSG_PEEK) != 0),
        truncates_((flags & MSG_TRUNC) != 0),
        done_(taken) {
    room_.Advance(taken);
  }
  [[nodiscard]] size_t total() const { return total_; }
  ssize_t Run(Call& call, int flags, int* out_flags);
  // A receive without room for a byte.
  static ssize_t Nothing(StreamSocket& socket, int fd, int flags, int* out_flags);

 private:
  // The byte that stands apart from the stream (SO_OOBINLINE off).
  ssize_t OutOfBand(int flags, int* out_flags);
  Step TakeReadable();
  Step ByLoan();
  Step LookForMore();
  Step End();
  Step AwaitData();
  [[nodiscard]] bool takes_direct() const { return !peek_ && !truncates_ && s_.TakesDirect(); }

  StreamSocket& s_;
  Call* call_ = nullptr;
  ReceiveCursor room_;
  const size_t total_ = room_.left();
  const bool peek_;
  const bool truncates_;  // MSG_TRUNC: the bytes are not copied out
  size_t wanted_ = 0;     // for less the call waits
  bool may_lend_ = false;
  bool lends_ahead_ = false;   // lends its memory before anything is there
  bool looked_ahead_ = false;  // before that
  bool looked_ = false;        // at the link
  bool slept_ = false;
  size_t done_;
};

ssize_t StreamSocket::Receive(int fd, const iovec* iov, size_t count, int flags, int* out_flags) {
  size_t taken = 0;
  if (count == 1) {
    if (const auto received = ExpressWay(*this).Receive(*iov, flags, &taken)) {
      if (out_flags != nullptr) *out_flags = 0;
      return *received;
    }
  }
  const SignalEnd::NoReturn on_end;
  Receiving receiving(*this, iov, count, flags, taken);
  if (receiving.total() == 0 && (flags & MSG_OOB) == 0) [[unlikely]]
    return Receiving::Nothing(*this, fd, flags, out_flags);
  if (out_flags != nullptr) *out_flags = 0;
  Call call(this, fd, flags, Call::Way::kReceive);
  if (const auto result = call.Enter(__builtin_frame_address(0))) return *result;
  return receiving.Run(call, flags, out_flags);
}

ssize_t StreamSocket::Receiving::Run(Call& call, int flags, int* out_flags) {
  call_ = &call;
  if ((flags & MSG_OOB) != 0) return OutOfBand(flags, out_flags);
  wanted_ = (flags & MSG_WAITALL) != 0 ? total_ : std::min(total_, Limits(s_).LowWater());
  may_lend_ = call.blocks() && !peek_ && !s_.tcp_.receive_shut && !truncates_;
  // 9.3: never for MSG_WAITALL.
  lends_ahead_ = may_lend_ && wanted_ < total_ && AwaitsReadersMemory();
  for (;;) {
    if (!call.Usable(/*enough=*/done_ >= wanted_ && !peek_)) return call.Ended(peek_ ? 0 : done_);
    Step step = TakeReadable();
    if (step == Step::kGoOn) step = ByLoan();
    if (step == Step::kGoOn) step = LookForMore();
    if (step == Step::kGoOn) step = End();
    if (step == Step::kGoOn) step = AwaitData();
    if (step == Step::kFailed) return call.Failed(errno);
    if (step == Step::kOver && (done_ == 0 || !s_.usable())) return call.Ended(done_);
    if (step == Step::kDone || step == Step::kOver) break;
  }
  if (!peek_ && done_ > 0) s_.urgent_mark_.NoteRead();  // the next one is another
  const ssize_t received = call.Done(done_);
  ExpressWay(s_).Open(/*inside=*/1);
  return received;
}

ssize_t StreamSocket::Receiving::OutOfBand(int flags, int* out_flags) {
  const std::span<const MutableBytes> places = room_.Rest();
  engine::Engine& e = s_.session_->engine();
  s_.session_->Read();
  s_.AfterProgress();
  if (s_.options_.kept.out_of_band_inline()) return Fail(EINVAL);
  if (!e.oob_available()) return Fail(e.oob_pending() ? EAGAIN : EINVAL);
  if (e.state() == engine::State::kAborted && !e.peer_closed()) return Fail(ENOTCONN);
  if (!places.empty() && (flags & MSG_TRUNC) == 0 && !MayWrite(places.front().data(), 1)) return Fail(EFAULT);
  const auto byte = e.TakeOob({.peek = (flags & MSG_PEEK) != 0});
  s_.AfterProgress();
  if (out_flags != nullptr) *out_flags |= MSG_OOB;
  if (places.empty()) {
    if (out_flags != nullptr) *out_flags |= MSG_TRUNC;
    return 0;
  }
  if ((flags & MSG_TRUNC) == 0) places.front().front() = *byte;
  return 1;
}

// TCP waits for something that it could deliver.
ssize_t StreamSocket::Receiving::Nothing(StreamSocket& socket, int fd, int flags, int* out_flags) {
  char byte;
  const iovec one{.iov_base = &byte, .iov_len = 1};
  const ssize_t there = socket.Receive(fd, &one, 1, (flags & ~MSG_WAITALL) | MSG_PEEK, out_flags);
  if (there >= 0) return 0;
  // The kernel does not ask how its sleep has ended.
  const bool slept = there == -1 && (errno == EAGAIN || errno == EINTR) && (flags & MSG_DONTWAIT) == 0 &&
                     !socket.DoesNotBlock();
  return slept ? 0 : there;
}

// Takes what is there. kDone: the call stops at the urgent mark, as on TCP also at one that has come while it
// slept; nothing is lent for what is behind it either.
StreamSocket::Step StreamSocket::Receiving::TakeReadable() {
  const engine::Engine& e = s_.engine();
  const auto stops = [&] { return !peek_ && done_ > 0 && e.at_mark(); };
  // The handler of a SIGURG that came meanwhile is first.
  const bool passes = !peek_ && done_ == 0 && e.at_mark() && !(slept_ && s_.board_.has_owner());
  if (passes && s_.urgent_mark_.Pass(e, s_.options_.kept.out_of_band_inline()))
    s_.session_->engine().TakeOob({});
  if (peek_) done_ = 0;
  if (stops()) return Step::kDone;
  if (e.readable_bytes() == 0 && takes_direct()) done_ += s_.session_->direct().Receive(&room_);
  if (e.readable_bytes() == 0) return Step::kGoOn;
  engine::Engine& from = s_.session_->engine();
  if (!truncates_ && !room_.MayWrite(from.readable_bytes())) {
    errno = EFAULT;
    return done_ == 0 ? Step::kFailed : Step::kDone;
  }
  if (peek_) {
    done_ = Peek(from, room_, truncates_);
    return Step::kGoOn;
  }
  done_ += Take(from, room_, truncates_);
  s_.session_->Pump();  // what was read is credit for the peer
  if (room_.left() > 0 && e.readable_bytes() == 0 && takes_direct()) {
    done_ += s_.session_->direct().Receive(&room_);
    if (e.readable_bytes() != 0) return Step::kAgain;  // a part of the next has room
  }
  return stops() ? Step::kDone : Step::kGoOn;
}

// Reads what the peer lends into the program's memory, or lends that, where it is worth it.
StreamSocket::Step StreamSocket::Receiving::ByLoan() {
  const engine::Engine& e = s_.engine();
  if (e.advertised_bytes() == 0 && !lends_ahead_) [[likely]]
    return Step::kGoOn;
  const MutableBytes front = room_.Front();
  const engine::SinkWish wish =
      may_lend_ && !front.empty() ? e.sink_wish(front.size()) : engine::SinkWish::kNothing;
  const bool ahead = wish == engine::SinkWish::kAdvertise && done_ == 0 && lends_ahead_;
  if (ahead && !looked_ahead_ && !s_.session_->link_ended()) {
    looked_ahead_ = true;  // what is there already cannot be written any more
    s_.session_->Read();
    s_.AfterProgress();
    return Step::kAgain;
  }
  if (wish != engine::SinkWish::kRead && !ahead) {
    if (done_ < (peek_ ? total_ : wanted_)) Lender(s_).WantBcopy(peek_ ? total_ : 1);
    return Step::kGoOn;
  }
  int error = 0;
  const auto moved = Lender(s_).ReceiveLent(*call_, front, wish == engine::SinkWish::kAdvertise, &error);
  if (!moved) Lender(s_).WantBcopy(1);  // this call cannot read what the peer offers: the peer is to send it
  lends_ahead_ = lends_ahead_ && !ahead;
  room_.Advance(moved.value_or(0));
  done_ += moved.value_or(0);
  if (call_->After(error) == Call::Woke::kOver) return Step::kOver;
  return moved && done_ < total_ ? Step::kAgain : Step::kGoOn;
}

// Enough is there, or a look at the link may bring more. kGoOn: less than the call waits for.
StreamSocket::Step StreamSocket::Receiving::LookForMore() {
  if (ForcesTransactions()) [[unlikely]]
    s_.corked_.Push(*s_.session_);
  if (peek_ && done_ < total_ && !looked_) {
    // Programs look again and again until enough is there.
    looked_ = true;
    s_.session_->Read();
    s_.AfterProgress();
    return Step::kAgain;
  }
  if (done_ >= wanted_) {
    // What has come since the last look, by a poll before this call perhaps, is the program's, too.
    const bool more = !peek_ && room_.left() > 0 && !looked_ && s_.share_.with == nullptr &&
                      (!s_.session_->reads().Lately() || Looks(s_).HasUntold());
    if (!more) return Step::kDone;
    looked_ = true;
    const bool comes = takes_direct() && s_.session_->direct().Comes();
    return comes || Looks(s_).LookAtLink(/*takes=*/true) ? Step::kAgain : Step::kDone;
  }
  const bool at_mark = peek_ && done_ > 0 && done_ < std::min<uint64_t>(total_, s_.engine().readable_bytes());
  return at_mark ? Step::kDone : Step::kGoOn;
}

// Less is there than the call waits for. kGoOn: more may come.
StreamSocket::Step StreamSocket::Receiving::End() {
  switch (preload::EndOfReceive(s_.tcp_view(), peek_)) {
    case ReceiveEnd::kError:
      if (done_ > 0) return Step::kDone;
      errno = s_.tcp_.TakeError();
      return Step::kFailed;
    case ReceiveEnd::kShut:
      if (looked_) return Step::kDone;
      looked_ = true;
      Looks(s_).LookAtLink(/*takes=*/true);
      return Step::kAgain;
    case ReceiveEnd::kEndOfStream:
      return Step::kDone;
    case ReceiveEnd::kWaits:
      break;
  }
  // The wait for a TCP link looks first, except in a stream of large messages.
  const bool waits_at_once = call_->blocks() && s_.queue_pair().pollable() == nullptr &&
                             !s_.session_->reads().in_bulk() && Waiting(s_).LooksBeforeSleep();
  if (looked_ || waits_at_once) return Step::kGoOn;
  looked_ = true;
  const auto wanted = call_->blocks() ? Session::PollFor::kSleep : Session::PollFor::kNow;
  if (Looks(s_).LookAtLink(/*takes=*/true, wanted) || !Waiting(s_).LooksBeforeSleep()) return Step::kAgain;
  return Step::kGoOn;
}

StreamSocket::Step StreamSocket::Receiving::AwaitData() {
  s_.corked_.PushStream(*s_.session_);
  if (!call_->blocks()) {
    if (done_ > 0) return Step::kDone;
    s_.upkeep_.LeaveToBackground();
    s_.use_.found_nothing = CoarseNow();
    ExpressWay(s_).Open(/*inside=*/1);
    errno = EAGAIN;
    return Step::kFailed;
  }
  slept_ = true;
  const bool direct = takes_direct();
  const int error = call_->SleepForData(direct ? Awaited::kMessage : Awaited::kData);
  if (direct) looked_ = false;  // what is in the link may not be Data
  return call_->After(error) == Call::Woke::kOver ? Step::kOver : Step::kAgain;
}

}  // namespace sdp::preload
