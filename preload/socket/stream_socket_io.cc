// Send and Receive of a StreamSocket.
#include <errno.h>
#include <limits.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <span>

#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/signal_end.h"
#include "preload/socket/clock.h"
#include "preload/socket/options.h"
#include "preload/socket/stream_socket.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// How long a blocking sender waits for credit before its data is copied instead (SDP 9.5.6: two peers that
// both send before they receive must not wait for each other for ever).
constexpr Duration kPatienceForCredit = std::chrono::milliseconds(2);

// How often a program that goes on sending looks whether the link is over.
constexpr uint64_t kCallsBetweenGlances = 256;

// A receive of so few bytes is not asked whether it would lend its memory.
constexpr size_t kNeverLent = 1024;

// The caller's iovec with a position, as spans for the engine.
template <typename Span, typename Byte>
class IovecCursor {
 public:
  IovecCursor(const iovec* iov, size_t count) : iov_(iov), count_(count) {
    for (size_t i = 0; i < count; ++i) left_ += iov[i].iov_len;
  }
  [[nodiscard]] size_t left() const { return left_; }

  // As much of the rest, up to `most` bytes, as a fixed number of spans can name.
  std::span<const Span> Rest(size_t most = SIZE_MAX) {
    return Name(most, {reinterpret_cast<Span*>(spans_), kSpans});
  }
  [[nodiscard]] bool RestIsMore(std::span<const Span> named) const {
    if (named.size() < kSpans) return false;
    size_t bytes = 0;
    for (const Span& span : named) bytes += span.size();
    return bytes < left_;
  }

  // The same with room for as many as `spans` has.
  std::span<const Span> Name(size_t most, std::span<Span> spans) const {
    size_t n = 0;
    size_t offset = offset_;
    for (size_t i = index_; i < count_ && n < spans.size() && most > 0; ++i, offset = 0) {
      if (iov_[i].iov_len == offset) continue;
      const size_t length = std::min(iov_[i].iov_len - offset, most);
      new (&spans[n++]) Span(static_cast<Byte*>(iov_[i].iov_base) + offset, length);
      most -= length;
    }
    return spans.first(n);
  }

  // The next `most` bytes may be written to, or what there is of them.
  [[nodiscard]] bool MayWrite(size_t most) const {
    size_t offset = offset_;
    for (size_t i = index_; i < count_ && most > 0; ++i, offset = 0) {
      const size_t length = std::min(iov_[i].iov_len - offset, most);
      if (!preload::MayWrite(static_cast<std::byte*>(iov_[i].iov_base) + offset, length)) return false;
      most -= length;
    }
    return true;
  }

  void Advance(size_t bytes) {
    left_ -= bytes;
    while (bytes > 0) {
      const size_t step = std::min(bytes, iov_[index_].iov_len - offset_);
      bytes -= step;
      offset_ += step;
      if (offset_ == iov_[index_].iov_len) {
        ++index_;
        offset_ = 0;
      }
    }
  }

 private:
  const iovec* iov_;
  size_t count_;
  size_t index_ = 0;
  size_t offset_ = 0;
  size_t left_ = 0;
  static constexpr size_t kSpans = 64;
  // Not made before there is something to name: most calls have one piece.
  alignas(Span) std::byte spans_[kSpans * sizeof(Span)];
};
using SendCursor = IovecCursor<Bytes, const std::byte>;
using ReceiveCursor = IovecCursor<MutableBytes, std::byte>;

Time DeadlineOf(Duration timeout) { return timeout == Duration::zero() ? kNever : Now() + timeout; }

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

int Fail(int error) {
  errno = error;
  return -1;
}

// The last bytes of all connections are on their way, and other threads may still send: the process is not to
// die of that before its time.
constinit std::atomic<bool> process_ends{false};

// TCP: EPIPE comes with SIGPIPE, to this thread, unless it was declined.
int FailPipe(int flags) {
  SignalEnd::AwaitIfUnderWay();  // before the signal
  // The system calls of raise. Behind a filter that forbids one the kernel, which needs none for that, is not
  // to be copied.
  const bool may_raise =
      !Confined() || (MayCall(Call::kGetpid) && MayCall(Call::kGettid) && MayCall(Call::kTgkill));
  if ((flags & MSG_NOSIGNAL) == 0 && may_raise && !process_ends.load(std::memory_order_relaxed))
    raise(SIGPIPE);
  return Fail(EPIPE);
}

}  // namespace

void StreamSocket::NoteProcessEnds() { process_ends.store(true, std::memory_order_relaxed); }

