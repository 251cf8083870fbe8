// What the helper thread does for a StreamSocket: it moves what calls have left behind, and brings a
// connection to its end that the program has closed.
#include <poll.h>

#include <algorithm>

#include "preload/confinement.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/aborted_link.h"
#include "preload/socket/clock.h"
#include "preload/socket/connector.h"
#include "preload/socket/departure.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/session_moves.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// How often the helper looks whether writes still use the send buffer.
constexpr Duration kSendBufferRest = std::chrono::milliseconds(20);

}  // namespace

void StreamSocket::Upkeep::LeaveToBackground() {
  if (s_.session_ == nullptr || s_.foreign()) return;
  const bool trim = !s_.use_.trimming && s_.engine().send_buffer_memory() != 0;
  if (!trim && !s_.session_->has_unsent() && s_.corked_.empty() && !ListensForPeer()) return;
  s_.use_.trimming = s_.use_.trimming || trim;
  Background::Add(this);
}

Background::Wait StreamSocket::Upkeep::Run(Time now) {
  Lock lock(s_.mutex_, std::defer_lock);
  // The application is at it. To wait for the lock would cost its thread a wake-up of this one each time that
  // it lets go.
  if (s_.use_.helper_yields.load(std::memory_order_relaxed)) {
    if (!lock.try_lock()) return {.deadline = now + Background::kGrace};
  } else {
    lock.lock();
  }
  s_.use_.helper_yields.store(s_.usable(), std::memory_order_relaxed);
  if (s_.state_ == State::kConnecting && s_.connecting_.in_call) return {.done = true};
  if (s_.state_ == State::kConnecting && s_.connecting_.attempt != nullptr && !s_.numbers_.none())
    return Connector(s_).RunAttempt(now);
  if (s_.state_ == State::kClosed) return Departure(s_).RunLinger(now);
  if (!s_.usable()) {
    s_.use_.trimming = false;
    return {.done = true};
  }
  if (!s_.session_->moving()) Holders(s_).OnlyLooks();
  const Time look_again =
      s_.share_.with != nullptr ? now + s_.share_.NextLook(s_.calls_inside_.kept()) : kNever;
  if (now >= s_.corked_.due()) {
    if (s_.corked_.in_stream()) s_.use_.writes.NoteLate();
    s_.corked_.Push(*s_.session_);
    s_.corked_.SetDue(now + Background::kGrace);
  }
  if (s_.session_->moving()) return RunMove(look_again);
  if (s_.session_->aborted_link().outlives()) {
    if (const Time again = s_.session_->aborted_link().End(now); again != kNever) return {.deadline = again};
    s_.AfterProgress();
  }
  if (now >= s_.session_->start_until()) {
    SDP_LOG(kInfo, "connection from %s ends: nothing came behind its MPA Request",
            ToEndpoint(s_.names_.peer).ToString().c_str());
    s_.session_->Abort();
    s_.AfterProgress();
  }
  if (s_.use_.calls != s_.use_.calls_seen || s_.HasSleepers()) {
    // The application is at it: it does this itself, and cheaper.
    s_.use_.calls_seen = s_.use_.calls;
    s_.session_->Pump();
    s_.AfterProgress();  // a thread may be about to sleep for the room that there is now
    if (!s_.session_->has_unsent() || s_.LinkFd() < 0) return TrimmedWait(now);
    // A sleeper brings credit, but may not see that a TCP link takes bytes again.
    if (s_.HasSleepers()) {
      Background::Wait wait = IdleWait();
      if (s_.queue_pair().interest().write && s_.queue_pair().pollable() == nullptr)
        wait = {
            .fd = s_.LinkOf(s_.LinkFd()), .events = POLLOUT, .deadline = std::min(wait.deadline, look_again)};
      if (s_.session_->start_until() != kNever) wait.done = false;
      wait.deadline = std::min(wait.deadline, s_.session_->start_until());
      return wait;
    }
    return {.deadline = now + Background::kGrace};
  }
  s_.session_->Pump();
  s_.session_->Read();
  s_.AfterProgress();
  if (!s_.session_->has_unsent() || s_.LinkFd() < 0) return TrimmedWait(now);
  return LinkWait(s_.LinkFd(), std::min({IdleWait().deadline, look_again, s_.session_->start_until()}));
}

// Without events the helper does not poll the link: poll would report errors that no call takes.
Background::Wait StreamSocket::Upkeep::LinkWait(int fd, Time deadline) const {
  const short events = s_.session_->watch_events();
  return {.fd = events != 0 ? s_.LinkOf(fd) : -1, .events = events, .deadline = deadline};
}

