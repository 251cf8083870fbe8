// Receive of a StreamSocket.
#include <limits.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "preload/signal_end.h"
#include "preload/socket/call.h"
#include "preload/socket/clock.h"
#include "preload/socket/iovec_cursor.h"
#include "preload/socket/options.h"

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

struct StreamSocket::Receiving {
  // Not an aggregate: GCC would clear all of it first, the cursor's spans, too.
  Receiving(const iovec* iov, size_t count, int flags)
      : room(iov, count), peek((flags & MSG_PEEK) != 0), truncates((flags & MSG_TRUNC) != 0) {}
  ReceiveCursor room;
  const bool peek;
  const bool truncates;  // MSG_TRUNC: the bytes are not copied out
  const size_t total = room.left();
  size_t wanted = 0;  // for less the call waits
  bool may_lend = false;
  bool lends_ahead = false;   // lends its memory before anything is there
  bool looked_ahead = false;  // before that
  bool looked = false;        // at the link
  bool slept = false;
  size_t done = 0;
  void Take(size_t bytes) {
    done += bytes;
    room.Advance(bytes);
  }
  [[nodiscard]] bool takes_direct(const StreamSocket& socket) const {
    return !peek && !truncates && socket.TakesDirect();
  }
};

ssize_t StreamSocket::Receive(int fd, const iovec* iov, size_t count, int flags, int* out_flags) {
  size_t taken = 0;
  if (count == 1) {
    if (const auto received = ReceiveExpress(*iov, flags, &taken)) {
      if (out_flags != nullptr) *out_flags = 0;
      return *received;
    }
  }
  const SignalEnd::NoReturn on_end;
  Receiving run(iov, count, flags);
  run.Take(taken);
  if (run.total == 0 && (flags & MSG_OOB) == 0) [[unlikely]]
    return ReceiveNothing(fd, flags, out_flags);
  if (out_flags != nullptr) *out_flags = 0;
  Call call(this, fd, flags, Call::Way::kReceive);
  if (const auto result = call.Enter(__builtin_frame_address(0))) return *result;
  if ((flags & MSG_OOB) != 0) return ReceiveOutOfBand(run.room.Rest(), flags, out_flags);
  run.wanted = (flags & MSG_WAITALL) != 0 ? run.total : std::min(run.total, LowWater());
  run.may_lend = call.blocks() && !run.peek && !tcp_.receive_shut && !run.truncates;
  // 9.3: never for MSG_WAITALL.
  run.lends_ahead = run.may_lend && run.wanted < run.total && AwaitsReadersMemory();
  for (;;) {
    if (!call.Usable(/*enough=*/run.done >= run.wanted && !run.peek))
      return call.Ended(run.peek ? 0 : run.done);
    Step step = TakeReadable(&run);
    if (step == Step::kGoOn) step = ReceiveByLoan(call, &run);
    if (step == Step::kGoOn) step = LookForMore(&run);
    if (step == Step::kGoOn) step = EndOfReceive(call, &run);
    if (step == Step::kGoOn) step = AwaitData(call, &run);
    if (step == Step::kFailed) return call.Failed(errno);
    if (step == Step::kOver && (run.done == 0 || state_ != State::kSdp)) return call.Ended(run.done);
    if (step == Step::kDone || step == Step::kOver) break;
  }
  if (!run.peek && run.done > 0) {
    urgent_mark_.NoteRead();  // the next one is another
  }
  const ssize_t received = call.Done(run.done);
  OpenExpress(/*inside=*/1);
  return received;
}

// TCP waits for something that it could deliver.
ssize_t StreamSocket::ReceiveNothing(int fd, int flags, int* out_flags) {
  char byte;
  const iovec one{.iov_base = &byte, .iov_len = 1};
  const ssize_t there = Receive(fd, &one, 1, (flags & ~MSG_WAITALL) | MSG_PEEK, out_flags);
  if (there >= 0) return 0;
  // The kernel does not ask how its sleep has ended.
  const bool slept =
      there == -1 && (errno == EAGAIN || errno == EINTR) && (flags & MSG_DONTWAIT) == 0 && !DoesNotBlock();
  return slept ? 0 : there;
}

// Takes what is there. kDone: the call stops at the urgent mark, as on TCP also at one that has come while it
// slept; nothing is lent for what is behind it either.
StreamSocket::Step StreamSocket::TakeReadable(Receiving* run) {
  const engine::Engine& e = engine();
  const auto stops = [&] { return !run->peek && run->done > 0 && e.at_mark(); };
  // The handler of a SIGURG that came meanwhile is first.
  if (!run->peek && run->done == 0 && e.at_mark() && !(run->slept && board_.has_owner())) PassMark();
  if (run->peek) run->done = 0;
  if (stops()) return Step::kDone;
  if (e.readable_bytes() == 0 && run->takes_direct(*this)) run->done += session_->ReceiveDirect(&run->room);
  if (e.readable_bytes() == 0) return Step::kGoOn;
  engine::Engine& from = session_->engine();
  if (!run->truncates && !run->room.MayWrite(from.readable_bytes())) {
    errno = EFAULT;
    return run->done == 0 ? Step::kFailed : Step::kDone;
  }
  if (run->peek) {
    run->done = Peek(from, run->room, run->truncates);
    return Step::kGoOn;
  }
  run->done += Take(from, run->room, run->truncates);
  session_->Pump();  // what was read is credit for the peer
  if (run->room.left() > 0 && e.readable_bytes() == 0 && run->takes_direct(*this)) {
    run->done += session_->ReceiveDirect(&run->room);
    if (e.readable_bytes() != 0) return Step::kAgain;  // a part of the next has room
  }
  return stops() ? Step::kDone : Step::kGoOn;
}