ssize_t StreamSocket::Send(int fd, const iovec* iov, size_t count, int flags) {
  const SignalEnd::NoReturn on_end;
  if ((flags & MSG_ZEROCOPY) != 0) [[unlikely]]
    return SendZeroCopy(fd, iov, count, flags & ~MSG_ZEROCOPY);
  SendCursor data(iov, count);
  Lock lock(mutex_);
  InCall call(this, &lock);
  if (state_ == State::kConnecting) {
    const int error = (flags & MSG_DONTWAIT) != 0 || IsNonblocking(fd)
                          ? EAGAIN
                          : AwaitConnect(lock, options_.send_timeout());
    if (error != 0) return Fail(error);
  }
  if (state_ != State::kSdp) {
    if (pending_error_ != 0) {  // of a connect that has failed, or of the connection that was
      const int error = TakeError();
      call.Leave();
      lock.unlock();
      return error == EPIPE ? FailPipe(flags) : Fail(error);
    }
    return kPassThrough;  // the kernel knows what a socket that is not connected answers
  }
  if ((flags & MSG_FASTOPEN) != 0) [[unlikely]]
    return Fail(EISCONN);
  Time deadline = kNever;
  if (foreign()) {
    const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !IsNonblocking(fd);
    if (const int error = AwaitConnection(lock, !may_wait, options_.send_timeout(), &deadline); error != 0)
      return Fail(error);
  }
  MendJump(lock, fd, __builtin_frame_address(0));
  ++calls_;
  const size_t total = data.left();
  const bool writable = Writable();  // what poll told the caller
  if (total > 0) [[likely]] {
    if (calls_ % kCallsBetweenGlances == 0) GlanceAtLink();
    LookForRefusal();
  } else {
    LookToTheEnd();
  }
  const bool nonblocking = (flags & MSG_DONTWAIT) != 0 || IsNonblocking(fd);
  const bool more = (flags & MSG_MORE) != 0 || options_.cork() || (!nonblocking && ForcesTransactions());
  const bool may_cork =
      (flags & MSG_OOB) == 0 && total > 0 && pending_error_ == 0 && session_->engine().can_send();
  if (more && may_cork && Cork({iov, count}, total)) return static_cast<ssize_t>(total);
  engine::SendFlags send_flags{.out_of_band = (flags & MSG_OOB) != 0};
  Time credit_deadline = kNever;
  bool looked = false;
  left_until_ = kNever;
  policy_.SendBegins(
      session_->engine(), total, !nonblocking, shared_ != nullptr, [this] { return traffic(); }, Now);
  for (;;) {
    if (foreign()) {  // since a sleep
      const int error = AwaitConnection(lock, nonblocking, options_.send_timeout(), &deadline);
      if (error != 0 && total != data.left()) return static_cast<ssize_t>(total - data.left());
      if (error != 0) return Fail(error);
    }
    engine::Engine& e = session_->engine();
    if (pending_error_ != 0) {
      if (total != data.left()) break;
      const int error = TakeError();
      call.Leave();
      lock.unlock();
      return error == EPIPE ? FailPipe(flags) : Fail(error);
    }
    if (!e.can_send()) {
      if (total != data.left()) break;
      LookToTheEnd();  // a reset comes before that
      if (pending_error_ != 0) continue;
      if (InCloseWait()) return SendToNobody(total);
      call.Leave();
      lock.unlock();
      return FailPipe(flags);
    }
    if (!nonblocking && !send_flags.out_of_band && corked_.empty()) {
      const auto rest = data.Rest();
      if (!rest.empty()) LookForSinkAvail(lock, fd, rest.front().size());
      if (state_ != State::kSdp)
        return total != data.left() ? static_cast<ssize_t>(total - data.left()) : Fail(EBADF);
      if (foreign() || pending_error_ != 0 || !e.can_send()) continue;
      if (!rest.empty() && e.wants_source(rest.front().size())) {
        if (deadline == kNever) deadline = DeadlineOf(options_.send_timeout());
        int error = 0;
        data.Advance(SendLent(lock, fd, rest.front(), deadline,
                              deadline == kNever ? Signals::kRestart : Signals::kInterrupt, &error));
        if (state_ != State::kSdp)
          return total != data.left() ? static_cast<ssize_t>(total - data.left()) : Fail(EBADF);
        if (error == EINTR || (error == EAGAIN && Now() >= deadline)) {
          AfterProgress();
          LeaveToBackground();
          return total != data.left() ? static_cast<ssize_t>(total - data.left()) : Fail(error);
        }
        if (data.left() == 0) break;
        if (foreign() || pending_error_ != 0 || !e.can_send()) continue;
      }
    }
    bool first = total == data.left();
    while (data.left() > 0) {
      // A write of more pieces than one Rest() names goes on; its out-of-band byte is the very last.
      const size_t room = send_flags.out_of_band ? SIZE_MAX : SendRoom();
      if (room == 0) {
        NoteSendRoom();
        break;
      }
      const auto rest = data.Rest(room);
      engine::SendFlags flags = send_flags;
      flags.out_of_band = flags.out_of_band && !data.RestIsMore(rest);
      size_t moved;
      data.Advance(corked_.Send(*session_, rest, flags, &moved));
      if (moved == 0) break;
      left_until_ = kNever;
      if (data.left() == 0 || session_->end_unread()) break;
      first = false;
    }
    if (session_->end_unread()) {
      while (session_->ReadAvailable()) {
      }
      AfterProgress();
      if (!first || session_->queue_pair().failed_midway()) break;
      if (InCloseWait()) return SendToNobody(total);
      // As on TCP: what finds the connection gone has not been sent.
      const int error = pending_error_ != 0 ? TakeError() : EPIPE;
      call.Leave();
      lock.unlock();
      return error == EPIPE ? FailPipe(flags) : Fail(error);
    }
    if (data.left() == 0) break;
    // No credit, or no room. The peer may have granted some meanwhile.
    if (!looked) {
      looked = true;
      if (LookAtLink() && (Writable() || pending_error_ != 0 || !e.can_send())) continue;
    }
    if (nonblocking) {
      // Room was promised where there is no credit: it is taken by copying, or the caller would be told
      // EAGAIN after POLLOUT.
      if (!writable || total != data.left() || send_flags.buffering == engine::Buffering::kFull) break;
      send_flags.buffering = engine::Buffering::kFull;
      continue;
    }
    if (deadline == kNever) deadline = DeadlineOf(options_.send_timeout());
    const Signals signals = deadline == kNever ? Signals::kRestart : Signals::kInterrupt;
    if (credit_deadline == kNever) credit_deadline = Now() + kPatienceForCredit;
    int error = WaitForChange(lock, fd, std::min(deadline, credit_deadline), signals);
    if (state_ != State::kSdp)
      return total != data.left() ? static_cast<ssize_t>(total - data.left()) : Fail(EBADF);
    if (error == EAGAIN && Now() >= credit_deadline) {
      if (send_flags.buffering == engine::Buffering::kSmall) {
        send_flags.buffering = engine::Buffering::kFull;
        continue;
      }
      error = Writable() ? 0 : WaitForChange(lock, fd, deadline, signals);
      if (state_ != State::kSdp)
        return total != data.left() ? static_cast<ssize_t>(total - data.left()) : Fail(EBADF);
    }
    if (error == EINTR || (error == EAGAIN && Now() >= deadline)) {
      if (total != data.left()) break;
      AfterProgress();
      LeaveToBackground();
      return Fail(error);
    }
  }
  AfterProgress();
  LeaveToBackground();
  if (total == data.left() && total > 0) return Fail(EAGAIN);
  return static_cast<ssize_t>(total - data.left());
}

