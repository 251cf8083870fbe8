// poll and select over SDP sockets and everything else.
#include <poll.h>
#include <sys/resource.h>
#include <sys/select.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "preload/allowed_calls.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/readiness/look.h"
#include "preload/readiness/nested.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/background.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/unbounded_poll.h"
#include "preload/socket/waiter.h"

namespace sdp::preload {
namespace {

// A set may be there, or come while a call sleeps.
bool MayBeEpoll(int fd) { return EpollNumbers::GroupOf(fd) != 0 || EpollSetRef::Find(fd); }

constexpr short kAlways = POLLERR | POLLHUP | POLLNVAL;
constexpr short kReadable = POLLIN | POLLRDNORM;
constexpr short kReadSide = POLLIN | POLLRDNORM | POLLRDHUP | POLLPRI;

// What one entry of the application's array became in the kernel's.
struct Part {
  size_t index;          // in the application's array
  SocketRef socket;      // of an SDP socket or listener
  bool link = false;     // the kernel's entry is an SDP link: what it says only means "look"
  bool device = false;   // a kernel RNIC's
  bool came = false;     // by what is waited for of it the sleep was ended
  bool queue = false;    // the kernel's entry is a listener's SDP side: what says POLLIN there is readable in
                         // either word
  bool request = false;  // and somebody wants to connect
};

// A set on whose epoll descriptor this call may sleep.
class WatchedSet {
 public:
  explicit WatchedSet(EpollSetRef set) : set_(std::move(set)) { set_->AddSleeper(); }
  WatchedSet(WatchedSet&& other) noexcept : set_(std::move(other.set_)) {}
  WatchedSet& operator=(WatchedSet&& other) noexcept {
    std::swap(set_, other.set_);
    return *this;
  }
  ~WatchedSet() {
    if (set_) set_->RemoveSleeper();
  }
  [[nodiscard]] EpollSet* get() const { return set_.operator->(); }

 private:
  EpollSetRef set_;
};

class PollCall {
 public:
  PollCall(pollfd* fds, nfds_t count) : fds_(fds), count_(count) {}
  ~PollCall() { Unregister(); }

  // A cancellation ends it before it has done anything, or in its sleep.
  int Run(Time deadline, const sigset_t* mask) {
    for (;;) {
      const Time undone = Background::RunInline();
      int ready = Prepare();
      if (ready == 0 && look_.any()) {
        const DeviceLook::Outcome outcome = look_.Run(deadline, KernelKnowsMore(), mask);
        if (outcome != DeviceLook::Outcome::kSleep) ready = Prepare();
        if (outcome == DeviceLook::Outcome::kInterrupted && ready == 0) {
          errno = EINTR;
          return -1;
        }
      }
      slept_at_ = look_.any() ? Now() : Time{};
      timespec storage{};
      if (ready == 0 && Now() < deadline) Register();
      // Once registered, a change wakes us; one that came between Prepare and Register did not.
      if (ready == 0 && waiter_ != nullptr && ChangedMeanwhile()) {
        Unregister();
        continue;
      }
      const timespec* timeout =
          ready != 0 ? &storage : Remaining(std::min(Bounded(deadline), undone), &storage);
      // More entries than the application asked for must not be too many for it.
      const int result = ready == 0 ? Sleep(timeout, mask) : AskKernel(timeout, mask);
      const int error = errno;
      const bool woken = waiter_ != nullptr && registered_ && kernel_.back().revents != 0;
      Unregister();
      if (woken) waiter_->Drain();
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

 private:
  int AskKernel(const timespec* timeout, const sigset_t* mask) {
    // More entries than the application asked for must not be too many for it.
    return count_ < kernel_.size() || Confined()
               ? UnboundedPoll(kernel_.data(), kernel_.size(), timeout, mask)
               : real.ppoll(kernel_.data(), kernel_.size(), timeout, mask);
  }

  int Sleep(const timespec* timeout, const sigset_t* mask) {
    const SleepMayBeCancelled here;
    return AskKernel(timeout, mask);
  }

  bool KernelKnowsMore() {
    if (!nested_ready_.empty()) return true;
    const bool devices_alone =
        std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.device; });
    const timespec at_once{};
    return !devices_alone && AskKernel(&at_once, nullptr) > 0;
  }