// Reads what the peer lends into the program's memory, or lends that, where it is worth it.
StreamSocket::Step StreamSocket::ReceiveByLoan(Call& call, Receiving* run) {
  const engine::Engine& e = engine();
  if (e.advertised_bytes() == 0 && !run->lends_ahead) [[likely]]
    return Step::kGoOn;
  const MutableBytes front = run->room.Front();
  const engine::SinkWish wish =
      run->may_lend && !front.empty() ? e.sink_wish(front.size()) : engine::SinkWish::kNothing;
  const bool ahead = wish == engine::SinkWish::kAdvertise && run->done == 0 && run->lends_ahead;
  if (ahead && !run->looked_ahead && !session_->link_ended()) {
    run->looked_ahead = true;  // what is there already cannot be written any more
    session_->ReadAvailable();
    AfterProgress();
    return Step::kAgain;
  }
  if (wish != engine::SinkWish::kRead && !ahead) {
    if (run->done < (run->peek ? run->total : run->wanted)) WantBcopy(run->peek ? run->total : 1);
    return Step::kGoOn;
  }
  int error = 0;
  const auto moved = ReceiveLent(call, front, wish == engine::SinkWish::kAdvertise, &error);
  if (!moved) WantBcopy(1);  // this call cannot read what the peer offers: the peer is to send it
  run->lends_ahead = run->lends_ahead && !ahead;
  run->room.Advance(moved.value_or(0));
  run->done += moved.value_or(0);
  if (call.After(error) == Call::Woke::kOver) return Step::kOver;
  return moved && run->done < run->total ? Step::kAgain : Step::kGoOn;
}

// Enough is there, or a look at the link may bring more. kGoOn: less than the call waits for.
StreamSocket::Step StreamSocket::LookForMore(Receiving* run) {
  if (ForcesTransactions()) [[unlikely]]
    corked_.Push(*session_);
  if (run->peek && run->done < run->total && !run->looked) {
    // Programs look again and again until enough is there.
    run->looked = true;
    session_->ReadAvailable();
    AfterProgress();
    return Step::kAgain;
  }
  if (run->done >= run->wanted) {
    // What has come since the last look, by a poll before this call perhaps, is the program's, too.
    const bool more = !run->peek && run->room.left() > 0 && !run->looked && share_.with == nullptr &&
                      !session_->being_read() && (!session_->ReadLately() || HasUntold());
    if (!more) return Step::kDone;
    run->looked = true;
    const bool comes = run->takes_direct(*this) && session_->ComesDirect();
    return comes || LookAtLink(/*takes=*/true) ? Step::kAgain : Step::kDone;
  }
  const bool at_mark =
      run->peek && run->done > 0 && run->done < std::min<uint64_t>(run->total, engine().readable_bytes());
  return at_mark ? Step::kDone : Step::kGoOn;
}

// Less is there than the call waits for. kGoOn: more may come.
StreamSocket::Step StreamSocket::EndOfReceive(Call& call, Receiving* run) {
  switch (preload::EndOfReceive(tcp_view(), run->peek)) {
    case ReceiveEnd::kError:
      if (run->done > 0) return Step::kDone;
      errno = tcp_.TakeError();
      return Step::kFailed;
    case ReceiveEnd::kShut:
      if (run->looked) return Step::kDone;
      run->looked = true;
      LookAtLink(/*takes=*/true);
      return Step::kAgain;
    case ReceiveEnd::kEndOfStream:
      return Step::kDone;
    case ReceiveEnd::kWaits:
      break;
  }
  const bool looks_first = !call.blocks() || options_.kept.receive_timeout() != Duration::zero() ||
                           share_.with != nullptr || !session_->may_sleep_in_read();
  if (run->looked || !looks_first) return Step::kGoOn;
  run->looked = true;
  const auto wanted = call.blocks() ? Session::PollFor::kSleep : Session::PollFor::kNow;
  if (LookAtLink(/*takes=*/true, wanted) || !LooksBeforeSleep()) return Step::kAgain;
  return Step::kGoOn;
}

StreamSocket::Step StreamSocket::AwaitData(Call& call, Receiving* run) {
  if (!call.blocks()) {
    if (run->done > 0) return Step::kDone;
    LeaveToBackground();
    use_.found_nothing = CoarseNow();
    OpenExpress(/*inside=*/1);
    errno = EAGAIN;
    return Step::kFailed;
  }
  run->slept = true;
  const bool direct = run->takes_direct(*this);
  const int error =
      call.SleepForData(verbs::SleeperMemory::kOthers, direct ? Awaited::kMessage : Awaited::kData);
  if (direct) run->looked = false;  // what is in the link may not be Data
  return call.After(error) == Call::Woke::kOver ? Step::kOver : Step::kAgain;
}

}  // namespace sdp::preload
