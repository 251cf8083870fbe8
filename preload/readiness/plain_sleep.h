// Calls that sleep in the kernel for an epoll descriptor which has no EpollSet yet. One that comes meanwhile
// has to wake them: its links do, but not what is there already or what another thread's call brings about.
#ifndef SDP_PRELOAD_READINESS_PLAIN_SLEEP_H_
#define SDP_PRELOAD_READINESS_PLAIN_SLEEP_H_

#include <atomic>
#include <cstdint>

namespace sdp::preload {

// Which numbers are epoll descriptors, and which of them are duplicates of one another: those have one group,
// a number from 1 on. By what epoll_create and dup have said, so a descriptor from elsewhere (exec, a
// message, a system call past the C library) has none. A number closed behind our back keeps its group until
// it is given out again. No lock, no system call, no allocation, also before the first socket.
class EpollNumbers {
 public:
  static void Created(int epfd);
  static void Duplicated(int from, int to);
  static void Closed(int fd);
  // 0: not known to be an epoll descriptor.
  static uint32_t GroupOf(int fd);
  static bool AreDuplicates(int one, int other);
  // Another number of its group, -1 if there is none. A walk through all numbers.
  static int AnotherOf(int fd);
  // Any was created in this process.
  static bool Any();
};

// The calling thread is about to sleep for `epfd`. It must look for a set after this: one that comes later
// sees the sleeper.
class PlainSleep {
 public:
  explicit PlainSleep(int epfd);
  PlainSleep();   // for several, of any groups
  ~PlainSleep();  // also when the thread is cancelled
  PlainSleep(PlainSleep&& other) noexcept : sleepers_(other.sleepers_) { other.sleepers_ = nullptr; }
  PlainSleep& operator=(PlainSleep&&) = delete;

  // Somebody may sleep for a descriptor of the group (roughly: it may be another's).
  static bool Any(uint32_t group);
  // In the child of a fork: they were the parent's.
  static void ForgetAll();

 private:
  std::atomic<int>* sleepers_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_PLAIN_SLEEP_H_
