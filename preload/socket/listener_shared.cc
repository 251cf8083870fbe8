// A listener that several processes have: by fork, exec, posix_spawn or in a message.
//
// A process may accept what another one has taken on, out of the common queue (arrivals.h). No process needs
// to know of the others: the queue serves the last one that is left as well.
#include <poll.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "preload/bounded_lock.h"
#include "preload/hidden_fds.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/listener.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {

void Listener::Share() {
  arrivals_.NoteShared();
  if (!closed_) arrivals_.Share();
}

bool Listener::HandOver(Handover::Listener* out, std::vector<int>* descriptors) {
  if (closed_) return false;
  Share();
  out->registered = enrolment_.fd >= 0;
  out->dormant = enrolment_.dormant;
  out->has_queue = arrivals_.common().open();
  out->backlog = static_cast<uint32_t>(arrivals_.backlog());
  descriptors->push_back(sdp_fd_);
  if (out->registered) descriptors->push_back(enrolment_.fd);
  if (out->has_queue) arrivals_.common().AppendDescriptors(descriptors);
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
      !from.registered || HiddenFds::HideTracked(fds.registration, &listener->enrolment_.fd) >= 0;
  const bool queued = !from.has_queue || listener->arrivals_.common().TakeUp(fds.queue_out, fds.queue_in);
  if (!hidden || !registered || !queued || !listener->arrivals_.Open()) {
    SDP_LOG(kError,
            "no descriptor left for the SDP side of an inherited listener; conventional clients only");
    return nullptr;
  }
  listener->sdp_address_ = LocalAddress(listener->sdp_fd());
  listener->arrivals_.SetBacklog(std::clamp<size_t>(from.backlog, 1, Arrivals::kMostTakenOn));
  listener->enrolment_.dormant = from.dormant;
  listener->enrolment_.next_look = Now();
  listener->arrivals_.NoteShared();
  listener->renewal_.was_registered = from.registered;
  if (from.registered) listener->enrolment_.standing = RegisteredBy(listener->enrolment_.fd);
  listener->Enlist();
  return listener;
}

void Listener::NoteFork(bool in_child) {
  std::lock_guard lock(mutex_);
  if (!in_child) {
    if (!used_) kernel_.Close();
    return;
  }
  used_ = leaving_ = false;
  kernel_.Disown();
  arrivals_.NoteForkInChild();
}

void Listener::LeaveToOthers() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!LockBounded(lock, Pause) || !arrivals_.shared() || closed_) return;
  leaving_ = true;
  arrivals_.LeaveToOthers();
}

void Listener::Bar() {
  const std::lock_guard lock(mutex_);
  if (!arrivals_.shared() || closed_) return;
  arrivals_.common().Bar();
  arrivals_.common().EndWork();  // what this process has taken on is its own now
}

// What waits is taken out while that can be done, and so is what others have taken on: their peers may know
// already that they are connected.
void Listener::PrepareConfinement(Time give_up) {
  std::unique_lock lock(mutex_);
  if (!arrivals_.shared()) return;
  const CommonQueue& common = arrivals_.common();
  while (!closed_) {
    const bool more = common.OthersAtWork() && Now() < give_up;  // before the look at what they have put in
    Time since;
    Address peer;
    for (int fd; auto session = arrivals_.TakeCommon(SOCK_CLOEXEC, &fd, &peer, &since);) {
      const int hidden = HiddenFds::Hide(fd);
      if (hidden >= 0)
        arrivals_.Keep(
            {.fd = hidden, .session = std::move(session), .peer = peer, .since = since, .begun = false});
    }
    if (!more) break;
    pollfd next{.fd = common.fd(), .events = POLLIN, .revents = 0};
    const timespec moment{.tv_sec = 0, .tv_nsec = 1'000'000};
    lock.unlock();
    real.ppoll(&next, 1, &moment, nullptr);  // that they end their work no descriptor tells
    lock.lock();
  }
}

}  // namespace sdp::preload
