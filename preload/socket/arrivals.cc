#include "preload/socket/arrivals.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "preload/hidden_fds.h"
#include "preload/link_calls.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/link_names.h"
#include "preload/socket/session_transfer.h"

namespace sdp::preload {
namespace {

int MakeEventFd() { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

// A hidden descriptor becomes one of the application's, with the flags it asked accept for.
int Unhide(int hidden, int flags) {
  const int fd = real.fcntl(hidden, (flags & SOCK_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (fd >= 0) {
    real.fcntl(fd, F_SETFL, O_RDWR | ((flags & SOCK_NONBLOCK) != 0 ? O_NONBLOCK : 0));
    HiddenFds::Close(hidden);
  }
  return fd;
}

}  // namespace

bool Arrivals::Open() {
  const int fd = MakeEventFd();
  return fd >= 0 && HiddenFds::HideTracked(fd, &fd_) >= 0;
}

void Arrivals::Close(bool for_all) {
  signal_.Set(-1);
  if (for_all && shared_) {
    Time since;
    Address peer;
    for (int fd; auto session = TakeCommon(SOCK_CLOEXEC, &fd, &peer, &since); real.close(fd))
      session->queue_pair().Abort();
  } else if (shared_) {
    MoveAllToCommon();
  }
  if (!for_all) HiddenFds::Close(fd_.exchange(-1));
  for (Ready& ready : ready_) {
    ready.session->queue_pair().Abort();
    HiddenFds::Close(ready.fd);
  }
  ready_.clear();
  if (!for_all) common_.Close();
  for (auto& incoming : incoming_) {
    if (!incoming->finished) HiddenFds::Close(incoming->fd);
    incoming->finished = true;
  }
  SettleWork();
  if (Background::Holds(&tending_)) Background::Add(&tending_, Duration::zero());
}

size_t Arrivals::in_stock() const {
  return ready_.size() + static_cast<size_t>(std::count_if(incoming_.begin(), incoming_.end(),
                                                           [](const auto& i) { return !i->finished; }));
}

bool Arrivals::Add(int fd, AcceptHandshake handshake, bool begun) {
  incoming_.push_back(std::make_unique<Incoming>(this, fd, std::move(handshake), begun));
  Incoming* const task = incoming_.back().get();
  if (Background::Add(task, Duration::zero()) || Background::Holds(task)) return true;
  incoming_.pop_back();
  SettleWork();
  return false;
}

void Arrivals::Push(Ready ready) {
  if (shared_ && MayMove(*ready.session) && !AwaitsRoom() && PutIntoCommon(ready)) {
    HiddenFds::Close(ready.fd);
  } else {
    Keep(std::move(ready));
  }
  signal_.Notify();
}

void Arrivals::Keep(Ready ready) {
  ready.session->queue_pair().SetEventFd(ready.fd);
  const bool tended = ready.session->has_unsent() || ready.begun || (shared_ && common_.usable());
  const auto behind = std::upper_bound(ready_.begin(), ready_.end(), ready.since,
                                       [](Time time, const Ready& other) { return time < other.since; });
  ready_.insert(behind, std::move(ready));
  if (tended) Background::Add(&tending_, patience_);
  const uint64_t one = 1;
  (void)!real.write(fd(), &one, sizeof one);
}

void Arrivals::DropFinished() {
  incoming_.remove_if(
      [](const auto& incoming) { return incoming->finished && !Background::Holds(incoming.get()); });
}

// The two queues have one order, as TCP's has. A polling thread keeps what it has taken on, while other
// threads may wait for all that came before.
std::unique_ptr<Session> Arrivals::Take(int flags, int* fd, Address* peer) {
  if (ready_.empty()) AdvanceAnswered();
  errno = EAGAIN;
  if (shared_ && (ready_.empty() || common_.FirstSince() <= ready_.front().since)) {
    Time since;
    if (auto session = TakeCommon(flags, fd, peer, &since)) return session;
    if (errno != EAGAIN) return nullptr;
  }
  return ready_.empty() ? nullptr : TakeKept(flags, fd, peer);
}

std::unique_ptr<Session> Arrivals::TakeKept(int flags, int* fd, Address* peer) {
  const int visible = Unhide(ready_.front().fd, flags);
  if (visible < 0) return nullptr;
  Ready ready = std::move(ready_.front());
  ready_.pop_front();
  NoteTaken();
  ready.session->queue_pair().SetEventFd(visible);
  *fd = visible;
  *peer = ready.peer;
  return std::move(ready.session);
}

std::unique_ptr<Session> Arrivals::TakeCommon(int flags, int* fd, Address* peer, Time* since) {
  std::vector<std::byte> state;
  int memory_fd = -1;
  while (common_.Take(flags, fd, &memory_fd, peer, since, &state)) {
    std::string why;
    auto memory = memory_fd >= 0 ? iwarp::TakeMemory(memory_fd, &why) : nullptr;
    if (auto session = Session::Transfer::Thawed(state, *fd, std::move(memory))) return session;
    SDP_LOG(kError, "a connection that another process has taken on is %s%s",
            why.empty() ? "not understood" : "lost: ", why.c_str());
    real.close(*fd);
  }
  return nullptr;
}

void Arrivals::NoteTaken() {
  uint64_t count;
  if (ready_.empty()) (void)!real.read(fd(), &count, sizeof count);
  SettleWork();
}

void Arrivals::SettleWork() {
  if (!common_.at_work()) return;
  const bool left = std::any_of(incoming_.begin(), incoming_.end(),
                                [](const auto& i) { return i->begun && !i->finished; }) ||
                    std::any_of(ready_.begin(), ready_.end(), [](const Ready& r) { return r.begun; });
  if (!left) common_.EndWork();
}

void Arrivals::AdvanceAnswered() {
  for (const auto& incoming : incoming_) {
    if (incoming->finished || incoming->session == nullptr || !incoming->Advance(Now()).done) continue;
    Background::Add(incoming.get(), Duration::zero());  // the helper sleeps on its descriptor
  }
}

bool Arrivals::PutIntoCommon(const Ready& ready) {
  return common_.Put(ready.session->transfer().Freeze(), ready.fd, ready.session->transfer().memory_fd(),
                     ready.peer, ready.since, ready.begun);
}

bool Arrivals::AwaitsRoom() const {
  return std::any_of(ready_.begin(), ready_.end(),
                     [](const Ready& ready) { return !ready.too_long && MayMove(*ready.session); });
}

Time Arrivals::MoveToCommon(Time now, Duration patience) {
  Time next = kNever;
  bool moved = false;
  for (auto ready = ready_.begin(); ready != ready_.end();) {
    if (ready->too_long || !MayMove(*ready->session)) {
      ++ready;
    } else if (now - ready->since < patience) {
      next = std::min(next, ready->since + patience);
      ++ready;
    } else if (PutIntoCommon(*ready)) {
      HiddenFds::Close(ready->fd);
      ready = ready_.erase(ready);
      moved = true;
    } else if (errno == EMSGSIZE) {
      ready->too_long = true;
    } else {
      next = std::min(next, now + 4 * patience_);
      break;  // The queue may be full. Its next room is for this connection, which came first.
    }
  }
  moved ? NoteTaken() : SettleWork();
  return next;
}

void Arrivals::Share() {
  MoveAllToCommon();
  // What is under way goes to all when it is done: the other process must not be confined before.
  if ((incoming_.empty() && ready_.empty()) || !common_.BeginWork()) return;
  for (auto& incoming : incoming_) incoming->begun = true;
  for (Ready& ready : ready_) ready.begun = true;
  SettleWork();
}

void Arrivals::MoveAllToCommon() { (void)MoveToCommon(Now(), Duration::zero()); }

void Arrivals::NoteForkInChild() {
  for (auto& incoming : incoming_) {
    if (!incoming->finished) HiddenFds::Close(incoming->fd);
    incoming->handshake.Disown();
    if (incoming->session != nullptr && !incoming->session->transfer().portable())
      (void)incoming->session.release();
  }
  incoming_.clear();
  for (Ready& ready : ready_) {
    HiddenFds::Close(ready.fd);
    if (!ready.session->transfer().portable()) (void)ready.session.release();
  }
  ready_.clear();
  common_.ForgetWork();
  // The parent's says what waits in the parent. Under the same number, which the readiness calls know.
  const int event_fd = MakeEventFd();
  if (event_fd >= 0) {
    real.dup3(event_fd, fd(), O_CLOEXEC);
    real.close(event_fd);
  }
}

void Arrivals::LeaveToOthers() {
  MoveAllToCommon();
  // Their peers need not wait until the process has ended.
  for (auto& incoming : incoming_) {
    if (incoming->finished) continue;
    LinkShutdown(incoming->fd, SHUT_RDWR);
    incoming->finished = true;
  }
  SettleWork();
}

Background::Wait Arrivals::Incoming::Run(Time now) {
  std::lock_guard lock(arrivals->mutex_);
  return finished ? Background::Wait{.done = true} : Advance(now);
}

// With the lock held.
Background::Wait Arrivals::Incoming::Advance(Time now) {
  try {
    const Background::Wait wait = Continue(now);
    if (!wait.done) return wait;
  } catch (const std::bad_alloc&) {
    HiddenFds::Close(fd);  // its peer is told at once
  }
  finished = true;
  arrivals->SettleWork();
  return {.done = true};
}

// With the lock held.
Background::Wait Arrivals::Incoming::Continue(Time now) {
  if (session == nullptr) {
    const auto outcome = handshake.Step(now);
    if (outcome == AcceptHandshake::Outcome::kPending) return handshake.wait();
    if (outcome == AcceptHandshake::Outcome::kFailed) {
      HiddenFds::Close(fd);
      return {.done = true};
    }
    session = handshake.TakeSession();
  }
  const Time since = Now();
  // Not further than that takes: what the application sets on the connection, as SO_OOBINLINE, is to hold for
  // all it receives.
  if (session->has_unsent()) session->Read();
  const Time until = session->start_until();
  if (until != kNever && now < until)
    return {.fd = LinkOf(*session, fd), .events = POLLIN, .deadline = until};
  if (until != kNever) {  // no RTR came: it is not a connection yet, and accept is not to return it
    SDP_LOG(kInfo, "dropped a connection from %s to the SDP port: nothing came behind its MPA Request",
            ToEndpoint(handshake.peer()).ToString().c_str());
    HiddenFds::Close(fd);
  } else {
    arrivals->Push(
        {.fd = fd, .session = std::move(session), .peer = handshake.peer(), .since = since, .begun = begun});
  }
  return {.done = true};
}

Background::Wait Arrivals::Tending::Run(Time now) {
  std::lock_guard lock(arrivals->mutex_);
  const Duration patience = arrivals->patience_;
  Background::Wait wait{.done = true};
  for (Ready& ready : arrivals->ready_) {
    if (now >= ready.session->start_until()) continue;  // accept ends it
    if (!ready.session->has_unsent()) continue;
    // From the HelloAck on its place in the line counts, which others may have to hear of at once
    // (MoveToCommon).
    const bool early = now - ready.since < patience;
    if (!early) ready.session->Read();
    if (!ready.session->has_unsent()) continue;
    wait.done = false;
    if (early) {
      wait.deadline = std::min(wait.deadline, ready.since + patience);
    } else if (wait.fd < 0) {
      // One descriptor at a time; the others are looked at again after a while.
      wait.fd = LinkOf(*ready.session, ready.fd);
      wait.events = POLLIN;
      wait.deadline = std::min(wait.deadline, ready.session->start_until());
    } else {
      wait.deadline = std::min(wait.deadline, now + 4 * patience);
    }
  }
  const CommonQueue& common = arrivals->common_;
  if (!arrivals->shared_ || !(common.at_work() || common.usable())) return wait;
  const Time next = arrivals->MoveToCommon(now, patience);
  if (next == kNever) return wait;
  wait.done = false;
  wait.deadline = std::min(wait.deadline, next);
  return wait;
}

}  // namespace sdp::preload
