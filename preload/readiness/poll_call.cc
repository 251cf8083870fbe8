#include "preload/readiness/poll_call.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/background.h"
#include "preload/socket/clock.h"
#include "preload/socket/watch.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

constexpr short kAlways = POLLERR | POLLHUP | POLLNVAL;
constexpr short kReadable = POLLIN | POLLRDNORM;
constexpr short kReadSide = POLLIN | POLLRDNORM | POLLRDHUP | POLLPRI;

// A look at more descriptors than this takes as long as a sleep.
constexpr size_t kMostLookedAt = 16;

// While some entries are ready without the kernel, the others wait so long at most to be asked about.
constexpr Duration kKernelMayWait = std::chrono::microseconds(100);

// When this thread last asked the kernel although it need not have, and about what.
struct Asked {
  Time at;
  uint64_t entries;
};
thread_local constinit Asked last_asked{};

// Returns a value that other descriptors have only by a rare chance. What is asked of them does not count: a
// program waits for a connection to be readable and to be writable by turns.
uint64_t DigestOf(std::span<const pollfd> entries) {
  uint64_t digest = entries.size();
  for (const pollfd& entry : entries) {
    digest = (digest ^ static_cast<uint32_t>(entry.fd)) * 0x9e3779b97f4a7c15;
    digest ^= digest >> 32;
  }
  return digest;
}

}  // namespace

int PollCall::Run(Time deadline, const sigset_t* mask) {
  for (;;) {
    const Time undone = Background::RunInline();
    int ready = Prepare();
    if (ready == 0 && look_.any()) {
      const DeviceLook::Outcome outcome = look_.Run(deadline, KernelKnowsMore(), mask);
      if (outcome != DeviceLook::Outcome::kSleep) ready = Prepare();
      if (outcome == DeviceLook::Outcome::kInterrupted && ready == 0) return Fail(EINTR);
    }
    if (ready > 0 && KernelMayWait()) return ready;
    const LookEnd look = ready == 0 ? LookAtKernel(deadline, mask) : LookEnd::kInVain;
    if (look == LookEnd::kInterrupted) return Fail(EINTR);
    if (look == LookEnd::kFound) {
      ready = Collect(/*slept=*/false);
      if (ready > 0) return ready;
      continue;
    }
    slept_at_ = any_looked_ ? Now() : Time{};
    timespec storage{};
    if (ready == 0 && any_link_ && Now() < deadline) Register();
    // Once registered, this thread wakes for a change; one between Prepare and Register did not wake it.
    if (ready == 0 && waiter_ != nullptr && ChangedMeanwhile()) {
      Unregister();
      continue;
    }
    const timespec* timeout =
        ready != 0 ? &storage : Remaining(std::min(Bounded(deadline), undone), &storage);
    const int result = ready == 0 ? Sleep(timeout, mask) : AskKernel(timeout, mask);
    const int error = errno;
    const bool woken = waiter_ != nullptr && kernel_.back().revents != 0;
    const bool rung = waiter_ != nullptr && hears_bell_ && kernel_.end()[-2].revents != 0;
    if (woken) waiter_->Drain();
    if (rung) waiter_->DrainBell();
    Unregister();
    if (result < 0) {
      errno = error;
      if (ready == 0) return -1;
      return ready;
    }
    const bool slept = ready == 0 && slept_at_ < deadline;
    ready += Collect(slept);
    if (ready > 0) return ready;
    if (Now() >= deadline) return 0;
  }
}

LookEnd PollCall::LookAtKernel(Time deadline, const sigset_t* mask) {
  if (look_at_kernel_ == Duration::zero() || kernel_.size() > kMostLookedAt) return LookEnd::kInVain;
  const Time now = Now();
  if (now >= deadline) return LookEnd::kInVain;
  for (const Part& part : parts_) {
    if (part.link) Watch(Stream(part.socket)).PushWrites();
  }
  using LookResult = Watch::LookResult;
  const LookEnd end = LookUntil(std::min(deadline, now + look_at_kernel_), mask, [this] {
    const timespec at_once{};
    return AskKernel(&at_once, nullptr) > 0;
  });
  if (end == LookEnd::kInVain || end == LookEnd::kInterrupted) return end;
  for (size_t k = 0; k < parts_.size(); ++k) {
    if (!parts_[k].seen.looked || (end == LookEnd::kFound && kernel_[k].revents == 0)) continue;
    Watch(Stream(parts_[k].socket))
        .EndLook(end == LookEnd::kFound ? LookResult::kFound : LookResult::kCrowded);
  }
  return end;
}

int PollCall::AskKernel(const timespec* timeout, const sigset_t* mask) {
  // The kernel might refuse the added entries, which the application did not ask for.
  return count_ < kernel_.size() || Confined() ? UnboundedPoll(kernel_.data(), kernel_.size(), timeout, mask)
                                               : real.ppoll(kernel_.data(), kernel_.size(), timeout, mask);
}

