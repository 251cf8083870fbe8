// Zcopy of a StreamSocket: a blocking call lends its buffer to the connection and waits until it is its own
// again.
#include <errno.h>

#include <algorithm>

#include "preload/guard.h"
#include "preload/log.h"
#include "preload/socket/call.h"
#include "preload/socket/clock.h"
#include "preload/socket/forking.h"
#include "preload/socket/lender.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/options.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/tcp_info.h"
#include "preload/socket/waiting.h"
#include "preload/unbounded_poll.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// How long a sender's memory waits for a reader before it is asked back and copied instead, as TCP would have
// done at once (SDP 9.5.6). On top of it, round trips of the link.
constexpr Duration kPatienceForReader = std::chrono::milliseconds(2);
constexpr int kRoundTripsForReader = 3;
// An adapter answers the peer's RDMA Reads without a word: ReaderPatience::ReadsExpected() comes on top.
// For so long such a sender hears of solicited messages alone (SDP 14.2). What is read later is credit that
// the peer gets later, and two senders whose peers read nothing must not starve each other (9.2).
constexpr Duration kSolicitedAlone = kPatienceForReader;
// Most memory lent at a time: what may have to be copied when no reader comes.
constexpr size_t kMostLent = 1 << 20;
constexpr size_t kMostLentToReceive = 4 << 20;
// Where a copy cannot take its place, a peer that does not give memory back is cut off: the call has to
// return.
constexpr Duration kPatienceForReturn = std::chrono::seconds(5);

}  // namespace

void StreamSocket::Lender::CollectLoans() {
  if (s_.lending_.Collect(*s_.session_)) s_.board_.WakeAll();
}

void StreamSocket::Lender::WantBcopy(uint64_t enough) {
  if (s_.engine().advertised_bytes() == 0 || s_.engine().readable_bytes() >= enough ||
      s_.lending_.sink().loan.lent())
    return;
  s_.session_->engine().ForceBcopy();
  s_.session_->Pump();
}

void StreamSocket::Lender::WithdrawLoans() {
  s_.lending_.Withdraw(*s_.session_);
  s_.board_.WakeAll();
}

void StreamSocket::Forking::SettleLoans(Time deadline) {
  const NoCancellation whole;
  if (!s_.shareable() || s_.share_.with != nullptr || !s_.lending_.offered()) return;
  // A receive may sleep for as long as the peer waits for what the child is to say, and a send for as long as
  // it waits for what the child is to take. They go on without the loan, with what has come, or gone, by
  // then.
  Lender(s_).WithdrawLoans();
  s_.session_->Pump();
  if (Waiting(s_).LeaveBell()) s_.session_->Read();  // threads asleep cannot go on meanwhile
  s_.AfterProgress();
  while (s_.shareable() && s_.lending_.sink().loan.offered() && !s_.session_->link_ended() &&
         Now() < deadline) {
    pollfd link{.fd = s_.LinkOf(s_.numbers_.any()), .events = s_.session_->watch_events(), .revents = 0};
    timespec storage;
    UnboundedPoll(&link, 1, Remaining(deadline, &storage), nullptr);
    s_.session_->Read();
    s_.AfterProgress();
  }
}

bool StreamSocket::Lender::AwaitsSolicitedAlone() const {
  const engine::Engine& e = s_.engine();
  return e.advertised_out() != 0 && s_.lending_.source().loan.lent() && !s_.lending_.sink().loan.offered() &&
         e.buffered_bytes() == 0 && s_.corked_.empty() && !s_.board_.has_owner() && s_.board_.empty();
}

