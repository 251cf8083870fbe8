// The calls that wait. Every time-out becomes a relative timespec, as the readiness room takes it. In a
// process without managed sockets the calls go straight to the kernel.
#include <algorithm>
#include <bit>
#include <new>

#include "preload/entry_points.h"
#include "preload/hidden_fds.h"
#include "preload/link_calls.h"
#include "preload/readiness/readiness.h"
#include "preload/startup.h"
#include "preload/unbounded_poll.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

constexpr long kSecond = 1'000'000'000;
constexpr nfds_t kMostPolled = 1 << 30;  // more than any process may have
constexpr Duration kRestWithoutMemory = std::chrono::milliseconds(1);
constexpr size_t kWordBits = 8 * sizeof(fd_mask);

// A time-out in milliseconds; a negative one means for ever.
class Milliseconds {
 public:
  explicit Milliseconds(int timeout)
      : forever_(timeout < 0), value_{.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1'000'000L} {}
  const timespec* get() const { return forever_ ? nullptr : &value_; }

 private:
  const bool forever_;
  const timespec value_;
};

// Returns 0 or an errno.
int CheckTime(const timespec* time) {
  if (time == nullptr) return 0;
  if (!MayRead(time, sizeof *time)) return EFAULT;
  return time->tv_sec >= 0 && time->tv_nsec >= 0 && time->tv_nsec < kSecond ? 0 : EINVAL;
}

// Even before the first managed socket: an EpollSet may come while the call sleeps.
bool MayConcernUs() { return Started() || HaveEpolls(); }

// A call with memory that is not there goes to the kernel, which returns the error.
bool ConcernsUs(pollfd* fds, nfds_t count) {
  return MayConcernUs() && count <= kMostPolled && MayWrite(fds, count * sizeof *fds) &&
         PollConcernsUs(fds, count);
}

bool ConcernsUs(int count, fd_set* read, fd_set* write, fd_set* except) {
  if (!MayConcernUs() || count <= 0) return false;
  const size_t size = (static_cast<size_t>(count) + kWordBits - 1) / kWordBits * sizeof(fd_mask);
  for (fd_set* const set : {read, write, except}) {
    if (set != nullptr && !MayWrite(set, size)) return false;
  }
  return SelectConcernsUs(count, read, write, except);
}

// Returns how many numbers select would look at without the library. Programs pass the highest possible
// number, getdtablesize(), with shorter sets. The kernel looks no further than its table of the process's
// descriptors, which our hidden descriptors have enlarged. Without them the table would have the smallest
// power of two with room for the program's descriptors. Closed numbers in it are EBADF.
int SeenBySelect(int count) {
  if (count <= FD_SETSIZE || !MayConcernUs()) [[likely]]
    return count;
  const auto numbers = static_cast<unsigned>(HiddenFds::HighestOther(count) + 1);
  const unsigned table = std::bit_ceil(std::max<unsigned>(numbers, FD_SETSIZE));
  return static_cast<int>(std::min(static_cast<unsigned>(count), table));
}

// Fails with ENOMEM, a documented error of poll, select and epoll_ctl, if memory runs out.
template <typename Call>
int UnlessShortOfMemory(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Fail(ENOMEM);
  }
}

// `wait()` is the program's unchanged call.
int WaitFor(EpollCall call, int epfd, epoll_event* events, int max_events, const timespec* timeout,
            const sigset_t* mask, absl::FunctionRef<int()> wait) {
  programs_epoll_call = call;
  if (Started()) {
    const int result =
        UnlessShortOfMemory([&] { return EpollWait(epfd, events, max_events, timeout, mask); });
    if (result < 0 && errno == ENOMEM) [[unlikely]] {
      // The kernel's wait takes no memory, and some programs end by an error that it does not have.
      Pause(kRestWithoutMemory);
      return Fail(EINTR);
    }
    return result != kPassThrough ? result : wait();
  }
  return EpollWaitBeforeSockets(epfd, events, max_events, timeout, mask, wait);
}

int NoteCreated(int epfd) {
  Fresh(epfd);
  EpollCreated(epfd);
  return epfd;
}

}  // namespace

int SDP_ENTRY(poll)(pollfd* fds, nfds_t count, int timeout) {
  if (!ConcernsUs(fds, count)) return real.poll(fds, count, timeout);
  return UnlessShortOfMemory([&] { return Poll(fds, count, Milliseconds(timeout).get(), nullptr); });
}