ssize_t StreamSocket::SendToNobody(size_t bytes) {
  if (bytes == 0) return 0;
  pending_error_ = EPIPE;
  send_shut_ = true;
  board_.Bump();
  AfterProgress();
  return static_cast<ssize_t>(bytes);
}

ssize_t StreamSocket::Receive(int fd, const iovec* iov, size_t count, int flags, int* out_flags) {
  const SignalEnd::NoReturn on_end;
  ReceiveCursor room(iov, count);
  if (room.left() == 0 && (flags & MSG_OOB) == 0) [[unlikely]] {
    // TCP waits for something that it could deliver.
    char byte;
    const iovec one{.iov_base = &byte, .iov_len = 1};
    const ssize_t there = Receive(fd, &one, 1, (flags & ~MSG_WAITALL) | MSG_PEEK, out_flags);
    if (there >= 0) return 0;
    // The kernel does not ask how its sleep has ended.
    const bool slept =
        there == -1 && (errno == EAGAIN || errno == EINTR) && (flags & MSG_DONTWAIT) == 0 && !DoesNotBlock();
    return slept ? 0 : there;
  }
  if (out_flags != nullptr) *out_flags = 0;
  Lock lock(mutex_);
  const InCall call(this, &lock);
  if (state_ == State::kConnecting) {
    const int error = (flags & MSG_DONTWAIT) != 0 || IsNonblocking(fd)
                          ? EAGAIN
                          : AwaitConnect(lock, options_.receive_timeout());
    if (error != 0) return Fail(error);
  }
  if (state_ != State::kSdp) {
    if (pending_error_ != 0) return Fail(TakeError());
    return kPassThrough;
  }
  Time deadline = kNever;
  if (foreign()) {
    const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !IsNonblocking(fd);
    if (const int error = AwaitConnection(lock, !may_wait, options_.receive_timeout(), &deadline); error != 0)
      return Fail(error);
  }
  OnlyLooks();
  MendJump(lock, fd, __builtin_frame_address(0));
  ++calls_;
  if ((flags & MSG_OOB) != 0) return ReceiveOutOfBand(room.Rest(), flags, out_flags);
  const size_t total = room.left();
  const bool nonblocking = (flags & MSG_DONTWAIT) != 0 || IsNonblocking(fd);
  const bool peek = (flags & MSG_PEEK) != 0;
  const size_t wanted = (flags & MSG_WAITALL) != 0 ? total : std::min(total, LowWater());
  const bool may_lend = !nonblocking && !peek && !receive_shut_ && (flags & MSG_TRUNC) == 0;
  // 9.3: never for MSG_WAITALL.
  bool lend_ahead = may_lend && wanted < total && total > kNeverLent && LendsAhead(iov[0].iov_len);
  bool looked_ahead = false;
  bool looked = false;
  bool slept = false;
  size_t done = 0;
  for (;;) {
    if (foreign()) {  // since a sleep
      const bool enough = done >= wanted && !peek;
      const int error =
          enough ? EAGAIN : AwaitConnection(lock, nonblocking, options_.receive_timeout(), &deadline);
      if (error != 0 && done > 0 && !peek) return static_cast<ssize_t>(done);
      if (error != 0) return Fail(error);
    }
    const engine::Engine& e = engine();
    // The handler of a SIGURG that came meanwhile is first.
    if (!peek && done == 0 && e.at_mark() && !(slept && board_.has_owner())) PassMark();
    if (peek) done = 0;
    // TCP stops a read at the mark, also at one that has come while it slept. Nothing is lent for what is
    // behind it either.
    const auto stopped = [&] { return !peek && done > 0 && engine().at_mark(); };
    if (!stopped() && e.readable_bytes() != 0) {
      engine::Engine& from = session_->engine();
      if ((flags & MSG_TRUNC) == 0 && !room.MayWrite(from.readable_bytes())) {
        if (done == 0) return Fail(EFAULT);
        break;
      }
      done = peek ? Peek(from, room, (flags & MSG_TRUNC) != 0)
                  : done + Take(from, room, (flags & MSG_TRUNC) != 0);
    }
    if (done > 0 && !peek) session_->Pump();  // what was read is credit for the peer
    if (stopped()) break;
    if (e.advertised_bytes() > 0 || may_lend) {
      const auto rest = room.Rest();
      const engine::SinkWish wish =
          may_lend && !rest.empty() ? e.sink_wish(rest.front().size()) : engine::SinkWish::kNothing;
      const bool ahead = wish == engine::SinkWish::kAdvertise && done == 0 && lend_ahead;
      if (ahead && !looked_ahead && !session_->link_ended()) {
        looked_ahead = true;  // what is there already cannot be written any more
        session_->ReadAvailable();
        AfterProgress();
        continue;
      }
      if (wish == engine::SinkWish::kRead || ahead) {
        int error = 0;
        const auto moved =
            ReceiveLent(lock, fd, rest.front(), wish == engine::SinkWish::kAdvertise, &deadline, &error);
        if (!moved) WantBcopy(1);  // nobody will read what the peer offers: it is to come by itself
        lend_ahead = lend_ahead && !ahead;
        room.Advance(moved.value_or(0));
        done += moved.value_or(0);
        if (state_ != State::kSdp) return done > 0 ? static_cast<ssize_t>(done) : Fail(EBADF);
        if (error == 0 && moved && done < total) continue;
        if (error != 0 && done == 0) {
          AfterProgress();
          LeaveToBackground();
          return Fail(error);
        }
        if (error != 0) break;
      } else if (done < (peek ? total : wanted)) {
        WantBcopy(peek ? total : 1);
      }
    }
    if (ForcesTransactions()) [[unlikely]]
      corked_.Push(*session_);
    if (peek && done < total && !looked) {
      // Programs look again and again until enough is there.
      looked = true;
      session_->ReadAvailable();
      AfterProgress();
      continue;
    }
    if (done >= wanted) {
      // What has come since somebody looked, poll before this call perhaps, is the program's, too.
      const bool more = !peek && room.left() > 0 && !looked && shared_ == nullptr &&
                        !session_->being_read() && !session_->ReadLately();
      if (!more) break;
      looked = true;
      if (!LookAtLink()) break;
      continue;
    }
    if (peek && done > 0 && done < std::min<uint64_t>(total, e.readable_bytes())) break;  // the mark
    const ReceiveEnd end = EndOfReceive(tcp_view(), peek);
    if (end == ReceiveEnd::kError && done == 0) return Fail(TakeError());
    if (end == ReceiveEnd::kShut && !looked) {
      looked = true;
      LookAtLink();
      continue;
    }
    if (end != ReceiveEnd::kWaits) break;
    if (!looked && (nonblocking || options_.receive_timeout() != Duration::zero() || shared_ != nullptr ||
                    !session_->may_sleep_in_read())) {
      looked = true;
      if (LookAtLink() || !LooksBeforeSleep()) continue;
      if (nonblocking && done == 0) {
        LeaveToBackground();
        return Fail(EAGAIN);
      }
    }
    int error = EAGAIN;
    slept = !nonblocking;
    if (!nonblocking) error = SleepForData(lock, fd, &deadline, verbs::SleeperMemory::kOthers);
    if (state_ != State::kSdp) return Fail(EBADF);
    if (error != 0) {
      AfterProgress();
      LeaveToBackground();
      if (done > 0) break;
      return Fail(error);
    }
  }
  if (!peek && done > 0) {
    policy_.Received(done);
    urgent_mark_.NoteRead();  // the next one is another
  }
  AfterProgress();
  LeaveToBackground();
  return static_cast<ssize_t>(done);
}

