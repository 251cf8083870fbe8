// Descriptors kept in reserve by a process with an epoll descriptor and a stream socket. Its first SDP socket
// can then be registered even when no descriptor is left: event loops of servers abort when epoll_ctl fails.
// Lock-free.
#ifndef SDP_PRELOAD_SPARE_DESCRIPTORS_H_
#define SDP_PRELOAD_SPARE_DESCRIPTORS_H_

#include <atomic>
#include <cstdint>

namespace sdp::preload {

class SpareDescriptors {
 public:
  // The process has an epoll descriptor, or a stream socket. With both it takes spare descriptors, if its
  // limit is high enough. Keep errno.
  static void NoteEpoll() { Note(kEpoll); }
  static void NoteSocket() { Note(kSocket); }
  // Closes the spare descriptors. Returns false if there are none.
  static bool GiveUp();

 private:
  enum Has : uint8_t { kEpoll = 1, kSocket = 2 };
  static void Note(Has what) {
    const uint8_t before = has_.load(std::memory_order_relaxed);
    if ((before & what) != 0) [[likely]]
      return;
    if ((has_.fetch_or(what, std::memory_order_relaxed) | what) == (kEpoll | kSocket)) Keep();
  }
  static void Keep();
  static std::atomic<uint8_t> has_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SPARE_DESCRIPTORS_H_
