#include "preload/unbounded_poll.h"

#include <sys/select.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <vector>

#include "preload/allowed_calls.h"
#include "preload/link_calls.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

constexpr size_t kBits = sizeof(fd_mask) * CHAR_BIT;

// A set for descriptors of any number.
class Set {
 public:
  explicit Set(size_t numbers) : words_((numbers + kBits - 1) / kBits) {}
  void Add(int fd) { words_[static_cast<size_t>(fd) / kBits] |= Bit(fd); }
  bool Has(int fd) const { return (words_[static_cast<size_t>(fd) / kBits] & Bit(fd)) != 0; }
  fd_set* get() { return reinterpret_cast<fd_set*>(words_.data()); }

 private:
  static fd_mask Bit(int fd) { return static_cast<fd_mask>(1UL << (static_cast<size_t>(fd) % kBits)); }
  std::vector<fd_mask> words_;
};

int Select(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  int end = 1;
  for (nfds_t i = 0; i < count; ++i) end = std::max(end, fds[i].fd + 1);
  Set in(static_cast<size_t>(end)), out(static_cast<size_t>(end)), urgent(static_cast<size_t>(end));
  for (nfds_t i = 0; i < count; ++i) {
    fds[i].revents = 0;
    if (fds[i].fd < 0) continue;
    if ((fds[i].events & (POLLIN | POLLRDNORM | POLLRDHUP)) != 0) in.Add(fds[i].fd);
    if ((fds[i].events & (POLLOUT | POLLWRNORM)) != 0) out.Add(fds[i].fd);
    if ((fds[i].events & POLLPRI) != 0) urgent.Add(fds[i].fd);
  }
  if (real.pselect(end, in.get(), out.get(), urgent.get(), timeout, mask) < 0) return -1;
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].fd < 0) continue;
    const int events = (in.Has(fds[i].fd) ? POLLIN | POLLRDNORM : 0) |
                       (out.Has(fds[i].fd) ? POLLOUT | POLLWRNORM : 0) |
                       (urgent.Has(fds[i].fd) ? POLLPRI : 0);
    fds[i].revents = static_cast<short>(events & fds[i].events);
    if (fds[i].revents != 0) ++ready;
  }
  return ready;
}

// For a process that may make no such call: sleeps a little, and reports all as ready.
int SleepABit(pollfd* fds, nfds_t count, const timespec* timeout) {
  constexpr timespec kBit{.tv_sec = 0, .tv_nsec = 1'000'000};
  const timespec pause =
      timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec < kBit.tv_nsec ? *timeout : kBit;
  if (MayCall(Call::kSleep)) nanosleep(&pause, nullptr);
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    fds[i].revents = fds[i].fd >= 0 ? fds[i].events : static_cast<short>(0);
    if (fds[i].revents != 0) ++ready;
  }
  return ready;
}

}  // namespace

int UnboundedPoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  const bool by_ppoll = MayCall(Call::kPpoll);
  const bool by_poll = !by_ppoll && mask == nullptr && MayCall(Call::kPoll);
  if (!by_ppoll && !by_poll)
    return MayCall(Call::kSelect) ? Select(fds, count, timeout, mask) : SleepABit(fds, count, timeout);
  const int result =
      by_poll ? real.poll(fds, count, ToMilliseconds(timeout)) : real.ppoll(fds, count, timeout, mask);
  return result < 0 && errno == EINVAL ? Select(fds, count, timeout, mask) : result;
}

void Pause(Duration duration) {
  const timespec pause{.tv_sec = 0, .tv_nsec = duration.count()};
  (void)UnboundedPoll(nullptr, 0, &pause, nullptr);
}

}  // namespace sdp::preload