int PollCall::Sleep(const timespec* timeout, const sigset_t* mask) {
  const SleepMayBeCancelled here;
  return AskKernel(timeout, mask);
}

bool PollCall::KernelKnowsMore() {
  const bool devices_alone =
      std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.seen.device; });
  const timespec at_once{};
  return !devices_alone && !KernelMayWait() && AskKernel(&at_once, nullptr) > 0;
}

bool PollCall::KernelMayWait() const {
  if (parts_.empty()) return true;
  if (shared_ || !std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.waits; }))
    return false;
  const Time now = Now();
  const uint64_t entries = DigestOf({fds_, count_});
  if (last_asked.entries == entries && now - last_asked.at < kKernelMayWait) return true;
  last_asked = {.at = now, .entries = entries};
  return false;
}

void PollCall::Clear() {
  kernel_.clear();
  parts_.clear();
  watched_sets_.clear();
  plain_sleeps_.clear();
  look_.Clear();
  look_at_kernel_ = Duration::zero();
  any_link_ = any_looked_ = false;
  unwatched_ = false;
  shared_ = false;
}

int PollCall::Prepare() {
  Clear();
  int ready = 0;
  for (size_t i = 0; i < count_; ++i) {
    fds_[i].revents = 0;
    if (fds_[i].fd < 0) continue;
    SocketRef socket = FdTable::Get(fds_[i].fd);
    if (socket ? AddSocket(i, std::move(socket)) : AddPlain(i)) ++ready;
  }
  return ready;
}

bool PollCall::AddSocket(size_t i, SocketRef socket) {
  const Watch::Readiness readiness = Watch(Stream(socket)).GetReadiness();
  switch (readiness.state) {
    case StreamSocket::State::kSdp:
    case StreamSocket::State::kConnecting:
    case StreamSocket::State::kClosed:
      return AddConnection(i, std::move(socket), readiness);
    case StreamSocket::State::kListening:
      (void)AddPlain(i);
      parts_.back().waits = true;
      AddListener(i, socket, readiness);
      return false;
    case StreamSocket::State::kNew:
      if (readiness.events != 0) {
        SetReady(i, readiness);
        return true;
      }
      return AddPlain(i);
    case StreamSocket::State::kPlain:
      return AddPlain(i);
  }
  return false;
}

bool PollCall::SetReady(size_t i, const Watch::Readiness& readiness) {
  fds_[i].revents = static_cast<short>(readiness.events & (fds_[i].events | kAlways));
  return fds_[i].revents != 0;
}

bool PollCall::AddConnection(size_t i, SocketRef socket, const Watch::Readiness& readiness) {
  const pollfd& asked = fds_[i];
  StreamSocket* const stream = &Stream(socket);
  const bool ready = SetReady(i, readiness);
  if (ready) {
    // Writable alone is no answer to a call that also waits for data, so the link is looked at all the same.
    const int missing = asked.events & ~asked.revents & kReadSide;
    if (missing == 0 || (readiness.read_ahead && (missing & kReadable) == 0)) return true;
  }
  any_link_ = true;
  if (readiness.watch == 0) unwatched_ = true;
  if (readiness.shared) shared_ = true;
  const int watched = readiness.link_fd >= 0 ? readiness.link_fd : asked.fd;
  kernel_.push_back({.fd = readiness.watch == 0 ? -1 : watched, .events = readiness.watch, .revents = 0});
  if (readiness.device)
    look_.Add(stream, readiness.look, {.events = static_cast<short>(asked.events | kAlways)});
  else
    look_at_kernel_ = std::max(look_at_kernel_, readiness.look);
  any_looked_ = any_looked_ || readiness.looked;
  parts_.push_back({.index = i,
                    .socket = std::move(socket),
                    .link = true,
                    .seen = readiness,
                    .waits = readiness.device && readiness.link_fd < 0});
  return ready;
}

void PollCall::AddListener(size_t i, const SocketRef& socket, const Watch::Readiness& readiness) {
  if ((fds_[i].events & kReadable) == 0) return;
  for (const int fd : readiness.listener_fds) {
    if (fd < 0) continue;
    kernel_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    parts_.push_back({.index = i,
                      .socket = SocketRef::To(socket.get()),
                      .queue = true,
                      .request = fd == readiness.listener_fds[0],
                      .waits = true});
  }
}

bool PollCall::AddPlain(size_t i) {
  bool ready = false;
  if (EpollKnows(fds_[i].fd) && (fds_[i].events & kReadable) != 0) {
    PlainSleep sleep(fds_[i].fd);
    EpollSetRef set = FindEpollSet(fds_[i].fd);
    if (!set) {
      plain_sleeps_.push_back(std::move(sleep));
    } else {
      // From here on the kernel hears of what becomes ready.
      watched_sets_.emplace_back(std::move(set));
      ready = watched_sets_.back().get()->ProgressAndCheck();
      if (ready) fds_[i].revents = static_cast<short>(fds_[i].events & kReadable);
      if (watched_sets_.back().get()->HasShared()) shared_ = true;
    }
  }
  kernel_.push_back({.fd = fds_[i].fd, .events = fds_[i].events, .revents = 0});
  parts_.push_back({.index = i, .socket = {}});
  return ready;
}