  // Looks at every SDP socket; the number of entries that are ready without asking the kernel.
  int Prepare() {
    kernel_.clear();
    parts_.clear();
    edges_.clear();
    nested_ready_.clear();
    watched_sets_.clear();
    plain_sleeps_.clear();
    look_.Clear();
    unwatched_ = false;
    shared_ = false;
    int ready = 0;
    for (size_t i = 0; i < count_; ++i) {
      pollfd& asked = fds_[i];
      asked.revents = 0;
      if (asked.fd < 0) continue;
      SocketRef socket = FdTable::Get(asked.fd);
      if (!socket) {
        AddPlain(i);
        continue;
      }
      auto* const stream = static_cast<StreamSocket*>(socket.get());
      const StreamSocket::Readiness readiness = stream->GetReadiness();
      switch (readiness.state) {
        case StreamSocket::State::kSdp:
        case StreamSocket::State::kConnecting:
        case StreamSocket::State::kClosed:
          asked.revents = static_cast<short>(readiness.events & (asked.events | kAlways));
          if (asked.revents != 0) {
            ++ready;
            // Writable is no answer to who waits for data, too: the link is looked at all the same.
            const int missing = asked.events & ~asked.revents & kReadSide;
            if (missing == 0 || (readiness.read_ahead && (missing & (POLLIN | POLLRDNORM)) == 0)) continue;
          }
          edges_.push_back({stream, readiness.read_edge, readiness.write_edge, readiness.state});
          if (readiness.watch == 0) unwatched_ = true;
          if (readiness.shared) shared_ = true;
          kernel_.push_back({.fd = readiness.watch == 0     ? -1
                                   : readiness.link_fd >= 0 ? readiness.link_fd
                                                            : asked.fd,
                             .events = readiness.watch,
                             .revents = 0});
          if (readiness.device)
            look_.Add(stream, readiness.look, {.events = static_cast<short>(asked.events | kAlways)});
          parts_.push_back(
              {.index = i, .socket = std::move(socket), .link = true, .device = readiness.device});
          break;
        case StreamSocket::State::kListening:
          AddPlain(i);
          for (const int fd : readiness.listener_fds) {
            if (fd < 0 || (asked.events & kReadable) == 0) continue;
            kernel_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
            stream->Ref();
            parts_.push_back({.index = i,
                              .socket = SocketRef(stream),
                              .queue = true,
                              .request = fd == readiness.listener_fds[0]});
          }
          break;
        case StreamSocket::State::kNew:
          if (readiness.events != 0) {
            asked.revents = static_cast<short>(readiness.events & (asked.events | kAlways));
            ++ready;
            continue;
          }
          AddPlain(i);
          break;
        case StreamSocket::State::kPlain:
          AddPlain(i);
          break;
      }
    }
    return ready;
  }

  void AddPlain(size_t i) {
    if (MayBeEpoll(fds_[i].fd) && (fds_[i].events & kReadable) != 0) {
      PlainSleep sleep(fds_[i].fd);
      EpollSetRef set = FindEpollSet(fds_[i].fd);
      if (!set) {
        plain_sleeps_.push_back(std::move(sleep));
      } else {
        // From here on the kernel hears of what becomes ready; what is ready already is reported by the entry
        // below at the latest.
        watched_sets_.emplace_back(std::move(set));
        if (watched_sets_.back().get()->ProgressAndCheck()) nested_ready_.push_back(i);
        if (watched_sets_.back().get()->HasShared()) shared_ = true;
      }
    }
    kernel_.push_back({.fd = fds_[i].fd, .events = fds_[i].events, .revents = 0});
    parts_.push_back({.index = i, .socket = {}, .link = false});
  }

