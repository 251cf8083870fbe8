// How threads and other sets hear of what an epoll set has to report: by an eventfd in the set's inner epoll.
// A kick costs a system call, so it is given only while a thread sleeps in the kernel for the set, or another
// set is around it.
#ifndef SDP_PRELOAD_READINESS_KICK_H_
#define SDP_PRELOAD_READINESS_KICK_H_

#include <atomic>
#include <cstdint>

namespace sdp::preload {

class Kick {
 public:
  // For an epoll descriptor of this group (plain_sleep.h). False with errno: no descriptor is left.
  bool Open(uint32_t group);
  void Close();
  [[nodiscard]] int fd() const { return fd_.load(); }

  // While a thread sleeps for the set.
  void AddSleeper() { sleepers_.fetch_add(1); }
  void RemoveSleeper() { sleepers_.fetch_sub(1); }
  // The set is, or may be, in another one.
  void SetNested() { nested_ = true; }
  [[nodiscard]] bool nested() const { return nested_.load(); }
  // A thread or another set would hear of a kick.
  [[nodiscard]] bool heard() const;

  // Wakes the threads that sleep in the kernel for the set. Keeps errno.
  void Give();
  void Take();
  // It is given, and not taken yet.
  [[nodiscard]] bool given() const;

 private:
  std::atomic<int> fd_{-1};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> nested_{false};
  uint32_t group_ = 0;
};

// Counts the calling thread as a sleeper; also where the thread is cancelled.
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