// One sleep of a call whose memory is lent, in whatever state the socket is by now. 0, EINTR, EAGAIN.
int StreamSocket::Lender::WaitForLoan(Lock& lock, int fd, const Loan& loan, Time deadline, Signals signals,
                                      Time solicited_until) {
  const bool open =
      s_.state_ == State::kSdp;  // else the number may be another file's; the background reads, and wakes us
  const bool solicited = Now() < solicited_until;
  const Time until = solicited ? std::min(deadline, solicited_until) : deadline;
  int error = Waiting(s_).WaitForChange(lock, open ? fd : -1, until, signals,
                                        solicited ? Awaited::kSolicited : Awaited::kAll);
  if (error == EAGAIN && until < deadline) error = 0;
  if (s_.session_ == nullptr) return 0;
  if (loan.lent()) CollectLoans();
  return error;
}

void StreamSocket::Lender::FinishLoan(Lock& lock, int fd, Loan* loan) {
  if (!loan->lent() || s_.session_ == nullptr) return;
  const bool kept = loan->Keep(*s_.session_);
  if (!kept) loan->Revoke(*s_.session_);
  s_.session_->Pump();
  s_.AfterProgress();  // the connection may have ended in it
  if (kept) return;
  CollectLoans();
  const Time give_up = Now() + kPatienceForReturn;
  while (loan->lent() && s_.session_ != nullptr) {
    const int error = WaitForLoan(lock, fd, *loan, give_up, Signals::kRestart);
    if (error != EAGAIN || Now() < give_up || s_.session_ == nullptr || !loan->lent()) continue;
    SDP_LOG(kInfo, "connection with %s reset: the peer does not give memory back",
            ToEndpoint(s_.names_.peer).ToString().c_str());
    s_.session_->Abort();
    CollectLoans();
  }
}

void StreamSocket::Lender::MendJump(Lock& lock, int fd, const void* frame) {
  // Its memory is no longer the call's. What was read into a receive buffer went with the jump, as it does on
  // TCP.
  if (!s_.lending_.any()) return;
  const auto mend = [&](Lending::Side& side) {
    if (!side.lender.JumpedOver(frame)) return;
    side.lender.Clear();
    FinishLoan(lock, fd, &side.loan);
    side.loan.TakeResult();
  };
  mend(s_.lending_.source());
  mend(s_.lending_.sink());
}

// A call that lends: from the loan to its result, also when the thread is cancelled in its sleep.
class StreamSocket::Lender::WhileLent {
 public:
  WhileLent(StreamSocket* socket, Call& call, Lending::Side& side)
      : socket_(socket), call_(call), side_(side) {
    side_.lender.Set(&mark_);
  }
  ~WhileLent() {
    const NoCancellation no_cancellation;  // FinishLoan sleeps, and nothing may be thrown out of here
    Lender(*socket_).FinishLoan(call_.lock(), call_.fd(), &side_.loan);
    side_.lender.Clear();
    if (!whole_) side_.loan.TakeResult();
  }
  WhileLent(const WhileLent&) = delete;
  WhileLent& operator=(const WhileLent&) = delete;
  // The call goes on, and takes the result.
  void NoteWhole() { whole_ = true; }

 private:
  const CallMark mark_;
  StreamSocket* const socket_;
  Call& call_;
  Lending::Side& side_;
  bool whole_ = false;
};

size_t StreamSocket::Lender::SendLent(Call& call, Bytes data, int* error) {
  *error = 0;
  // Into memory that a reader has lent more may go: it is there, and nobody waits for anything but the link.
  const size_t awaited = s_.session_->engine().sink_avail_bytes();
  data = data.first(std::min(data.size(), std::max(kMostLent, std::min(awaited, kMostLentToReceive))));
  if (awaited == 0 && s_.lending_.patience().TakesCopy()) return 0;
  // The others know nothing of this process's memory.
  if (s_.share_.with != nullptr) return 0;
  Loan& loan = s_.lending_.source().loan;
  if (!loan.Lend(*s_.session_, {const_cast<std::byte*>(data.data()), data.size()}, false)) return 0;
  const uint64_t sent_before = s_.session_->queue_pair().counters().bytes_out;
  {
    WhileLent lent(&s_, call, s_.lending_.source());
    *error = AwaitReader(call, data.size());
    if (s_.usable()) Looks(s_).TakeUntold();
    lent.NoteWhole();
  }
  const size_t moved = loan.TakeResult();
  // What finds the connection gone has not been sent, as on TCP.
  const bool nothing_left = !s_.foreign() && s_.session_ != nullptr && s_.session_->link_ended() &&
                            s_.session_->queue_pair().counters().bytes_out == sent_before;
  return nothing_left ? 0 : moved;
}

