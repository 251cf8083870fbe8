// Shutdown and Close of a StreamSocket.
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <new>

#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/inheritance.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/clock.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/tcp_info.h"

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

bool Resets(const linger& option) { return option.l_onoff != 0 && option.l_linger == 0; }

// The program's, or one that was kept for its calls.
int CloseNumber(int fd) {
  if (!HiddenFds::Contains(fd)) return real.close(fd);
  HiddenFds::Close(fd);
  return 0;
}

}  // namespace

bool HasLingering() { return Lingering::Any(); }

bool StreamSocket::AllSent(int link) {
  if (!session_->AllTaken()) return false;
  if (session_->link_ended() || queue_pair().device() != nullptr || OnLocalLink() || Confined()) return true;
  // A network may lose what was sent; our FIN counts as a byte.
  const bool within_host = WithinHost(names_.local, names_.peer);
  int bytes = 0;
  return real.ioctl(link, within_host ? SIOCOUTQNSD : SIOCOUTQ, &bytes) != 0 ||
         bytes <= (within_host ? 0 : 1);
}

int StreamSocket::AwaitSent(Lock& lock, int fd, Time deadline, Signals signals) {
  while (state_ == State::kSdp && !foreign() &&
         !(share_.closing_unsent ? session_->AllTaken() : AllSent(fd))) {
    const Time now = Now();
    if (now >= deadline) return EAGAIN;
    // What the kernel sends tells nobody.
    const Time again = session_->AllTaken() ? std::min(deadline, now + kLookAtKernel) : deadline;
    const int error = WaitForChange(lock, fd, again, signals);
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
    StopListening(fd);
    errno = error;
    return result;
  }
  if (state_ == State::kConnecting) StepAttempt();
  if (state_ == State::kConnecting)
    return how == SHUT_RD || how == SHUT_WR || how == SHUT_RDWR ? ShutDownConnect(fd) : Fail(EINVAL);
  if (state_ != State::kSdp) return kPassThrough;
  if (foreign()) {
    Time deadline = kNever;
    if (const int error = AwaitConnection(lock, /*nonblocking=*/false, {}, &deadline); error != 0)
      return Fail(error);
  }
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return Fail(EINVAL);
  MendJump(lock, fd, __builtin_frame_address(0));
  ++use_.calls;
  LookToTheEnd();  // TCP knows of a reset that has come
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
    lending_.sink().loan.Revoke(*session_);
    WantBcopy(1);  // nobody lends the peer memory any more
  }
  if (how != SHUT_RD) {
    corked_.Push(*session_);
    e.CloseSend();
  }
  if (tcp_.receive_shut && !e.can_send()) e.RefuseReceive();
  session_->Pump();
  if (tcp_.receive_shut && !e.can_send() && session_->being_read() && !session_->has_unsent()) {
    // A thread sleeps in the link's own read, and only the link's end wakes it. All we had to say has left:
    // this end is none of the peer's.
    tcp_.abort_noted = true;
    real.shutdown(fd, SHUT_RD);
  } else if (tcp_.receive_shut && session_->being_read() && !sleeps_.reader.End()) {
    session_->NudgeReader();
  }
  board_.Bump();
  AfterProgress();
  LeaveToBackground();
  return 0;
}