  // Puts what the kernel said into the application's array; the number of entries that became ready.
  int Collect(bool slept) {
    int ready = 0;
    woken_by_device_ = false;
    auto set = [&](size_t index, short events) {
      if (events == 0) return;
      if (fds_[index].revents == 0) ++ready;
      fds_[index].revents = static_cast<short>(fds_[index].revents | events);
    };
    for (size_t k = 0; k < parts_.size(); ++k) {
      const short revents = kernel_[k].revents;
      Part& part = parts_[k];
      if (part.queue && revents != 0) {
        auto* const stream = static_cast<StreamSocket*>(part.socket.get());
        if (part.request && stream->TakeOnConnections())
          continue;  // accept would perhaps sleep: the listener is ready when hands are shaken
        // A listener that listens no more: its conventional side says what there is to say, and the next
        // round asks that alone.
        if ((revents & POLLIN) == 0 || !stream->listening()) continue;
      }
      if (!part.link) {
        const bool epolls = !watched_sets_.empty() || !plain_sleeps_.empty();
        const bool idle =
            revents != 0 && (revents & ~kReadable) == 0 && epolls && NestedIsIdle(kernel_[k].fd);
        const bool readable = part.queue && revents != 0;
        if (!idle)
          set(part.index, readable ? static_cast<short>(fds_[part.index].events & kReadable) : revents);
        continue;
      }
      auto* const stream = static_cast<StreamSocket*>(part.socket.get());
      if (revents != 0) stream->Progress();
      const StreamSocket::Readiness readiness = stream->GetReadiness();
      if (readiness.state == StreamSocket::State::kPlain) continue;  // the next round asks the kernel
      const short events = static_cast<short>(readiness.events & (fds_[part.index].events | kAlways));
      part.came = events != 0;
      woken_by_device_ = woken_by_device_ || (part.device && part.came);
      set(part.index, events);
    }
    if (slept && look_.any()) NoteSlept(Now() - slept_at_);
    for (const size_t index : nested_ready_) set(index, static_cast<short>(fds_[index].events & kReadable));
    nested_ready_.clear();
    return ready;
  }

  void NoteSlept(Duration lasted) {
    using WokenBy = StreamSocket::WokenBy;
    for (Part& part : parts_) {
      if (!part.device) continue;
      const WokenBy by = part.came          ? WokenBy::kThis
                         : woken_by_device_ ? WokenBy::kAnother
                                            : WokenBy::kNeither;
      static_cast<StreamSocket*>(part.socket.get())->NoteSlept(lasted, by);
    }
  }

  void Register() {
    waiter_ = nullptr;
    const bool any = std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.link; });
    if (!any) return;
    waiter_ = Waiter::ForThisThread();
    if (waiter_ == nullptr) return;
    for (Part& part : parts_) {
      if (part.link) static_cast<StreamSocket*>(part.socket.get())->AddWaiter(waiter_);
    }
    registered_ = true;
    kernel_.push_back({.fd = waiter_->event_fd(), .events = POLLIN, .revents = 0});
  }

  void Unregister() {
    if (!registered_) return;
    registered_ = false;
    for (Part& part : parts_) {
      if (part.link) static_cast<StreamSocket*>(part.socket.get())->RemoveWaiter(waiter_);
    }
  }

  bool ChangedMeanwhile() {
    for (const Seen& seen : edges_) {
      const StreamSocket::Readiness now = seen.socket->GetReadiness();
      shared_ = shared_ || now.shared;
      if (now.read_edge != seen.read_edge || now.write_edge != seen.write_edge || now.state != seen.state)
        return true;
    }
    return false;
  }

  // A thread that nobody can wake looks again soon; so does one that waits for a connection of several
  // processes.
  Time Bounded(Time deadline) const {
    const bool deaf = waiter_ == nullptr && (unwatched_ || !nested_ready_.empty());
    if (deaf) return std::min(deadline, Now() + std::chrono::milliseconds(5));
    if (waiter_ == nullptr && !edges_.empty()) deadline = std::min(deadline, Waiter::LookAgainWithout());
    return shared_ ? std::min(deadline, Now() + std::chrono::milliseconds(32)) : deadline;
  }

  struct Seen {
    StreamSocket* socket;  // kept alive by its Part
    uint64_t read_edge;
    uint64_t write_edge;
    StreamSocket::State state;
  };