int SDP_ENTRY(ppoll)(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!ConcernsUs(fds, count)) return real.ppoll(fds, count, timeout, mask);
  if (const int error = CheckTime(timeout); error != 0) return Fail(error);
  return UnlessShortOfMemory([&] { return Poll(fds, count, timeout, mask); });
}

int SDP_ENTRY(select)(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  count = SeenBySelect(count);
  if (!ConcernsUs(count, read, write, except)) return real.select(count, read, write, except, timeout);
  if (timeout == nullptr)
    return UnlessShortOfMemory([&] { return Select(count, read, write, except, nullptr, nullptr, nullptr); });
  if (!MayRead(timeout, sizeof *timeout)) return Fail(EFAULT);
  if (timeout->tv_sec < 0 || timeout->tv_usec < 0) return Fail(EINVAL);
  const timespec wait = {.tv_sec = timeout->tv_sec + timeout->tv_usec / 1'000'000,
                         .tv_nsec = timeout->tv_usec % 1'000'000 * 1000};
  timespec remaining = wait;
  const int result =
      UnlessShortOfMemory([&] { return Select(count, read, write, except, &wait, nullptr, &remaining); });
  // Linux writes back the remaining time, even after an interruption.
  const timeval left = {.tv_sec = remaining.tv_sec, .tv_usec = remaining.tv_nsec / 1000};
  if (MayWrite(timeout, sizeof *timeout)) *timeout = left;
  return result;
}

int SDP_ENTRY(pselect)(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
                       const sigset_t* mask) {
  count = SeenBySelect(count);
  if (!ConcernsUs(count, read, write, except)) return real.pselect(count, read, write, except, timeout, mask);
  if (const int error = CheckTime(timeout); error != 0) return Fail(error);
  return UnlessShortOfMemory([&] { return Select(count, read, write, except, timeout, mask, nullptr); });
}

int SDP_ENTRY(epoll_create)(int size) noexcept { return NoteCreated(real.epoll_create(size)); }

int SDP_ENTRY(epoll_create1)(int flags) noexcept { return NoteCreated(real.epoll_create1(flags)); }

int SDP_ENTRY(epoll_ctl)(int epfd, int operation, int fd, epoll_event* event) noexcept {
  if (Started() || EpollKnows(fd)) {
    const NoCancellation no_cancellation;
    const int result = UnlessShortOfMemory([&] { return EpollCtl(epfd, operation, fd, event); });
    if (result != kPassThrough) return result;
  }
  return real.epoll_ctl(epfd, operation, fd, event);
}

int SDP_ENTRY(epoll_wait)(int epfd, epoll_event* events, int max_events, int timeout) {
  return WaitFor(EpollCall::kWait, epfd, events, max_events, Milliseconds(timeout).get(), nullptr,
                 [&] { return real.epoll_wait(epfd, events, max_events, timeout); });
}

int SDP_ENTRY(epoll_pwait)(int epfd, epoll_event* events, int max_events, int timeout, const sigset_t* mask) {
  return WaitFor(EpollCall::kPwait, epfd, events, max_events, Milliseconds(timeout).get(), mask,
                 [&] { return real.epoll_pwait(epfd, events, max_events, timeout, mask); });
}

int SDP_ENTRY(epoll_pwait2)(int epfd, epoll_event* events, int max_events, const timespec* timeout,
                            const sigset_t* mask) {
  if (CheckTime(timeout) != 0) return real.epoll_pwait2(epfd, events, max_events, timeout, mask);
  return WaitFor(EpollCall::kPwait2, epfd, events, max_events, timeout, mask,
                 [&] { return real.epoll_pwait2(epfd, events, max_events, timeout, mask); });
}

int SDP_ENTRY(__poll_chk)(pollfd* fds, nfds_t count, int timeout, size_t room) {
  if (room / sizeof(pollfd) < count) __chk_fail();
  return SDP_ENTRY(poll)(fds, count, timeout);
}

int SDP_ENTRY(__ppoll_chk)(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
                           size_t room) {
  if (room / sizeof(pollfd) < count) __chk_fail();
  return SDP_ENTRY(ppoll)(fds, count, timeout, mask);
}

SDP_ENTRY_ALIAS(__poll, poll);
SDP_ENTRY_ALIAS(__select, select);

}  // namespace sdp::preload
