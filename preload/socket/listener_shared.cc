// A listener that several processes have: by fork, exec, posix_spawn or in a message.
//
// What one has taken on, another may accept, out of the common queue. Nobody has to know who else is there:
// where the others are gone, the queue's one reader left is served as well. Not in it are handshakes that are
// not finished, and connections over a kernel RNIC, whose state does not survive the way: these end with
// their process.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "preload/bounded_lock.h"
#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/link_calls.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/listener.h"

namespace sdp::preload {

void Listener::Share() {
  shared_ = true;
  if (closed_) return;
  (void)MoveToCommon(Now(), Duration::zero());
  // What is under way goes to all when it is done: the other process must not be confined before.
  if ((incoming_.empty() && ready_.empty()) || !common_.BeginWork()) return;
  for (auto& incoming : incoming_) incoming->begun = true;
  for (Ready& ready : ready_) ready.begun = true;
  SettleWork();
}

bool Listener::HandOver(Handover::Listener* out, std::vector<int>* descriptors) {
  if (closed_) return false;
  Share();
  out->registered = registration_fd_ >= 0;
  out->dormant = dormant_;
  out->has_queue = common_.open();
  out->backlog = static_cast<uint32_t>(backlog_);
  descriptors->push_back(sdp_fd_);
  if (out->registered) descriptors->push_back(registration_fd_);
  if (out->has_queue) common_.AppendDescriptors(descriptors);
  return true;
}

// No helper yet: the program may not want a thread before it has begun, and may never use what it has
// inherited.
std::unique_ptr<Listener> Listener::TakeUp(Socket* owner, const Handover::Listener& from,
                                           const Handover::ListenerFds& fds) {
  std::unique_ptr<Listener> listener(
      new Listener(owner, LocalAddress(fds.sdp).family(), {}, from.options.tuning()));
  const bool hidden = HiddenFds::HideTracked(fds.sdp, &listener->sdp_fd_) >= 0;
  const bool registered =
      !from.registered || HiddenFds::HideTracked(fds.registration, &listener->registration_fd_) >= 0;
  const bool queued = !from.has_queue || listener->common_.TakeUp(fds.queue_out, fds.queue_in);
  if (!hidden || !registered || !queued || !listener->MakeReadyFd()) {
    SDP_LOG(kError,
            "no descriptor left for the SDP side of an inherited listener; conventional clients only");
    return nullptr;
  }
  listener->sdp_address_ = LocalAddress(listener->sdp_fd());
  listener->backlog_ = std::clamp<size_t>(from.backlog, 1, kMostTakenOn);
  listener->dormant_ = from.dormant;
  listener->next_look_ = Now();
  listener->shared_ = true;
  listener->renewal_.was_registered = from.registered;
  if (from.registered) listener->standing_ = RegisteredBy(listener->registration_fd_);
  listener->Enlist();
  return listener;
}

void Listener::NoteFork(bool in_child) {
  std::lock_guard lock(mutex_);
  if (!in_child && !used_) CloseKernelSide();
  if (in_child) {
    used_ = leaving_ = false;
    for (auto* listeners : {&kernel_, &kernel_gone_}) {
      for (auto& kernel : *listeners) kernel->Disown();
      listeners->clear();
    }
    kernel_looked_ = false;
    // The helper that was to finish these lives in the parent.
    for (auto& incoming : incoming_) {
      if (!incoming->finished) HiddenFds::Close(incoming->fd);
      incoming->finished = true;
      incoming->handshake.Disown();
      if (incoming->session != nullptr && !incoming->session->portable()) (void)incoming->session.release();
    }
    incoming_.clear();
    for (Ready& ready : ready_) {
      HiddenFds::Close(ready.fd);
      if (!ready.session->portable()) (void)ready.session.release();
    }
    ready_.clear();
    common_.ForgetWork();
    // The parent's says what waits in the parent. Under the same number, which the readiness calls know.
    const int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd >= 0) {
      real.dup3(event_fd, ready_fd(), O_CLOEXEC);
      real.close(event_fd);
    }
  }
}

bool Listener::MayMove(const Session& session) { return !session.has_unsent() && session.freezable(); }

bool Listener::AwaitsRoom() const {
  return std::any_of(ready_.begin(), ready_.end(),
                     [](const Ready& ready) { return !ready.too_long && MayMove(*ready.session); });
}

Time Listener::MoveToCommon(Time now, Duration patience) {
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
      next = std::min(next, now + 4 * kPatience);  // full, perhaps
      break;                                       // and whom it has room for next is whoever came first
    }
  }
  uint64_t count;
  if (moved && ready_.empty()) (void)!real.read(ready_fd(), &count, sizeof count);
  SettleWork();
  return next;
}

std::unique_ptr<Session> Listener::AcceptCommon(int flags, int* fd, Address* peer, Time* since) {
  std::vector<std::byte> state;
  int memory_fd = -1;
  while (common_.Take(flags, fd, &memory_fd, peer, since, &state)) {
    std::string why;
    auto memory = memory_fd >= 0 ? iwarp::TakeMemory(memory_fd, &why) : nullptr;
    if (auto session = Session::Thawed(state, *fd, std::move(memory))) return session;
    SDP_LOG(kError, "a connection that another process has taken on is %s%s",
            why.empty() ? "not understood" : "lost: ", why.c_str());
    real.close(*fd);
  }
  return nullptr;
}

void Listener::LeaveToOthers() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!LockBounded(lock) || !shared_ || closed_) return;
  leaving_ = true;
  (void)MoveToCommon(Now(), Duration::zero());
  // Their peers need not wait until the process has ended.
  for (auto& incoming : incoming_) {
    if (incoming->finished) continue;
    LinkShutdown(incoming->fd, SHUT_RDWR);
    incoming->finished = true;
  }
  SettleWork();
}

void Listener::Bar() {
  const std::lock_guard lock(mutex_);
  if (!shared_ || closed_) return;
  common_.Bar();
  common_.EndWork();  // what this process has taken on is its own now
}

// What waits is taken out while that can be done, and so is what others have taken on: their peers may know
// already that they are connected.
void Listener::PrepareConfinement(Time give_up) {
  std::unique_lock lock(mutex_);
  if (!shared_) return;
  while (!closed_) {
    const bool more = common_.OthersAtWork() && Now() < give_up;  // before the look at what they have put in
    Time since;
    Address peer;
    for (int fd; auto session = AcceptCommon(SOCK_CLOEXEC, &fd, &peer, &since);) {
      const int hidden = HiddenFds::Hide(fd);
      if (hidden >= 0)
        Keep({.fd = hidden, .session = std::move(session), .peer = peer, .since = since, .begun = false});
    }
    if (!more) break;
    pollfd next{.fd = common_.fd(), .events = POLLIN, .revents = 0};
    const timespec moment{.tv_sec = 0, .tv_nsec = 1'000'000};
    lock.unlock();
    real.ppoll(&next, 1, &moment, nullptr);  // that they end their work no descriptor tells
    lock.lock();
  }
}

}  // namespace sdp::preload