int StreamSocket::Close(int fd) {
  const int saved = errno;
  std::unique_lock own(mutex_.own());
  numbers_.Remove(fd);
  FdTable::Remove(fd, this);
  if (!numbers_.none()) {
    GoOnWithout(fd);
    return real.close(fd);
  }
  if (KeepForCalls(fd)) return real.close(fd);
  if (state_ == State::kSdp && OthersGoOn()) {
    ForgetShared();
    state_ = State::kClosed;
    board_.TellClosed();
    DropSession();
    errno = saved;
    return real.close(fd);
  }
  numbers_.Add(fd);  // until the connection's state, which may come from another process, is here
  own.unlock();
  Lock lock = LockWithOwner();
  numbers_.Remove(fd);
  switch (state_.load()) {
    case State::kSdp: {
      const int result = CloseLast(lock, fd);
      if (result == 0) errno = saved;
      return result;
    }
    case State::kListening:
      listening_.listener->Close();
      DropSession();
      break;
    case State::kConnecting:
      if (connecting_.attempt != nullptr)
        connecting_.attempt->NoteGivenUp();  // before the program connects again
      if (connecting_.attempt != nullptr && !connecting_.in_call && !Resets(options_.kept.linger_option()) &&
          !Confined() && !Lingering::TooMany()) {
        lingering_.Begin(HiddenFds::Duplicate(fd));
        lingering_.SetUntil(Now() + kPatienceForConnect);
      }
      if (lingering_.fd() >= 0) {
        connecting_.attempt->SetFd(lingering_.fd());
        Background::Add(&task_, Duration::zero());  // it sleeps on the number that is no more
      }
      state_ = State::kClosed;  // the helper sees it
      break;
    case State::kNew:
    case State::kPlain:
    case State::kClosed:
      break;
  }
  errno = saved;
  return real.close(fd);
}

void StreamSocket::GoOnWithout(int fd) {
  QuietLinks::Unwatch(&quiet_, fd);
  if (quiet_.relied_on()) board_.WakeAll();
  if (session_ != nullptr && session_->queue_pair().event_fd() == fd)
    session_->queue_pair().SetEventFd(numbers_.any());
  if (connecting_.attempt == nullptr) return;
  connecting_.attempt->SetFd(numbers_.any());
  if (Background::Holds(&task_))
    Background::Add(&task_, Duration::zero());  // it sleeps on the number that is no more
}

int StreamSocket::CloseLast(Lock& lock, int fd) {
  QuietLinks::Leave(&quiet_);
  if (foreign()) {
    state_ = State::kClosed;
    if (session_ == nullptr || !session_->being_read()) DropSession();  // else that thread is in it
    return CloseNumber(fd);
  }
  MendJump(lock, fd, __builtin_frame_address(0));
  if (share_.with != nullptr && !share_.with->HasOthers(/*sure=*/true)) StopSharing();
  const linger& option = options_.kept.linger_option();
  lending_.AskBack(*session_);
  share_.closing_unsent = share_.with != nullptr;
  if (!session_->link_ended() && !share_.closing_unsent) {
    EndStream();
    if (option.l_onoff != 0 && option.l_linger != 0) {  // also one that does not block
      const Time deadline = option.l_linger < 0 ? kNever : Now() + std::chrono::seconds(option.l_linger);
      (void)AwaitSent(lock, fd, deadline, Signals::kInterrupt);
      if (state_ != State::kSdp) {
        state_ = State::kClosed;
        return CloseNumber(fd);
      }
    }
  }
  // Not over yet: our last bytes, or the peer's DisConn, or a thread that still sleeps in a read. The number
  // is the application's again at once.
  const bool over = session_->link_ended() ||
                    (share_.closing_unsent && !keeps_from_others() && !session_->being_read()) ||
                    MayGoAtOnce(fd);
  if (!over) lingering_.Begin(DescriptorToLinger(lock, fd));
  if (state_ != State::kSdp) {  // another thread has taken its peer away meanwhile
    state_ = State::kClosed;
    return CloseNumber(fd);
  }
  AfterProgress();
  state_ = State::kClosed;
  board_.TellClosed();
  const int result = CloseNumber(fd);
  if (lingering_.fd() < 0) {
    if (!session_->being_read()) DropSession();
    return result;
  }
  session_->queue_pair().SetEventFd(lingering_.fd());
  if (session_->portable()) session_->queue_pair().portable()->StaysHere();
  lingering_.SetUntil(Now() + Lingering::kFinWait);
  try {
    Background::Add(&task_);
  } catch (const std::bad_alloc&) {
    DropSession();
  }
  return result;
}

