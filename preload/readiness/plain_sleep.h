// Counts the calls that sleep in the kernel for an epoll descriptor without an EpollSet. A set that is made
// meanwhile has to wake them: its links do, but readiness that exists already, or that another thread's call
// brings about, does not. This part takes no lock.
#ifndef SDP_PRELOAD_READINESS_PLAIN_SLEEP_H_
#define SDP_PRELOAD_READINESS_PLAIN_SLEEP_H_

#include <atomic>
#include <cstdint>

namespace sdp::preload {

// Knows which numbers are epoll descriptors, and which of them are duplicates of one another: duplicates
// share a group, numbered from 1. The information comes from epoll_create and dup, so a descriptor from
// elsewhere (exec, a message, a raw system call) has no group. A number that was closed without the library's
// knowledge keeps its group until the kernel hands it out again. No lock, no system call and no allocation,
// even before the first socket.
class EpollNumbers {
 public:
  static void Created(int epfd);
  static void Duplicated(int from, int to);
  static void Closed(int fd);
  // Returns 0 if `fd` is not known to be an epoll descriptor.
  static uint32_t GroupOf(int fd);
  static bool AreDuplicates(int one, int other);
  // Returns another number of the same group, or -1. Walks through all numbers.
  static int AnotherOf(int fd);
  // Returns whether this process has created any epoll descriptor.
  static bool Any();
};

// Marks that the calling thread is about to sleep for `epfd`. The thread must look for a set after this: a
// set that comes later sees the sleeper.
class PlainSleep {
 public:
  explicit PlainSleep(int epfd);
  PlainSleep();   // for several descriptors, of any groups
  ~PlainSleep();  // runs also when the thread is cancelled
  PlainSleep(PlainSleep&& other) noexcept : sleepers_(other.sleepers_) { other.sleepers_ = nullptr; }
  PlainSleep& operator=(PlainSleep&&) = delete;

  // Returns whether a thread may be asleep for a descriptor of the group. Roughly: the sleeper may be another
  // group's.
  static bool Any(uint32_t group);
  // Call in the child of a fork: the sleepers were the parent's.
  static void ForgetAll();

 private:
  std::atomic<int>* sleepers_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_PLAIN_SLEEP_H_
