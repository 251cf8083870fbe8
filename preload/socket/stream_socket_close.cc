// Shutdown and Close of a StreamSocket, what goes on after them, and what the background does.
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <new>
#include <utility>

#include "preload/bounded_lock.h"
#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/inheritance.h"
#include "preload/link_calls.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/clock.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/tcp_info.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

// How long a closed connection may take until all is sent, and if nothing else is said, then wait for its
// peer to close too.
constexpr Duration kFinWait = std::chrono::seconds(60);
// How long a connect may go on whose socket was closed. On TCP the connection is there as soon as the kernels
// have agreed, and its peer reads an end.
constexpr Duration kPatienceForConnect = std::chrono::seconds(1);
// How often one looks whether the send buffer is used still.
constexpr Duration kSendBufferRest = std::chrono::milliseconds(20);
// How long close may sleep for bytes that the link does not take yet, where no descriptor is left to do it
// behind the application's back.
constexpr Duration kClosePatience = std::chrono::seconds(2);

// How often one looks whether the kernel has sent what it took.
constexpr Duration kLookAtKernel = std::chrono::milliseconds(1);

// Connections that are closed here and not yet over, each with a hidden descriptor.
std::atomic<int> lingering{0};

constexpr int kAlwaysLinger = 2;

// So many bytes that are not acknowledged have reached a kernel of this host that offers so much room.
constexpr int kSmallRest = 4096;
constexpr uint32_t kRoomForRest = 16 * 1024;

// How often an end that closes first reads what its peer answers.
constexpr int kMostReads = 3;

// As tcp_max_orphans bounds what the kernel keeps, but of this process's own descriptors: an eighth.
bool TooManyLinger() {
  const int count = lingering.load(std::memory_order_relaxed);
  if (count < kAlwaysLinger || Confined()) return false;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  return static_cast<rlim_t>(count) >= std::min<rlim_t>(limit.rlim_cur / 8, 4096);
}

// Who closes one connection after the other without a descriptor left does not sleep so long for each.
constinit std::atomic<Time> close_waited_in_vain{Time{}};

Time EndOfClosePatience() {
  const Time now = Now();
  return now < close_waited_in_vain.load() + kClosePatience ? now : now + kClosePatience;
}

bool Resets(const linger& option) { return option.l_onoff != 0 && option.l_linger == 0; }

// TCP_LINGER2, which the kernel keeps: of a connection that is closed here, how long it waits for the peer
// alone. Below zero: not at all.
Duration FinWait(int fd) {
  int seconds = 0;
  socklen_t length = sizeof seconds;
  return LinkGetOption(fd, IPPROTO_TCP, TCP_LINGER2, &seconds, &length) == 0 ? std::chrono::seconds(seconds)
                                                                             : kFinWait;
}

// The program's, or one that was kept for its calls.
int CloseNumber(int fd) {
  if (!HiddenFds::Contains(fd)) return real.close(fd);
  HiddenFds::Close(fd);
  return 0;
}

}  // namespace

bool HasLingering() { return lingering.load(std::memory_order_relaxed) != 0; }

bool StreamSocket::AllSent(int link) {
  if (!session_->AllTaken()) return false;
  if (session_->link_ended() || queue_pair().device() != nullptr || OnLocalLink() || Confined()) return true;
  // A network may lose what was sent; our FIN counts as a byte.
  const bool within_host = WithinHost(local_, peer_);
  int bytes = 0;
  return real.ioctl(link, within_host ? SIOCOUTQNSD : SIOCOUTQ, &bytes) != 0 ||
         bytes <= (within_host ? 0 : 1);
}