int PollCall::Collect(bool slept) {
  int ready = 0;
  woken_by_looked_ = false;
  const auto set = [&](size_t index, short events) {
    if (events == 0) return;
    if (fds_[index].revents == 0) ++ready;
    fds_[index].revents = static_cast<short>(fds_[index].revents | events);
  };
  for (size_t k = 0; k < parts_.size(); ++k) {
    Part& part = parts_[k];
    set(part.index, part.link ? CollectLink(part, kernel_[k].revents) : CollectPlain(part, kernel_[k]));
  }
  if (slept && any_looked_) NoteSlept(Now() - slept_at_);
  return ready;
}

short PollCall::CollectPlain(const Part& part, const pollfd& kernel) {
  if (kernel.revents == 0) return 0;
  if (part.queue) {
    // Not ready while accept might sleep: the listener is ready when a handshake is complete.
    if (part.request && Watch(Stream(part.socket)).TakeOnConnections()) return 0;
    // A socket that no longer listens: its conventional side has the answer, and the next round asks only
    // that.
    if ((kernel.revents & POLLIN) == 0 || !Stream(part.socket).listening()) return 0;
  }
  const bool epolls = !watched_sets_.empty() || !plain_sleeps_.empty();
  if ((kernel.revents & ~kReadable) == 0 && epolls && NestedIsIdle(kernel.fd)) return 0;
  return part.queue ? static_cast<short>(fds_[part.index].events & kReadable) : kernel.revents;
}

short PollCall::CollectLink(Part& part, short revents) {
  StreamSocket* const stream = &Stream(part.socket);
  if (revents != 0) Watch(*stream).Progress();
  const Watch::Readiness readiness = Watch(*stream).GetReadiness();
  if (readiness.state == StreamSocket::State::kPlain) return 0;  // the next round asks the kernel
  const short events = static_cast<short>(readiness.events & (fds_[part.index].events | kAlways));
  part.came = events != 0;
  woken_by_looked_ = woken_by_looked_ || (part.seen.looked && part.came);
  return events;
}

void PollCall::NoteSlept(Duration lasted) {
  using WokenBy = Watch::WokenBy;
  for (Part& part : parts_) {
    if (!part.seen.looked) continue;
    const WokenBy by = part.came ? WokenBy::kThis : woken_by_looked_ ? WokenBy::kAnother : WokenBy::kNeither;
    Watch(Stream(part.socket)).NoteSlept(lasted, by);
  }
}

void PollCall::Register() {
  waiter_ = Waiter::ForThisThread();
  if (waiter_ == nullptr) return;
  waiter_->BeginSleep();
  // The bell of a sleep that a handler has interrupted is that sleep's.
  iwarp::Bell* const bell = look_.any() && !Critical::IsInHandler() ? waiter_->OpenBell() : nullptr;
  for (Part& part : parts_) {
    if (part.link) Watch(Stream(part.socket)).AddWaiter(waiter_, bell);
  }
  hears_bell_ = bell != nullptr;
  if (hears_bell_) kernel_.push_back({.fd = bell->fd(), .events = POLLIN, .revents = 0});
  kernel_.push_back({.fd = waiter_->event_fd(), .events = POLLIN, .revents = 0});
}

void PollCall::Unregister() {
  if (waiter_ == nullptr) return;
  for (Part& part : parts_) {
    if (!part.link) continue;
    try {
      Watch(Stream(part.socket)).RemoveWaiter(waiter_);
    } catch (const std::bad_alloc&) {  // the waiter is removed; the next call takes what has come
    }
  }
  std::exchange(waiter_, nullptr)->EndSleep();
}

bool PollCall::ChangedMeanwhile() {
  for (const Part& part : parts_) {
    if (!part.link) continue;
    const Watch::Readiness now = Watch(Stream(part.socket)).GetReadiness();
    shared_ = shared_ || now.shared;
    if (now.read_edge != part.seen.read_edge || now.write_edge != part.seen.write_edge ||
        now.state != part.seen.state)
      return true;
  }
  return false;
}

// A thread that no other thread can wake looks again soon. So does one that waits for a connection that
// several processes hold.
Time PollCall::Bounded(Time deadline) const {
  if (waiter_ == nullptr && unwatched_) return std::min(deadline, Now() + std::chrono::milliseconds(5));
  if (waiter_ == nullptr && any_link_) deadline = std::min(deadline, Waiter::LookAgainWithout());
  return shared_ ? std::min(deadline, Now() + std::chrono::milliseconds(32)) : deadline;
}

}  // namespace sdp::preload