  pollfd* const fds_;
  const size_t count_;
  absl::InlinedVector<pollfd, 16> kernel_;
  absl::InlinedVector<Part, 16> parts_;
  absl::InlinedVector<Seen, 16> edges_;
  absl::InlinedVector<size_t, 4> nested_ready_;
  absl::InlinedVector<WatchedSet, 2> watched_sets_;
  absl::InlinedVector<PlainSleep, 2> plain_sleeps_;  // for epoll descriptors without a set
  DeviceLook look_;
  Time slept_at_{};
  Waiter* waiter_ = nullptr;
  bool registered_ = false;
  bool woken_by_device_ = false;  // the last sleep, by what is waited for
  bool unwatched_ = false;
  bool shared_ = false;
};

}  // namespace

bool PollConcernsUs(const pollfd* fds, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].fd >= 0 && FdTable::Has(fds[i].fd)) return true;
  }
  if (!HaveEpollSets() && !EpollNumbers::Any()) return false;
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].fd >= 0 && MayBeEpoll(fds[i].fd)) return true;
  }
  return false;
}

namespace {

// The kernel's answer where epoll descriptors without a set are all that concerns us; nothing if there is
// more, or a set has come meanwhile. No allocation: the process may have no TCP sockets.
template <typename IsOurs, typename Wait>
std::optional<int> WaitWithoutSets(int count, IsOurs is_ours, Wait wait) {
  if (HaveEpollSets()) return std::nullopt;
  for (int i = 0; i < count; ++i) {
    if (is_ours(i)) return std::nullopt;
  }
  int result;
  {
    const PlainSleep sleep;
    if (HaveEpollSets()) return std::nullopt;
    result = wait();
  }
  if (result >= 0 && HaveEpollSets()) return std::nullopt;
  return result;
}

}  // namespace

// The kernel takes no more entries than a process may have descriptors. No limit is so low that short calls
// would have to ask for it.
bool TooMany(nfds_t count) {
  constexpr nfds_t kNeverTooMany = 16;
  rlimit limit{};
  return count > kNeverTooMany && !Confined() && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         count > limit.rlim_cur;
}

int Poll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (TooMany(count)) {
    errno = EINVAL;
    return -1;
  }
  const Time deadline = DeadlineAfter(timeout);
  const auto plain = WaitWithoutSets(
      static_cast<int>(count), [&](int i) { return fds[i].fd >= 0 && FdTable::Has(fds[i].fd); },
      [&] {
        return Confined() ? UnboundedPoll(fds, count, timeout, mask) : real.ppoll(fds, count, timeout, mask);
      });
  if (plain) return *plain;
  pthread_testcancel();
  const CancelledInSleepsOnly whole;
  return PollCall(fds, count).Run(deadline, mask);
}

namespace {

// What select is passed is as long as `count` says, in whole words, be that less than an fd_set (libev) or
// more.
class SelectSet {
 public:
  explicit SelectSet(fd_set* set) : words_(reinterpret_cast<Word*>(set)) {}
  explicit SelectSet(const fd_set* set) : SelectSet(const_cast<fd_set*>(set)) {}
  // To be as `other` is for numbers below `count`.
  void Assign(const SelectSet& other, int count) {
    if (count > 0) std::copy_n(other.words_, (count + kBits - 1) / kBits, words_);
  }
  [[nodiscard]] bool Has(int fd) const { return words_ != nullptr && (words_[fd / kBits] & Bit(fd)) != 0; }
  void Add(int fd) { words_[fd / kBits] |= Bit(fd); }
  void Clear(int count) {
    if (words_ != nullptr && count > 0) std::fill_n(words_, (count + kBits - 1) / kBits, Word{0});
  }

 private:
  using Word = unsigned long;  // the kernel's
  static constexpr int kBits = 8 * sizeof(Word);
  static Word Bit(int fd) { return Word{1} << (fd % kBits); }