int StreamSocket::AwaitSent(Lock& lock, int fd, Time deadline, Signals signals) {
  while (state_ == State::kSdp && !foreign() && !(leaving_ ? session_->AllTaken() : AllSent(fd))) {
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
  ++calls_;
  LookToTheEnd();  // TCP knows of a reset that has come
  engine::Engine& e = session_->engine();
  if (InCloseWait()) {
    receive_shut_ = receive_shut_ || how != SHUT_WR;
    send_shut_ = how != SHUT_RD;
    connect_reported_ = true;
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
  connect_reported_ =
      true;  // TCP's next connect does not tell it who has shut the connection down, but says EISCONN
  if (how != SHUT_WR && !receive_shut_) {
    // What has come stays to be read, and what comes: a receive that finds nothing ends.
    receive_shut_ = true;
    lending_.sink().loan.Revoke(*session_);
    WantBcopy(1);  // nobody lends the peer memory any more
  }
  if (how != SHUT_RD) {
    corked_.Push(*session_);
    e.CloseSend();
  }
  if (receive_shut_ && !e.can_send()) e.RefuseReceive();
  session_->Pump();
  if (receive_shut_ && !e.can_send() && session_->being_read() && !session_->has_unsent()) {
    // A thread sleeps in the link's own read, and only the link's end wakes it. All we had to say has left:
    // this end is none of the peer's.
    abort_noted_ = true;
    real.shutdown(fd, SHUT_RD);
  } else if (receive_shut_ && session_->being_read() && !reader_.End()) {
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
  std::erase(descriptors_, fd);
  FdTable::Remove(fd, this);
  if (!descriptors_.empty()) {
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
  descriptors_.push_back(fd);  // until the connection's state, which may come from another process, is here
  own.unlock();
  Lock lock = LockWithOwner();
  std::erase(descriptors_, fd);
  switch (state_.load()) {
    case State::kSdp: {
      const int result = CloseLast(lock, fd);
      if (result == 0) errno = saved;
      return result;
    }
    case State::kListening:
      listener_->Close();
      DropSession();
      break;
    case State::kConnecting:
      if (attempt_ != nullptr) attempt_->NoteGivenUp();  // before the program connects again
      if (attempt_ != nullptr && !connects_inline_ && !Resets(options_.linger_option()) && !Confined() &&
          !TooManyLinger()) {
        linger_fd_ = HiddenFds::Duplicate(fd);
        linger_until_ = Now() + kPatienceForConnect;
      }
      if (linger_fd_ >= 0) {
        NoteLingering();
        attempt_->SetFd(linger_fd_);
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
    session_->queue_pair().SetEventFd(descriptors_.front());
  if (attempt_ == nullptr) return;
  attempt_->SetFd(descriptors_.front());
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
  if (shared_ != nullptr && !shared_->HasOthers(/*sure=*/true)) StopSharing();
  const linger& option = options_.linger_option();
  lending_.AskBack(*session_);
  leaving_ = shared_ != nullptr;
  if (!session_->link_ended() && !leaving_) {
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
  const bool over = session_->link_ended() || (leaving_ && !keeps_from_others() && !session_->being_read()) ||
                    MayGoAtOnce(fd);
  if (!over) linger_fd_ = DescriptorToLinger(lock, fd);
  if (state_ != State::kSdp) {  // another thread has taken its peer away meanwhile
    state_ = State::kClosed;
    return CloseNumber(fd);
  }
  AfterProgress();
  state_ = State::kClosed;
  board_.TellClosed();
  const int result = CloseNumber(fd);
  if (linger_fd_ < 0) {
    if (!session_->being_read()) DropSession();
    return result;
  }
  NoteLingering();
  session_->queue_pair().SetEventFd(linger_fd_);
  if (session_->portable()) session_->queue_pair().portable()->StaysHere();
  linger_until_ = Now() + kFinWait;
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
  const linger& option = options_.linger_option();
  if (e.readable_bytes() == 0) session_->ReadAvailable();
  // Shut down before, it may have nothing to wait for any more but what TCP_LINGER2 says.
  const bool in_fin_wait = e.state() == engine::State::kSendClosed && !session_->has_unsent() &&
                           FinWait(queue_pair().event_fd()) < Duration::zero();
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
  if (leaving_ || shared_ != nullptr || session_->being_read() || session_->moving() ||
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
      session_->has_unsent() || !WithinHost(local_, peer_))
    return false;
  int bytes = 0;
  return real.ioctl(LinkOf(fd), SIOCOUTQ, &bytes) == 0 && bytes <= kSmallRest &&
         PeerWindow(LinkOf(fd)) >= kRoomForRest;
}

// -1: the link may go with `fd`. Its FIN behind our DisConn tells the peer as much as the wait for its own
// DisConn would; what it sends nevertheless is answered with a reset, as by a TCP socket without an owner.
int StreamSocket::DescriptorToLinger(Lock& lock, int fd) {
  // What a sleeping thread brings is for the others, too.
  const bool needed = shared_ != nullptr && session_->being_read();
  if (!needed && TooManyLinger() && AllSent(fd)) return -1;
  const int hidden = Confined() ? -1 : HiddenFds::Duplicate(fd);
  if (hidden >= 0) return hidden;
  if (AwaitSent(lock, fd, EndOfClosePatience(), Signals::kRestart) != 0) {
    close_waited_in_vain = Now();
    if (MayLogError())
      SDP_LOG(kError, "no descriptor left to close a connection in good order: its last bytes are lost");
  }
  return -1;
}

Background::Wait StreamSocket::RunInBackground(Time now) {
  Lock lock(mutex_, std::defer_lock);
  // The application is at it. To wait for the lock would cost its thread a wake-up of this one each time that
  // it lets go.
  if (yields_.load(std::memory_order_relaxed)) {
    if (!lock.try_lock()) return {.deadline = now + Background::kGrace};
  } else {
    lock.lock();
  }
  yields_.store(state_ == State::kSdp && !foreign(), std::memory_order_relaxed);
  if (state_ == State::kConnecting && connects_inline_) return {.done = true};
  if (state_ == State::kConnecting && attempt_ != nullptr && !descriptors_.empty()) return RunAttempt(now);
  if (state_ == State::kClosed) return RunLinger(now);
  if (state_ != State::kSdp || foreign()) {
    trimming_ = false;
    return {.done = true};
  }
  if (!session_->moving()) OnlyLooks();
  const Time look_again = shared_ != nullptr ? now + NextNap() : kNever;
  if (now >= corked_.due()) {
    corked_.Push(*session_);
    corked_.SetDue(now + Background::kGrace);
  }
  if (session_->moving()) return RunMove(look_again);
  if (session_->link_outlives_abort()) {
    if (const Time again = session_->EndOutlivingLink(now); again != kNever) return {.deadline = again};
    AfterProgress();
  }
  if (now >= session_->start_until()) {
    SDP_LOG(kInfo, "connection from %s ends: nothing came behind its MPA Request",
            ToEndpoint(peer_).ToString().c_str());
    session_->Abort();
    AfterProgress();
  }
  if (calls_ != calls_seen_ || session_->being_read() || HasSleepers()) {
    // The application is at it: it does this itself, and cheaper.
    calls_seen_ = calls_;
    session_->Pump();
    AfterProgress();  // a thread may be about to sleep for the room that there is now
    if (!session_->has_unsent() || LinkFd() < 0) return TrimmedWait(now);
    // A reader in its sleep brings credit, but does not see that the link takes bytes again.
    if (session_->being_read()) {
      Background::Wait wait = IdleWait();
      if (queue_pair().interest().write)
        wait = {.fd = LinkOf(LinkFd()), .events = POLLOUT, .deadline = std::min(wait.deadline, look_again)};
      if (session_->start_until() != kNever) wait.done = false;
      wait.deadline = std::min(wait.deadline, session_->start_until());
      return wait;
    }
    return {.deadline = now + Background::kGrace};
  }
  session_->Pump();
  session_->ReadAvailable();
  AfterProgress();
  if (!session_->has_unsent() || LinkFd() < 0) return TrimmedWait(now);
  return LinkWait(LinkFd(), std::min({IdleWait().deadline, look_again, session_->start_until()}));
}

// Without events poll tells of errors all the same, which nobody would take.
Background::Wait StreamSocket::LinkWait(int fd, Time deadline) const {
  const short events = WatchEvents();
  return {.fd = events != 0 ? LinkOf(fd) : -1, .events = events, .deadline = deadline};
}

// Nothing is unsent. A send buffer that writes use no more gives its memory back.
Background::Wait StreamSocket::TrimmedWait(Time now) {
  Background::Wait wait = IdleWait();
  if (engine().send_buffer_memory() != 0) session_->engine().TrimSendBuffer();
  trimming_ = session_->engine().send_buffer_memory() != 0;
  if (trimming_) {
    wait.done = false;
    wait.deadline = std::min(wait.deadline, now + kSendBufferRest);
  }
  return wait;
}

// The application has closed the socket.
Background::Wait StreamSocket::RunLinger(Time now) {
  if (attempt_ != nullptr && !StepClosedConnect(now)) {
    Background::Wait wait = attempt_->wait();
    wait.deadline = std::min(wait.deadline, linger_until_);
    return wait;
  }
  // Others' since the process has begun to end (StepToEnd): they have not gone, and its end is theirs to
  // make.
  if (session_ == nullptr || linger_fd_ < 0 || foreign_) return {.done = true};
  if (!session_->moving()) OnlyLooks();
  if (session_->being_read()) {
    // The session is that thread's until it wakes up; the end of the link wakes it, where the link is this
    // process's to end.
    if (!leaving_ && now >= linger_until_ && !session_->link_ended()) session_->Abort();
    if (leaving_) return {.deadline = kNever};  // it says when it has
    return {.deadline = now < linger_until_ ? linger_until_ : now + Background::kGrace};
  }
  if (leaving_ && shared_ == nullptr) {
    // The others have gone before us: the end is ours to make.
    leaving_ = false;
    session_->engine().CloseSend();
    session_->engine().CloseReceive();
    linger_until_ = now + kFinWait;
  }
  if (leaving_ && foreign()) {  // another process keeps it, with what was unsent here
    DropSession();
    return {.done = true};
  }
  if (leaving_) {
    session_->Pump();
    session_->ReadAvailable();
    CollectLoans();
    LeadMove();
    if (keeps_from_others() && now < linger_until_) return LinkWait(linger_fd_, now + NextNap());
    DropSession();
    return {.done = true};
  }
  session_->Pump();
  if (lending_.offered()) CollectLoans();
  LeadMove();
  const bool aborted = session_->engine().state() == engine::State::kAborted;
  const uint64_t heard = session_->queue_pair().counters().bytes_in;
  const bool more =
      session_->ReadAvailable();  // one round: a peer that never stops must not have the helper to itself
  if (aborted && session_->queue_pair().counters().bytes_in != heard) {
    // It sends without ever reading our AbortConn: its next write has to hear of it, as TCP's would.
    session_->Abort();
  }
  if (!session_->link_ended() && session_->engine().refused_data()) {
    // Nobody will ever read this: as TCP does, the sender is told by a reset.
    session_->engine().Abort(engine::AbortReason::kLocal);
    session_->Pump();
    if (session_->left_first()) session_->Abort();  // behind a FIN comes no AbortConn
  }
  if (lending_.offered()) CollectLoans();
  BoundFinWait(now);
  const bool over = session_->link_ended() || now >= linger_until_;
  if (!over && more) return {.deadline = now};
  if (!over) return LinkWait(linger_fd_, std::min(linger_until_, session_->move_deadline()));
  if (!session_->link_ended() && session_->has_unsent()) session_->queue_pair().Abort();
  DropSession();
  return {.done = true};
}

bool StreamSocket::StepClosedConnect(Time now) {
  auto outcome = ConnectAttempt::Outcome::kFailed;
  if (linger_fd_ >= 0 && now < linger_until_ && !Confined()) {
    // A link that the peer has ended, too, is not made again.
    pollfd link{.fd = linger_fd_, .events = POLLRDHUP, .revents = 0};
    const bool lost = attempt_->sdp_address().length != 0 && real.poll(&link, 1, 0) > 0;
    if (!lost) outcome = LeadAttempt(linger_fd_, now);
  }
  if (outcome == ConnectAttempt::Outcome::kPending) return false;
  if (outcome == ConnectAttempt::Outcome::kConventional)
    ConnectWithoutBlocking(linger_fd_, attempt_->target());
  if (outcome == ConnectAttempt::Outcome::kSdp) {
    session_ = attempt_->TakeSession();
    peer_ = attempt_->target();
    linger_until_ = now + kFinWait;
    EndStream();
  }
  attempt_.reset();
  if (session_ == nullptr) DropSession();
  return true;
}

void StreamSocket::BoundFinWait(Time now) {
  if (fin_wait_bounded_ || !AllSent(linger_fd_)) return;
  fin_wait_bounded_ = true;
  linger_until_ = now + std::max(FinWait(linger_fd_), Duration::zero());
}

void StreamSocket::Vanished(int fd) {
  Lock lock(mutex_);
  std::erase(descriptors_, fd);
  if (!descriptors_.empty()) return GoOnWithout(fd);
  // The kernel has ended the link already; what was unsent is lost, as nobody told us in time.
  if (listener_ != nullptr) listener_->Close();
  attempt_.reset();
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
  if (foreign_ && session_ != nullptr && !session_->portable()) (void)session_.release();
  session_.reset();
  if (const int fd = TakeLingerFd(); fd >= 0) HiddenFds::Close(fd);
}

void StreamSocket::NoteLingering() { lingering.fetch_add(1, std::memory_order_relaxed); }

int StreamSocket::TakeLingerFd() {
  if (linger_fd_ >= 0) lingering.fetch_sub(1, std::memory_order_relaxed);
  return std::exchange(linger_fd_, -1);
}

}  // namespace sdp::preload
