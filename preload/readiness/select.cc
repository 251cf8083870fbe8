// select over SDP sockets and other descriptors. The sets become an array for poll, and the answer becomes
// sets again.
#include <poll.h>
#include <pthread.h>
#include <sys/select.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "absl/container/inlined_vector.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/readiness/poll_call.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

// A set as passed to select: as long as `count` says, in whole words. That may be shorter than an fd_set
// (libev) or longer.
class SelectSet {
 public:
  explicit SelectSet(fd_set* set) : words_(reinterpret_cast<Word*>(set)) {}
  explicit SelectSet(const fd_set* set) : SelectSet(const_cast<fd_set*>(set)) {}
  // Copies `other` for the numbers below `count`.
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
  std::array<fd_set, 3> asked;  // the kernel overwrites the sets, which may be needed again
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
    if (asked && (FdTable::Has(fd) || EpollKnows(fd))) return true;
  }
  return false;
}

namespace {

// Turns poll's answer into select's. select has no POLLHUP and POLLERR: they make a side ready that was asked
// for, as the kernel maps them, or nothing. Returns the number of sides that are ready.
// A descriptor with a hang-up that was not asked for has nothing more to report: its events become 0.
int ReadySides(std::span<pollfd> fds) {
  int result = 0;
  for (pollfd& p : fds) {
    constexpr short kRead = POLLIN | POLLRDNORM | POLLHUP | POLLERR;
    constexpr short kWrite = POLLOUT | POLLWRNORM | POLLERR;
    const bool r = (p.events & POLLIN) != 0 && (p.revents & kRead) != 0;
    const bool w = (p.events & POLLOUT) != 0 && (p.revents & kWrite) != 0;
    const bool e = (p.events & POLLPRI) != 0 && (p.revents & POLLPRI) != 0;
    if (p.revents != 0 && !r && !w && !e) p.events = 0;
    p.revents = static_cast<short>((r ? POLLIN : 0) | (w ? POLLOUT : 0) | (e ? POLLPRI : 0));
    result += r + w + e;
  }
  return result;
}

}  // namespace

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
      if ((p.revents & POLLNVAL) != 0) return Fail(EBADF);
    }
    result = ReadySides(fds);
    if (result > 0 || Now() >= deadline) break;
    fds.erase(std::remove_if(fds.begin(), fds.end(), [](const pollfd& p) { return p.events == 0; }),
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
