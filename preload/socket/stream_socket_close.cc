// Shutdown and Close of a StreamSocket.
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/inheritance.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/clock.h"
#include "preload/socket/connector.h"
#include "preload/socket/departure.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/looks.h"
#include "preload/socket/server.h"
#include "preload/socket/session_transfer.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/tcp_info.h"
#include "preload/socket/waiting.h"

namespace sdp::preload {
namespace {

// How long a connect may go on whose socket was closed. On TCP the connection is there as soon as the kernels
// have agreed, and its peer reads an end.
constexpr Duration kPatienceForConnect = std::chrono::seconds(1);
// How long close may sleep for bytes that the link does not take yet, where no descriptor is left to do it
// behind the application's back.
constexpr Duration kClosePatience = std::chrono::seconds(2);

// How often one looks whether the kernel has sent what it took.
constexpr Duration kLookAtKernel = std::chrono::milliseconds(1);

// So many bytes that are not acknowledged have reached a kernel of this host that offers so much room.
constexpr int kSmallRest = 4096;
constexpr uint32_t kRoomForRest = 16 * 1024;

// How often an end that closes first reads what its peer answers.
constexpr int kMostReads = 3;

// Who closes one connection after the other without a descriptor left does not sleep so long for each.
constinit std::atomic<Time> close_waited_in_vain{Time{}};

Time EndOfClosePatience() {
  const Time now = Now();
  return now < close_waited_in_vain.load() + kClosePatience ? now : now + kClosePatience;
}

// The program's, or one that was kept for its calls.
int CloseNumber(int fd) {
  if (!HiddenFds::Contains(fd)) return real.close(fd);
  HiddenFds::Close(fd);
  return 0;
}

}  // namespace

bool HasLingering() { return Lingering::Any(); }

bool StreamSocket::Departure::AllSent(int link) {
  if (!s_.session_->AllTaken()) return false;
  if (s_.session_->link_ended() || s_.queue_pair().device() != nullptr || s_.OnLocalLink() || Confined())
    return true;
  // A network may lose what was sent; our FIN counts as a byte.
  const bool within_host = WithinHost(s_.names_.local, s_.names_.peer);
  int bytes = 0;
  return real.ioctl(link, within_host ? SIOCOUTQNSD : SIOCOUTQ, &bytes) != 0 ||
         bytes <= (within_host ? 0 : 1);
}

int StreamSocket::Departure::AwaitSent(Lock& lock, int fd, Time deadline, Signals signals) {
  while (s_.usable() && !(s_.share_.closing_unsent ? s_.session_->AllTaken() : AllSent(fd))) {
    const Time now = Now();
    if (now >= deadline) return EAGAIN;
    // What the kernel sends tells nobody.
    const Time again = s_.session_->AllTaken() ? std::min(deadline, now + kLookAtKernel) : deadline;
    const int error = Waiting(s_).WaitForChange(lock, fd, again, signals);
    if (error != 0 && error != EAGAIN && signals == Signals::kInterrupt) return error;
  }
  return 0;
}

int StreamSocket::Shutdown(int fd, int how) {
  Lock lock(mutex_);
  if (state_ == State::kListening && (how == SHUT_RD || how == SHUT_RDWR)) {
    // The conventional one first: who sleeps on both finds that one hung up.
    const int result = real.shutdown(fd, how);
    const int error = errno;
    Server(*this).StopListening(fd);
    errno = error;
    return result;
  }
  if (state_ == State::kConnecting) Connector(*this).StepAttempt();
  if (state_ == State::kConnecting)
    return how == SHUT_RD || how == SHUT_WR || how == SHUT_RDWR ? Connector(*this).ShutDownConnect(fd)
                                                                : Fail(EINVAL);
  if (state_ != State::kSdp) return kPassThrough;
  if (foreign()) {
    Time deadline = kNever;
    if (const int error = Holders(*this).AwaitConnection(lock, /*nonblocking=*/false, {}, &deadline);
        error != 0)
      return Fail(error);
  }
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return Fail(EINVAL);
  Lender(*this).MendJump(lock, fd, __builtin_frame_address(0));
  ++use_.calls;
  Looks(*this).LookToTheEnd();  // TCP knows of a reset that has come
  engine::Engine& e = session_->engine();
  if (InCloseWait()) {
    tcp_.receive_shut = tcp_.receive_shut || how != SHUT_WR;
    tcp_.send_shut = how != SHUT_RD;
    tcp_.connect_reported = true;
    board_.Bump();
    AfterProgress();
    return 0;
  }
  const bool over =
      e.state() == engine::State::kClosed && !session_->has_unsent();  // both ends have been exchanged
  if (over || e.state() == engine::State::kAborted || session_->link_ended()) {
    board_.Bump();  // TCP tells sleepers even of that
    AfterProgress();
    return Fail(ENOTCONN);
  }
  tcp_.connect_reported =
      true;  // TCP's next connect does not tell it who has shut the connection down, but says EISCONN
  if (how != SHUT_WR && !tcp_.receive_shut) {
    // What has come stays to be read, and what comes: a receive that finds nothing ends.
    tcp_.receive_shut = true;
    if (lending_.any()) lending_.sink().loan.Revoke(*session_);
    Lender(*this).WantBcopy(1);  // no call lends the peer memory any more
  }
  if (how != SHUT_RD) {
    corked_.Push(*session_);
    e.CloseSend();
  }
  if (tcp_.receive_shut && !e.can_send()) e.RefuseReceive();
  session_->Pump();
  board_.Bump();
  AfterProgress();
  upkeep_.LeaveToBackground();
  return 0;
}

int StreamSocket::Close(int fd) {
  const int saved = errno;
  std::unique_lock own(mutex_.own());
  numbers_.Remove(fd);
  FdTable::Remove(fd, this);
  if (!numbers_.none()) {
    Departure(*this).GoOnWithout(fd);
    return real.close(fd);
  }
  if (Departure(*this).KeepForCalls(fd)) return real.close(fd);
  if (state_ == State::kSdp && Holders(*this).OthersGoOn()) {
    Holders(*this).ForgetShared();
    state_ = State::kClosed;
    board_.TellClosed();
    Departure(*this).DropSession();
    errno = saved;
    return real.close(fd);
  }
  numbers_.Add(fd);  // until the connection's state, which may come from another process, is here
  own.unlock();
  Lock lock = Holders(*this).LockWithOwner();
  numbers_.Remove(fd);
  switch (state_.load()) {
    case State::kSdp: {
      const int result = Departure(*this).CloseLast(lock, fd);
      if (result == 0) errno = saved;
      return result;
    }
    case State::kListening:
      listening_.listener->Close();
      Departure(*this).DropSession();
      break;
    case State::kConnecting:
      Departure(*this).LeaveConnect(fd);
      state_ = State::kClosed;  // the helper sees it
      board_.TellClosed();
      break;
    case State::kNew:
    case State::kPlain:
    case State::kClosed:
      break;
  }
  errno = saved;
  return real.close(fd);
}

void StreamSocket::Departure::LeaveConnect(int fd) {
  if (s_.connecting_.attempt != nullptr)
    s_.connecting_.attempt->NoteGivenUp();  // before the program connects again
  if (s_.connecting_.attempt != nullptr && !s_.connecting_.in_call && !s_.options_.kept.resets_at_close() &&
      !Confined() && !Lingering::TooMany()) {
    s_.lingering_.Begin(HiddenFds::Duplicate(fd));
    s_.lingering_.SetUntil(Now() + kPatienceForConnect);
  }
  if (s_.lingering_.fd() >= 0) {
    s_.connecting_.attempt->SetFd(s_.lingering_.fd());
    Background::Add(&s_.upkeep_, Duration::zero());  // it sleeps on the number that is no more
  }
}

void StreamSocket::Departure::GoOnWithout(int fd) {
  QuietLinks::Unwatch(&s_.upkeep_, fd);
  if (s_.upkeep_.relied_on()) s_.board_.WakeAll();
  if (Session* const known = s_.session_.last_known();
      known != nullptr && std::as_const(*known).queue_pair().event_fd() == fd)
    known->queue_pair().SetEventFd(s_.numbers_.any());
  if (s_.connecting_.attempt == nullptr) return;
  s_.connecting_.attempt->SetFd(s_.numbers_.any());
  if (Background::Holds(&s_.upkeep_))
    Background::Add(&s_.upkeep_, Duration::zero());  // it sleeps on the number that is no more
}

int StreamSocket::Departure::CloseLast(Lock& lock, int fd) {
  QuietLinks::Leave(&s_.upkeep_);
  if (s_.foreign()) {
    s_.state_ = State::kClosed;
    DropSession();
    return CloseNumber(fd);
  }
  Lender(s_).MendJump(lock, fd, __builtin_frame_address(0));
  if (s_.share_.with != nullptr && !s_.share_.with->HasOthers(/*sure=*/true)) Holders(s_).StopSharing();
  const linger& option = s_.options_.kept.linger_option();
  s_.lending_.AskBack(*s_.session_);
  s_.share_.closing_unsent = s_.share_.with != nullptr;
  if (!s_.session_->link_ended() && !s_.share_.closing_unsent) {
    EndStream();
    if (option.l_onoff != 0 && option.l_linger != 0) {  // also one that does not block
      const Time deadline = option.l_linger < 0 ? kNever : Now() + std::chrono::seconds(option.l_linger);
      (void)AwaitSent(lock, fd, deadline, Signals::kInterrupt);
      if (s_.state_ != State::kSdp) {
        s_.state_ = State::kClosed;
        return CloseNumber(fd);
      }
    }
  }
  // Not over yet: our last bytes, or the peer's DisConn. The number is the application's again at once.
  const bool over = s_.session_->link_ended() ||
                    (s_.share_.closing_unsent && !Holders(s_).keeps_from_others()) || MayGoAtOnce(fd);
  if (!over) s_.lingering_.Begin(DescriptorToLinger(lock, fd));
  if (s_.state_ != State::kSdp) {  // another thread has taken its peer away meanwhile
    s_.state_ = State::kClosed;
    return CloseNumber(fd);
  }
  s_.AfterProgress();
  s_.state_ = State::kClosed;
  s_.board_.TellClosed();
  const int result = CloseNumber(fd);
  if (s_.lingering_.fd() < 0) {
    DropSession();
    return result;
  }
  LingerOn();
  return result;
}

void StreamSocket::Departure::LingerOn() {
  s_.session_->queue_pair().SetEventFd(s_.lingering_.fd());
  if (s_.session_->transfer().portable()) s_.session_->queue_pair().portable()->StaysHere();
  s_.lingering_.SetUntil(Now() + Lingering::kFinWait);
  // Without memory no thread would go on with it.
  if (!Background::Add(&s_.upkeep_) && !Background::Holds(&s_.upkeep_)) DropSession();
}

// As TCP does: unread data, or a linger time of zero, resets the connection.
void StreamSocket::Departure::EndStream() {
  engine::Engine& e = s_.session_->engine();
  if (e.readable_bytes() == 0) s_.session_->Read();
  // Shut down before, it may have nothing to wait for any more but what TCP_LINGER2 says.
  const bool in_fin_wait = e.state() == engine::State::kSendClosed && !s_.session_->has_unsent() &&
                           Lingering::FinWait(s_.queue_pair().event_fd()) < Duration::zero();
  if (s_.options_.kept.resets_at_close() || e.readable_bytes() + e.advertised_bytes() > 0 ||
      s_.urgent_mark_.urgent(e) || e.refused_data() || in_fin_wait) {
    e.Abort(engine::AbortReason::kLocal);
  } else {
    s_.corked_.Push(*s_.session_);
    e.CloseSend();
    e.CloseReceive();
    if (!s_.OnLocalLink() && !Confined()) s_.session_->kinship().LeaveFirst();
  }
  s_.session_->Pump();
}

// Both ends have closed. 8.2.1: who sends the second DisConn ends the link. What the kernel has of it, it
// delivers, and what is in a local link's memory the peer reads. There, and to kin on this host, the first
// may go as well: its FIN tells the peer as much as the wait for the second DisConn would, and the kernel
// answers what comes for it with a reset, as on TCP. A helper that has the task may hold the file.
bool StreamSocket::Departure::MayGoAtOnce(int fd) {
  if (s_.share_.closing_unsent || s_.share_.with != nullptr || s_.session_->moving() ||
      s_.queue_pair().device() != nullptr || Background::Holds(&s_.upkeep_))
    return false;
  bool is_first = s_.OnLocalLink() && s_.engine().state() == engine::State::kSendClosed;
  for (int i = 0; i < kMostReads && is_first && !s_.session_->MaySleep(); ++i) {
    s_.session_->Read();  // the peer answers meanwhile
    is_first = s_.engine().state() == engine::State::kSendClosed;
  }
  const bool said_all =
      is_first ? s_.session_->MaySleep() : s_.engine().state() == engine::State::kClosed || KinHasAll(fd);
  return said_all && !s_.engine().refused_data() && AllSent(fd);
}

// What the peer's kernel has no room for, the reset in answer to a credit update would take back.
bool StreamSocket::Departure::KinHasAll(int fd) const {
  if (Confined() || !s_.session_->kinship().kin() || s_.engine().state() != engine::State::kSendClosed ||
      s_.session_->has_unsent() || !WithinHost(s_.names_.local, s_.names_.peer))
    return false;
  int bytes = 0;
  return real.ioctl(s_.LinkOf(fd), SIOCOUTQ, &bytes) == 0 && bytes <= kSmallRest &&
         PeerWindow(s_.LinkOf(fd)) >= kRoomForRest;
}

// -1: the link may go with `fd`. Its FIN behind our DisConn tells the peer as much as the wait for its own
// DisConn would; what it sends nevertheless is answered with a reset, as by a TCP socket without an owner.
int StreamSocket::Departure::DescriptorToLinger(Lock& lock, int fd) {
  if (Lingering::TooMany() && AllSent(fd)) return -1;
  const int hidden = Confined() ? -1 : HiddenFds::Duplicate(fd);
  if (hidden >= 0) return hidden;
  if (AwaitSent(lock, fd, EndOfClosePatience(), Signals::kRestart) != 0) {
    close_waited_in_vain = Now();
    if (MayLogError())
      SDP_LOG(kError, "no descriptor left to close a connection in good order: its last bytes are lost");
  }
  return -1;
}

void StreamSocket::Vanished(int fd) {
  Lock lock(mutex_);
  numbers_.Remove(fd);
  if (!numbers_.none()) return Departure(*this).GoOnWithout(fd);
  // The kernel has ended the link already; what was unsent is lost, as nobody told us in time.
  if (listening_.listener != nullptr) listening_.listener->Close();
  connecting_.attempt.reset();
  QuietLinks::Leave(&upkeep_);
  Departure(*this).DropSession();
  state_ = State::kClosed;
  board_.WakeAll();
}

// The connection is over (or the listener closed): its counters become history, its descriptor goes.
void StreamSocket::Departure::DropSession() {
  QuietLinks::Leave(&s_.upkeep_);
  s_.report_.Close(OpenStatistics(), s_.session_.last_known(), s_.names());
  if (s_.session_ != nullptr && !s_.foreign()) Lender(s_).CollectLoans();
  s_.lending_.Drop();
  Holders(s_).DropShared();
  // A device's queue pair is one for all processes that inherited it: to destroy it here would end the
  // parent's connection.
  if (s_.share_.given_up && s_.session_ != nullptr && !s_.session_.last_known()->transfer().portable())
    s_.session_.Abandon();
  s_.session_.reset();
  if (const int fd = s_.lingering_.End(); fd >= 0) HiddenFds::Close(fd);
}

}  // namespace sdp::preload