// As TCP does: unread data, or a linger time of zero, resets the connection.
void StreamSocket::EndStream() {
  engine::Engine& e = session_->engine();
  const linger& option = options_.kept.linger_option();
  if (e.readable_bytes() == 0) session_->ReadAvailable();
  // Shut down before, it may have nothing to wait for any more but what TCP_LINGER2 says.
  const bool in_fin_wait = e.state() == engine::State::kSendClosed && !session_->has_unsent() &&
                           Lingering::FinWait(queue_pair().event_fd()) < Duration::zero();
  if (Resets(option) || e.readable_bytes() + e.advertised_bytes() > 0 || urgent_mark_.urgent(e) ||
      e.refused_data() || in_fin_wait) {
    e.Abort(engine::AbortReason::kLocal);
  } else {
    corked_.Push(*session_);
    e.CloseSend();
    e.CloseReceive();
    if (!OnLocalLink() && !Confined()) session_->LeaveFirst();
  }
  session_->Pump();
}

// Both ends have closed. 8.2.1: who sends the second DisConn ends the link. What the kernel has of it, it
// delivers, and what is in a local link's memory the peer reads. There, and to kin on this host, the first
// may go as well: its FIN tells the peer as much as the wait for the second DisConn would, and the kernel
// answers what comes for it with a reset, as on TCP. A helper that has the task may hold the file.
bool StreamSocket::MayGoAtOnce(int fd) {
  if (share_.closing_unsent || share_.with != nullptr || session_->being_read() || session_->moving() ||
      queue_pair().device() != nullptr || Background::Holds(&task_))
    return false;
  bool is_first = OnLocalLink() && engine().state() == engine::State::kSendClosed;
  for (int i = 0; i < kMostReads && is_first && !session_->MaySleep(); ++i) {
    session_->ReadAvailable();  // the peer answers meanwhile
    is_first = engine().state() == engine::State::kSendClosed;
  }
  const bool said_all =
      is_first ? session_->MaySleep() : engine().state() == engine::State::kClosed || KinHasAll(fd);
  return said_all && !engine().refused_data() && AllSent(fd);
}

// What the peer's kernel has no room for, the reset in answer to a credit update would take back.
bool StreamSocket::KinHasAll(int fd) const {
  if (Confined() || !session_->kin() || engine().state() != engine::State::kSendClosed ||
      session_->has_unsent() || !WithinHost(names_.local, names_.peer))
    return false;
  int bytes = 0;
  return real.ioctl(LinkOf(fd), SIOCOUTQ, &bytes) == 0 && bytes <= kSmallRest &&
         PeerWindow(LinkOf(fd)) >= kRoomForRest;
}

// -1: the link may go with `fd`. Its FIN behind our DisConn tells the peer as much as the wait for its own
// DisConn would; what it sends nevertheless is answered with a reset, as by a TCP socket without an owner.
int StreamSocket::DescriptorToLinger(Lock& lock, int fd) {
  // What a sleeping thread brings is for the others, too.
  const bool needed = share_.with != nullptr && session_->being_read();
  if (!needed && Lingering::TooMany() && AllSent(fd)) return -1;
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
  if (!numbers_.none()) return GoOnWithout(fd);
  // The kernel has ended the link already; what was unsent is lost, as nobody told us in time.
  if (listening_.listener != nullptr) listening_.listener->Close();
  connecting_.attempt.reset();
  QuietLinks::Leave(&quiet_);
  if (session_ == nullptr || !session_->being_read()) DropSession();
  state_ = State::kClosed;
  board_.WakeAll();
}

// The connection is over (or the listener closed): its counters become history, its descriptor goes.
void StreamSocket::DropSession() {
  QuietLinks::Leave(&quiet_);
  report_.Close(OpenStatistics(), session_.get(), names());
  if (session_ != nullptr) CollectLoans();
  lending_.Drop();
  DropShared();
  // A device's queue pair is one for all processes that inherited it: to destroy it here would end the
  // parent's connection.
  if (share_.not_inherited && session_ != nullptr && !session_->portable()) (void)session_.release();
  session_.reset();
  if (const int fd = lingering_.End(); fd >= 0) HiddenFds::Close(fd);
}

}  // namespace sdp::preload