// Nothing is unsent. Buffers that writes use no more give their memory back.
Background::Wait StreamSocket::Upkeep::TrimmedWait(Time now) {
  Background::Wait wait = IdleWait();
  if (s_.engine().send_buffer_memory() != 0) s_.session_->engine().TrimSendBuffer();
  s_.use_.trimming = s_.corked_.Trim() || s_.engine().send_buffer_memory() != 0;
  if (s_.use_.trimming) {
    wait.done = false;
    wait.deadline = std::min(wait.deadline, now + kSendBufferRest);
  }
  return wait;
}

// The application has closed the socket.
Background::Wait StreamSocket::Departure::RunLinger(Time now) {
  if (s_.connecting_.attempt != nullptr && !StepClosedConnect(now)) {
    Background::Wait wait = s_.connecting_.attempt->wait();
    wait.deadline = std::min(wait.deadline, s_.lingering_.until());
    return wait;
  }
  // Others' since the process has begun to end (StepToEnd): they have not gone, and its end is theirs to
  // make.
  if (s_.session_ == nullptr || s_.lingering_.fd() < 0 || s_.share_.given_up) return {.done = true};
  if (s_.share_.closing_unsent && s_.foreign()) {  // another process keeps it, with what was unsent here
    DropSession();
    return {.done = true};
  }
  if (!s_.session_->moving()) Holders(s_).OnlyLooks();
  if (s_.share_.closing_unsent && s_.share_.with == nullptr) {
    // The others have gone before us: the end is ours to make.
    s_.share_.closing_unsent = false;
    s_.session_->engine().CloseSend();
    s_.session_->engine().CloseReceive();
    s_.lingering_.SetUntil(now + Lingering::kFinWait);
  }
  if (s_.share_.closing_unsent) {
    StepToSent();
    if (Holders(s_).keeps_from_others() && now < s_.lingering_.until())
      return s_.upkeep_.LinkWait(s_.lingering_.fd(), now + s_.share_.NextLook(s_.calls_inside_.kept()));
    DropSession();
    return {.done = true};
  }
  s_.session_->Pump();
  if (s_.lending_.offered()) Lender(s_).CollectLoans();
  s_.upkeep_.LeadMove();
  const bool aborted = s_.session_->engine().state() == engine::State::kAborted;
  const uint64_t heard = s_.session_->queue_pair().counters().bytes_in;
  const bool more =
      s_.session_->Read();  // one round: a peer that never stops must not have the helper to itself
  if (aborted && s_.session_->queue_pair().counters().bytes_in != heard) {
    // The peer sends without reading our AbortConn. A reset tells its next write, as on TCP.
    s_.session_->Abort();
  }
  if (!s_.session_->link_ended() && s_.session_->engine().refused_data()) {
    // No call will read this. A reset tells the sender, as on TCP.
    s_.session_->engine().Abort(engine::AbortReason::kLocal);
    s_.session_->Pump();
    if (s_.session_->kinship().left_first()) s_.session_->Abort();  // behind a FIN comes no AbortConn
  }
  if (s_.lending_.offered()) Lender(s_).CollectLoans();
  if (!s_.lingering_.fin_wait_bounded() && AllSent(s_.lingering_.fd())) s_.lingering_.BoundFinWait(now);
  const bool over = s_.session_->link_ended() || now >= s_.lingering_.until();
  if (!over && more) return {.deadline = now};
  if (!over)
    return s_.upkeep_.LinkWait(s_.lingering_.fd(),
                               std::min(s_.lingering_.until(), s_.session_->moves().deadline()));
  if (!s_.session_->link_ended() && s_.session_->has_unsent()) s_.session_->queue_pair().Abort();
  DropSession();
  return {.done = true};
}

bool StreamSocket::Departure::StepClosedConnect(Time now) {
  auto outcome = ConnectAttempt::Outcome::kFailed;
  if (s_.lingering_.fd() >= 0 && now < s_.lingering_.until() && !Confined()) {
    // A link that the peer has ended, too, is not made again.
    pollfd link{.fd = s_.lingering_.fd(), .events = POLLRDHUP, .revents = 0};
    const bool lost = s_.connecting_.attempt->sdp_address().length != 0 && real.poll(&link, 1, 0) > 0;
    if (!lost) outcome = Connector(s_).LeadAttempt(s_.lingering_.fd(), now);
  }
  if (outcome == ConnectAttempt::Outcome::kPending) return false;
  if (outcome == ConnectAttempt::Outcome::kConventional)
    ConnectWithoutBlocking(s_.lingering_.fd(), s_.connecting_.attempt->target());
  if (outcome == ConnectAttempt::Outcome::kSdp) {
    s_.session_ = s_.connecting_.attempt->TakeSession();
    s_.names_.peer = s_.connecting_.attempt->target();
    s_.lingering_.SetUntil(now + Lingering::kFinWait);
    EndStream();
  }
  s_.connecting_.attempt.reset();
  if (s_.session_ == nullptr) DropSession();
  return true;
}

}  // namespace sdp::preload
