// Tells sleeping threads and outer sets that an epoll set has something to report, through an eventfd in the
// set's inner epoll. A kick costs a system call. So Kick makes it only while a thread sleeps in the kernel
// for the set, or while another set contains it. Give() needs the set's lock.
#ifndef SDP_PRELOAD_READINESS_KICK_H_
#define SDP_PRELOAD_READINESS_KICK_H_

#include <atomic>
#include <cstdint>

namespace sdp::preload {

class Kick {
 public:
  // Opens the eventfd for an epoll descriptor of this group (plain_sleep.h). Returns false with errno if no
  // descriptor is left.
  bool Open(uint32_t group);
  void Close();
  [[nodiscard]] int fd() const { return fd_.load(); }

  // Call around a sleep for the set.
  void AddSleeper() { sleepers_.fetch_add(1); }
  void RemoveSleeper() { sleepers_.fetch_sub(1); }
  // The set is, or may be, inside another set.
  void SetNested() { nested_ = true; }
  [[nodiscard]] bool nested() const { return nested_.load(); }
  // Returns whether a thread or an outer set would notice a kick.
  [[nodiscard]] bool heard() const;

  // Wakes the threads that sleep in the kernel for the set. Keeps errno.
  void Give();
  void Take();
  // Returns whether a kick was given that no thread has taken yet.
  [[nodiscard]] bool given() const;

 private:
  std::atomic<int> fd_{-1};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> nested_{false};
  uint32_t group_ = 0;
};

// Counts the calling thread as a sleeper. The count is also undone when the thread is cancelled.
class CountedSleeper {
 public:
  explicit CountedSleeper(Kick& kick) : kick_(kick) { kick_.AddSleeper(); }
  ~CountedSleeper() { kick_.RemoveSleeper(); }
  CountedSleeper(const CountedSleeper&) = delete;
  CountedSleeper& operator=(const CountedSleeper&) = delete;

 private:
  Kick& kick_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_KICK_H_