  Word* const words_;
};

std::optional<int> SelectWithoutSets(int count, const std::array<fd_set*, 3>& sets, const timespec* timeout,
                                     const sigset_t* mask) {
  if (count > FD_SETSIZE) return std::nullopt;
  std::array<fd_set, 3> asked;  // what the kernel has answered may have to be asked again
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i] != nullptr) SelectSet(&asked[i]).Assign(SelectSet(sets[i]), count);
  }
  const auto is_ours = [&](int fd) {
    return FdTable::Has(fd) &&
           std::any_of(sets.begin(), sets.end(), [fd](fd_set* set) { return SelectSet(set).Has(fd); });
  };
  const auto result = WaitWithoutSets(
      count, is_ours, [&] { return real.pselect(count, sets[0], sets[1], sets[2], timeout, mask); });
  for (size_t i = 0; i < sets.size() && !result; ++i) {
    if (sets[i] != nullptr) SelectSet(sets[i]).Assign(SelectSet(&asked[i]), count);
  }
  return result;
}

}  // namespace

bool SelectConcernsUs(int count, const fd_set* read, const fd_set* write, const fd_set* except) {
  const SelectSet sets[] = {SelectSet(read), SelectSet(write), SelectSet(except)};
  for (int fd = 0; fd < count; ++fd) {
    const bool asked = sets[0].Has(fd) || sets[1].Has(fd) || sets[2].Has(fd);
    if (asked && (FdTable::Has(fd) || MayBeEpoll(fd))) return true;
  }
  return false;
}

int Select(int count, fd_set* read_set, fd_set* write_set, fd_set* except_set, const timespec* timeout,
           const sigset_t* mask, timespec* remaining) {
  const Time deadline = DeadlineAfter(timeout);
  SelectSet read(read_set);
  SelectSet write(write_set);
  SelectSet except(except_set);
  if (const auto plain = SelectWithoutSets(count, {read_set, write_set, except_set}, timeout, mask)) {
    if (remaining != nullptr && deadline != kNever) Remaining(deadline, remaining);
    return *plain;
  }
  pthread_testcancel();
  const CancelledInSleepsOnly whole;
  absl::InlinedVector<pollfd, 16> fds;
  for (int fd = 0; fd < count; ++fd) {
    short events = 0;
    if (read.Has(fd)) events |= POLLIN;
    if (write.Has(fd)) events |= POLLOUT;
    if (except.Has(fd)) events |= POLLPRI;
    if (events != 0) fds.push_back({.fd = fd, .events = events, .revents = 0});
  }
  int result;
  for (;;) {
    result = PollCall(fds.data(), fds.size()).Run(deadline, mask);
    if (result < 0) return -1;
    for (const pollfd& p : fds) {
      if ((p.revents & POLLNVAL) != 0) {
        errno = EBADF;
        return -1;
      }
    }
    // POLLHUP and POLLERR are not select's: they make a side ready that was asked for (as the kernel maps
    // them), or nothing.
    result = 0;
    for (pollfd& p : fds) {
      constexpr short kRead = POLLIN | POLLRDNORM | POLLHUP | POLLERR;
      constexpr short kWrite = POLLOUT | POLLWRNORM | POLLERR;
      const bool r = (p.events & POLLIN) != 0 && (p.revents & kRead) != 0;
      const bool w = (p.events & POLLOUT) != 0 && (p.revents & kWrite) != 0;
      const bool e = (p.events & POLLPRI) != 0 && (p.revents & POLLPRI) != 0;
      p.revents = static_cast<short>((r ? POLLIN : 0) | (w ? POLLOUT : 0) | (e ? POLLPRI : 0));
      result += r + w + e;
    }
    if (result > 0 || Now() >= deadline) break;
    // Only a hang-up nobody asked for: sleep on without its descriptor, which can say no more.
    fds.erase(std::remove_if(fds.begin(), fds.end(),
                             [](const pollfd& p) { return (p.events & (POLLIN | POLLOUT)) == 0; }),
              fds.end());
  }
  for (SelectSet* set : {&read, &write, &except}) set->Clear(count);
  for (const pollfd& p : fds) {
    if ((p.revents & POLLIN) != 0) read.Add(p.fd);
    if ((p.revents & POLLOUT) != 0) write.Add(p.fd);
    if ((p.revents & POLLPRI) != 0) except.Add(p.fd);
  }
  if (remaining != nullptr && deadline != kNever) Remaining(deadline, remaining);
  return result;
}

}  // namespace sdp::preload
