// What poll, select and epoll sets ask of a StreamSocket, and what they are told of it.
#include <poll.h>

#include "preload/socket/connector.h"
#include "preload/socket/express_way.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/server.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"
#include "preload/socket/watch.h"

namespace sdp::preload {

short StreamSocket::Watch::ReadyNow() const {
  return ReadyEvents(s_.tcp_view(), {.low_water = Limits(s_).LowWater(),
                                     .writable = Limits(s_).Writable(),
                                     .urgent = s_.urgent_mark_.urgent(s_.engine()),
                                     .told = s_.tcp_.has_queued_message(),
                                     .close_wait = s_.InCloseWait()});
}

void StreamSocket::Watch::AskConnection(Readiness* readiness) {
  const std::optional<uint64_t> left = Looks(s_).LeftInLink();
  if (!left) s_.session_->direct().lends() ? (void)Looks(s_).LookAtLink() : (void)Looks(s_).TakeUntold();
  if (s_.queue_pair().pollable() == nullptr)
    Looks(s_).LookForRefusal();  // a device's queue is looked at before a sleep, and counted
  Lender(s_).WantBcopy(Limits(s_).LowWater());
  if (s_.board_.full()) {
    verbs::FileSource* const file_source = s_.session_->queue_pair().file_source();
    if (file_source != nullptr && file_source->TakeRoom()) Limits(s_).NoteSendRoom();
  }
  readiness->events = ReadyNow();
  readiness->watch = s_.session_->watch_events();
  readiness->link_fd = s_.LinkOf(-1);
  readiness->looked = Waiting(s_).LooksBeforeSleep();
  readiness->device = readiness->looked && s_.queue_pair().pollable() != nullptr;
  if (readiness->looked) readiness->look = s_.use_.poll_budget.Next();
  readiness->read_ahead = readiness->shared && s_.engine().readable_bytes() >= kReadAheadOfShared;
  const Board::Edges edges = s_.board_.edges(s_.engine());
  readiness->read_edge = edges.read;
  readiness->write_edge = edges.write;
  readiness->left_in_link = left.value_or(0) != 0 || s_.session_->direct().lends();
  if (left.value_or(0) != 0) {
    readiness->events |= POLLIN | POLLRDNORM;
    // The call that takes the message counts the edge. An end of the connection takes the message first.
    ++readiness->read_edge;
  }
  ExpressWay(s_).Open(/*inside=*/0);
}

StreamSocket::Watch::Readiness StreamSocket::Watch::GetReadiness() {
  if (const auto readiness = ReadinessExpress()) return *readiness;
  Lock lock(s_.mutex_);
  Holders(s_).OnlyLooks();
  if (s_.state_ == State::kConnecting) Connector(s_).StepAttempt();
  if (s_.usable()) {
    Lender(s_).MendJump(lock, s_.numbers_.any(), __builtin_frame_address(0));
  }
  Readiness readiness{.state = s_.state_, .shared = s_.share_.with != nullptr};
  if (s_.usable()) {
    AskConnection(&readiness);
  } else if (s_.state_ == State::kSdp && s_.share_.given_up) {
    // Each call answers EIO at once (AwaitConnection). The connection's own edges do not reach this one.
    readiness.events = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLERR | POLLHUP;
    readiness.read_edge = readiness.write_edge = UINT64_MAX - 1;
  } else if (s_.state_ == State::kListening) {
    readiness.listener_fds[0] = s_.listening_.listener->sdp_fd();
    readiness.listener_fds[1] = s_.listening_.listener->ready_fd();
    readiness.listener_fds[2] = s_.listening_.listener->common_fd();
    s_.listening_.listener->NoteUse();
  } else if (s_.state_ == State::kNew && (s_.tcp_.pending_error != 0 || s_.tcp_.connect_failed)) {
    readiness.events = POLLOUT | POLLWRNORM | POLLHUP;
    if (s_.tcp_.pending_error != 0) readiness.events |= POLLERR;
    if (s_.tcp_.connect_failed) readiness.events |= POLLIN | POLLRDNORM | POLLRDHUP;
    readiness.read_edge = readiness.write_edge = s_.board_.edges().read;
  }
  return readiness;
}

bool StreamSocket::Watch::TakeOnConnections() {
  std::lock_guard lock(s_.mutex_);
  if (s_.state_ != State::kListening) return false;
  if (s_.listening_.listener->TakeOn()) return true;
  (void)Server(s_).WasShutDown();
  return false;
}

bool StreamSocket::Looks::HasUntold() const {
  return s_.queue_pair().pollable() != nullptr && s_.queue_pair().pollable()->has_untold();
}

bool StreamSocket::Looks::TakeUntold() {
  if (!HasUntold()) return false;
  s_.queue_pair().pollable()->always_told() ? (void)LookAtLink() : Look();
  return true;
}

// If the link does not take all of it, the helper, which has the socket's task, sends the rest.
void StreamSocket::Watch::PushWrites() {
  std::lock_guard lock(s_.mutex_.own());
  if (s_.usable()) s_.corked_.PushStream(*s_.session_);
}

void StreamSocket::Watch::AddWaiter(Waiter* waiter, iwarp::Bell* bell) {
  std::lock_guard lock(s_.mutex_.own());
  if (s_.usable()) s_.corked_.PushStream(*s_.session_);
  s_.board_.Add(waiter);
  // What has come already the caller finds before it sleeps.
  if (bell != nullptr && Waiting(s_).MayHearByBell()) {
    Waiting(s_).HearByBell(bell->name());
  } else if (Waiting(s_).LeaveBell()) {
    Looks(s_).Look();
  }
}

void StreamSocket::Watch::RemoveWaiter(Waiter* waiter) {
  std::lock_guard lock(s_.mutex_.own());
  s_.board_.Remove(waiter);
  if (!Waiting(s_).LeaveBell()) return;
  // The bell was rung. What came may stay in the link, unless another thread, or an epoll set, is to hear of
  // it.
  if (!s_.board_.empty() || !Looks(s_).ComesDirect()) Looks(s_).Look();
}

StreamSocket::State StreamSocket::Watch::AddObserver(ReadinessObserver* observer, int fd) {
  if (ObserveExpress(observer, fd)) return State::kSdp;
  std::lock_guard lock(s_.mutex_);
  if (s_.state_ == State::kPlain) return State::kPlain;
  bool taken = s_.usable() && Looks(s_).TakeUntold();
  if (Waiting(s_).LeaveBell()) {  // it belongs to another observer
    Looks(s_).Look();
    taken = true;
  }
  const short watch = s_.usable() ? s_.session_->watch_events() : -1;
  s_.board_.Observe(observer, fd, watch);
  if (watch >= 0) observer->OnWatch(fd, s_.LinkOf(fd), watch, *s_.session_);
  // A wait may have asked the socket already. The link no longer tells of what was taken here.
  if (taken) observer->OnChange(fd);
  return s_.state_;
}

void StreamSocket::Watch::RemoveObserver(ReadinessObserver* observer, int fd) {
  if (ForgetExpress(observer, fd)) return;
  std::lock_guard lock(s_.mutex_);
  s_.board_.Forget(observer, fd);
  if (s_.state_ == State::kSdp && Waiting(s_).LeaveBell()) Looks(s_).Look();
}

}  // namespace sdp::preload
