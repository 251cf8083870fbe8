// What the helper thread does for a StreamSocket: it moves what calls have left behind, and brings a
// connection to its end that the program has closed.
#include <poll.h>

#include <algorithm>

#include "preload/confinement.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// How often the helper looks whether writes still use the send buffer.
constexpr Duration kSendBufferRest = std::chrono::milliseconds(20);

}  // namespace

void StreamSocket::LeaveToBackground() {
  if (session_ == nullptr) return;
  const bool trim = !use_.trimming && engine().send_buffer_memory() != 0;
  if (!trim && !session_->has_unsent() && corked_.empty() && !ListensForPeer()) return;
  use_.trimming = use_.trimming || trim;
  Background::Add(&task_);
}

Background::Wait StreamSocket::RunInBackground(Time now) {
  Lock lock(mutex_, std::defer_lock);
  // The application is at it. To wait for the lock would cost its thread a wake-up of this one each time that
  // it lets go.
  if (use_.helper_yields.load(std::memory_order_relaxed)) {
    if (!lock.try_lock()) return {.deadline = now + Background::kGrace};
  } else {
    lock.lock();
  }
  use_.helper_yields.store(state_ == State::kSdp && !foreign(), std::memory_order_relaxed);
  if (state_ == State::kConnecting && connecting_.in_call) return {.done = true};
  if (state_ == State::kConnecting && connecting_.attempt != nullptr && !numbers_.none())
    return RunAttempt(now);
  if (state_ == State::kClosed) return RunLinger(now);
  if (state_ != State::kSdp || foreign()) {
    use_.trimming = false;
    return {.done = true};
  }
  if (!session_->moving()) OnlyLooks();
  const Time look_again = share_.with != nullptr ? now + share_.NextLook(calls_inside_.kept()) : kNever;
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
            ToEndpoint(names_.peer).ToString().c_str());
    session_->Abort();
    AfterProgress();
  }
  if (use_.calls != use_.calls_seen || session_->being_read() || HasSleepers()) {
    // The application is at it: it does this itself, and cheaper.
    use_.calls_seen = use_.calls;
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

// Without events the helper does not poll the link: poll would report errors that no call takes.
Background::Wait StreamSocket::LinkWait(int fd, Time deadline) const {
  const short events = WatchEvents();
  return {.fd = events != 0 ? LinkOf(fd) : -1, .events = events, .deadline = deadline};
}

// Nothing is unsent. A send buffer that writes use no more gives its memory back.
Background::Wait StreamSocket::TrimmedWait(Time now) {
  Background::Wait wait = IdleWait();
  if (engine().send_buffer_memory() != 0) session_->engine().TrimSendBuffer();
  use_.trimming = session_->engine().send_buffer_memory() != 0;
  if (use_.trimming) {
    wait.done = false;
    wait.deadline = std::min(wait.deadline, now + kSendBufferRest);
  }
  return wait;
}

// The application has closed the socket.
Background::Wait StreamSocket::RunLinger(Time now) {
  if (connecting_.attempt != nullptr && !StepClosedConnect(now)) {
    Background::Wait wait = connecting_.attempt->wait();
    wait.deadline = std::min(wait.deadline, lingering_.until());
    return wait;
  }
  // Others' since the process has begun to end (StepToEnd): they have not gone, and its end is theirs to
  // make.
  if (session_ == nullptr || lingering_.fd() < 0 || share_.not_inherited) return {.done = true};
  if (!session_->moving()) OnlyLooks();
  if (session_->being_read()) {
    // The session is that thread's until it wakes up; the end of the link wakes it, where the link is this
    // process's to end.
    if (!share_.closing_unsent && now >= lingering_.until() && !session_->link_ended()) session_->Abort();
    if (share_.closing_unsent) return {.deadline = kNever};  // it says when it has
    return {.deadline = now < lingering_.until() ? lingering_.until() : now + Background::kGrace};
  }
  if (share_.closing_unsent && share_.with == nullptr) {
    // The others have gone before us: the end is ours to make.
    share_.closing_unsent = false;
    session_->engine().CloseSend();
    session_->engine().CloseReceive();
    lingering_.SetUntil(now + Lingering::kFinWait);
  }
  if (share_.closing_unsent && foreign()) {  // another process keeps it, with what was unsent here
    DropSession();
    return {.done = true};
  }
  if (share_.closing_unsent) {
    session_->Pump();
    session_->ReadAvailable();
    CollectLoans();
    LeadMove();
    if (keeps_from_others() && now < lingering_.until())
      return LinkWait(lingering_.fd(), now + share_.NextLook(calls_inside_.kept()));
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
    // The peer sends without reading our AbortConn. A reset tells its next write, as on TCP.
    session_->Abort();
  }
  if (!session_->link_ended() && session_->engine().refused_data()) {
    // No call will read this. A reset tells the sender, as on TCP.
    session_->engine().Abort(engine::AbortReason::kLocal);
    session_->Pump();
    if (session_->left_first()) session_->Abort();  // behind a FIN comes no AbortConn
  }
  if (lending_.offered()) CollectLoans();
  if (!lingering_.fin_wait_bounded() && AllSent(lingering_.fd())) lingering_.BoundFinWait(now);
  const bool over = session_->link_ended() || now >= lingering_.until();
  if (!over && more) return {.deadline = now};
  if (!over) return LinkWait(lingering_.fd(), std::min(lingering_.until(), session_->move_deadline()));
  if (!session_->link_ended() && session_->has_unsent()) session_->queue_pair().Abort();
  DropSession();
  return {.done = true};
}

bool StreamSocket::StepClosedConnect(Time now) {
  auto outcome = ConnectAttempt::Outcome::kFailed;
  if (lingering_.fd() >= 0 && now < lingering_.until() && !Confined()) {
    // A link that the peer has ended, too, is not made again.
    pollfd link{.fd = lingering_.fd(), .events = POLLRDHUP, .revents = 0};
    const bool lost = connecting_.attempt->sdp_address().length != 0 && real.poll(&link, 1, 0) > 0;
    if (!lost) outcome = LeadAttempt(lingering_.fd(), now);
  }
  if (outcome == ConnectAttempt::Outcome::kPending) return false;
  if (outcome == ConnectAttempt::Outcome::kConventional)
    ConnectWithoutBlocking(lingering_.fd(), connecting_.attempt->target());
  if (outcome == ConnectAttempt::Outcome::kSdp) {
    session_ = connecting_.attempt->TakeSession();
    names_.peer = connecting_.attempt->target();
    lingering_.SetUntil(now + Lingering::kFinWait);
    EndStream();
  }
  connecting_.attempt.reset();
  if (session_ == nullptr) DropSession();
  return true;
}

}  // namespace sdp::preload