// 0: look again. Else EINTR, or EAGAIN when the receive time-out has passed.
int StreamSocket::SleepForData(Lock& lock, int fd, Time* deadline, verbs::SleeperMemory memory) {
  if (options_.receive_timeout() == Duration::zero() && shared_ == nullptr && !reads_by_poll_ &&
      session_->may_sleep_in_read()) {
    // The link's own read restarts after a signal handler exactly when TCP's would (SA_RESTART).
    (void)urgent_mark_.TakeRaised();
    lock.release();
    std::unique_lock own(mutex_.own(), std::adopt_lock);
    verbs::DroppedLock dropped(own);
    const CallMark mark;
    reader_.Set(&mark);
    struct Sleeping {
      StreamSocket* socket;
      bool cancelled = true;
      ~Sleeping() {
        if (!socket->session_->being_read()) socket->reader_.Clear();
        LinkRead::Over();
        if (!cancelled) return;
        if (socket->shared_ != nullptr) socket->EnterShared();  // the others may read
        if (socket->shared_ != nullptr) socket->LeaveShared();
        socket->board_.WakeAll();  // as below
        socket->LetGoOn();
      }
    };
    verbs::ReadStatus status;
    {
      Sleeping sleeping{.socket = this};
      status = session_->ReadSleeping(dropped, memory);
      sleeping.cancelled = false;
    }
    own.release();
    lock = Lock(mutex_, std::adopt_lock);
    if (shared_ != nullptr) mutex_.Enter();  // a fork came meanwhile
    if (state_ == State::kSdp) AfterProgress(/*publish=*/session_->engine().readable_bytes() == 0);
    board_.WakeAll();  // another reader has to take over the link
    LetGoOn();
    if (Critical::TakeBrokenOff()) return 0;
    if (status == verbs::ReadStatus::kInterrupted || UrgentInterrupts()) return EINTR;
    if (status != verbs::ReadStatus::kWouldBlock) return 0;
    // Not asleep at all: somebody else (another process that shares the file) made it non-blocking.
    nonblocking_.reset();
    return IsNonblocking(NumberNow(fd)) ? EAGAIN : 0;
  }
  if (*deadline == kNever) *deadline = DeadlineOf(options_.receive_timeout());
  const Signals signals = *deadline == kNever ? Signals::kRestart : Signals::kInterrupt;
  const int error = WaitForChange(lock, fd, *deadline, signals, Awaited::kData);
  return error == EAGAIN && Now() < *deadline ? 0 : error;
}

void StreamSocket::LetGoOn() {
  if (state_ == State::kClosed && Background::Holds(&task_)) Background::Add(&task_, Duration::zero());
}

}  // namespace sdp::preload
