// What poll, select and epoll sets ask of a StreamSocket, and what they are told of it.
#include <poll.h>

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

short StreamSocket::ReadyNow() const {
  return ReadyEvents(tcp_view(), {.low_water = LowWater(),
                                  .writable = Writable(),
                                  .urgent = urgent_mark_.urgent(engine()),
                                  .told = tcp_.has_queued_message(),
                                  .close_wait = InCloseWait()});
}

StreamSocket::Readiness StreamSocket::GetReadiness() {
  if (const auto readiness = ReadinessExpress()) return *readiness;
  Lock lock(mutex_);
  OnlyLooks();
  if (state_ == State::kConnecting) StepAttempt();
  if (state_ == State::kSdp && !foreign()) {
    MendJump(lock, numbers_.any(), __builtin_frame_address(0));
  }
  Readiness readiness{.state = state_, .shared = share_.with != nullptr};
  if (state_ == State::kSdp && !foreign()) {
    const std::optional<uint64_t> left = LeftInLink();
    if (!left) session_->lends() ? (void)LookAtLink() : (void)TakeUntold();
    if (queue_pair().pollable() == nullptr)
      LookForRefusal();  // a device's queue is looked at before a sleep, and counted
    WantBcopy(LowWater());
    if (board_.full()) {
      verbs::FileSource* const file_source = session_->queue_pair().file_source();
      if (file_source != nullptr && file_source->TakeRoom()) NoteSendRoom();
    }
    readiness.events = ReadyNow();
    readiness.watch = WatchEvents();
    readiness.link_fd = LinkOf(-1);
    readiness.looked = LooksBeforeSleep();
    readiness.device = readiness.looked && queue_pair().pollable() != nullptr;
    if (readiness.looked) readiness.look = sleeps_.budget.Next();
    readiness.read_ahead = readiness.shared && engine().readable_bytes() >= kReadAheadOfShared;
    const Board::Edges edges = board_.edges(engine());
    readiness.read_edge = edges.read;
    readiness.write_edge = edges.write;
    readiness.left_in_link = left.value_or(0) != 0 || session_->lends();
    if (left.value_or(0) != 0) {
      readiness.events |= POLLIN | POLLRDNORM;
      // Who takes the message counts the edge. Whatever ends the connection takes the message first.
      ++readiness.read_edge;
    }
    OpenExpress(/*inside=*/0);
  } else if (state_ == State::kSdp && share_.not_inherited) {
    // Each call answers EIO at once (AwaitConnection). The connection's own edges do not reach this one.
    readiness.events = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLERR | POLLHUP;
    readiness.read_edge = readiness.write_edge = UINT64_MAX - 1;
  } else if (state_ == State::kListening) {
    readiness.listener_fds[0] = listening_.listener->sdp_fd();
    readiness.listener_fds[1] = listening_.listener->ready_fd();
    readiness.listener_fds[2] = listening_.listener->common_fd();
    listening_.listener->NoteUse();
  } else if (state_ == State::kNew && (tcp_.pending_error != 0 || tcp_.connect_failed)) {
    readiness.events = POLLOUT | POLLWRNORM | POLLHUP;
    if (tcp_.pending_error != 0) readiness.events |= POLLERR;
    if (tcp_.connect_failed) readiness.events |= POLLIN | POLLRDNORM | POLLRDHUP;
    readiness.read_edge = readiness.write_edge = board_.edges().read;
  }
  return readiness;
}

bool StreamSocket::TakeOnConnections() {
  std::lock_guard lock(mutex_);
  if (state_ != State::kListening) return false;
  if (listening_.listener->TakeOn()) return true;
  (void)WasShutDown();
  return false;
}

bool StreamSocket::HasUntold() const {
  return queue_pair().pollable() != nullptr && queue_pair().pollable()->has_untold();
}

bool StreamSocket::TakeUntold() {
  if (!HasUntold()) return false;
  queue_pair().pollable()->always_told() ? (void)LookAtLink() : Look();
  return true;
}

void StreamSocket::AddWaiter(Waiter* waiter, iwarp::Bell* bell) {
  std::lock_guard lock(mutex_.own());
  board_.Add(waiter);
  // What has come already the caller finds before it sleeps.
  if (bell != nullptr && MayHearByBell()) {
    HearByBell(bell->name());
  } else if (LeaveBell()) {
    Look();
  }
}

void StreamSocket::RemoveWaiter(Waiter* waiter) {
  std::lock_guard lock(mutex_.own());
  board_.Remove(waiter);
  if (LeaveBell()) Look();
}

StreamSocket::State StreamSocket::AddObserver(ReadinessObserver* observer, int fd) {
  if (ObserveExpress(observer, fd)) return State::kSdp;
  std::lock_guard lock(mutex_);
  if (state_ == State::kPlain) return State::kPlain;
  bool taken = state_ == State::kSdp && !foreign() && TakeUntold();
  if (LeaveBell()) {  // it belongs to another observer
    Look();
    taken = true;
  }
  const short watch = state_ == State::kSdp && !foreign() ? WatchEvents() : -1;
  board_.Observe(observer, fd, watch);
  if (watch >= 0) observer->OnWatch(fd, LinkOf(fd), watch, *session_);
  // A wait may have asked the socket already. The link no longer tells of what was taken here.
  if (taken) observer->OnChange(fd);
  return state_;
}

void StreamSocket::RemoveObserver(ReadinessObserver* observer, int fd) {
  if (ForgetExpress(observer, fd)) return;
  std::lock_guard lock(mutex_);
  board_.Forget(observer, fd);
  if (state_ == State::kSdp && LeaveBell()) Look();
}

}  // namespace sdp::preload