int StreamSocket::Lender::AwaitReader(Call& call, size_t size) {
  const Time deadline = call.Deadline();
  const Loan& loan = s_.lending_.source().loan;
  const verbs::DeviceLink* const device = s_.session_->queue_pair().device();
  const bool silent_reads = device != nullptr;
  const Time lent_at = Now();
  const Time solicited_until = silent_reads ? lent_at + kSolicitedAlone : Time{};
  s_.session_->Pump();
  s_.AfterProgress();
  // What TCP would not have taken without a reader waits for one; but not for memory of his that he need not
  // lend (MSG_WAITALL, 9.3).
  const bool impatient = (Limits(s_).MayBuffer(size) || AwaitsReadersMemory()) &&
                         (deadline == kNever || deadline > Now() + kPatienceForReader);
  Duration patience =
      kPatienceForReader + (silent_reads ? s_.lending_.patience().ReadsExpected(size) : Duration::zero());
  Time next_look = impatient ? std::min(deadline, Now() + patience) : deadline;
  uint64_t sent = s_.session_->queue_pair().counters().bytes_out;
  bool asked_round_trip = false;
  int error = 0;
  while (loan.lent() && s_.session_ != nullptr && s_.state_ == State::kSdp) {
    error = WaitForLoan(call.lock(), call.fd(), loan, next_look, call.signals(), solicited_until);
    if (error == EINTR) break;
    if (error == 0 || Now() < next_look || s_.session_ == nullptr) continue;
    if (Now() >= deadline) break;
    error = 0;
    // Bytes on their way are a reader at work.
    const uint64_t now_sent = s_.session_->queue_pair().counters().bytes_out;
    if (now_sent == sent) {
      if (asked_round_trip) break;
      asked_round_trip = true;
      const Duration of_rnic = device != nullptr ? device->round_trip() : Duration::zero();
      patience += kRoundTripsForReader * (of_rnic != Duration::zero() ? of_rnic : RoundTrip(call.fd()));
    }
    sent = now_sent;
    next_look = std::min(deadline, Now() + patience);
  }
  if (silent_reads && !loan.lent() && error == 0) s_.lending_.patience().NoteReads(Now() - lent_at, size);
  s_.lending_.patience().NoteLoan(loan.lent() && impatient && error == 0 && s_.state_ == State::kSdp);
  return error;
}

std::optional<size_t> StreamSocket::Lender::ReceiveLent(Call& call, MutableBytes room, bool advertise,
                                                        int* error) {
  *error = 0;
  room = room.first(std::min(room.size(), kMostLentToReceive));
  Loan& loan = s_.lending_.sink().loan;
  if (s_.share_.with != nullptr || !MayWrite(room.data(), room.size()) ||
      !loan.Lend(*s_.session_, room, advertise))
    return std::nullopt;
  {
    WhileLent lent(&s_, call, s_.lending_.sink());
    if (ForcesTransactions()) s_.corked_.Push(*s_.session_);  // in the SinkAvail, which has not left
    s_.session_->Pump();
    s_.AfterProgress();
    while (loan.lent() && s_.session_ != nullptr && s_.state_ == State::kSdp) {
      *error = call.SleepForData();
      if (s_.session_ != nullptr && loan.lent()) CollectLoans();
      if (*error != 0) break;
    }
    lent.NoteWhole();
  }
  return loan.TakeResult();
}

}  // namespace sdp::preload
