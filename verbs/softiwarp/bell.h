// Bells: how the peer of a local link wakes a thread, or an epoll set, that sleeps for it. A doorbell on the
// TCP connection goes through the kernel's whole TCP; a bell takes two thirds of that time. A thread that
// sleeps for one link alone is woken by a futex in the ring's control (local/ring.h), in less than half of
// it.
//
// A bell is a Unix datagram socket under a random abstract name. A thread or an epoll set has one, whatever
// the number of its links. Before it sleeps it writes the name, and a cookie that means the link to it, into
// the ring's control (local/ring.h). The peer sends the cookie to that name. A connection needs no descriptor
// of its own for that, and no set-up.
//
// Names can be seen in /proc/net/unix, so a stranger may ring. Then the sleeper looks at its links in vain.
#ifndef SDP_VERBS_SOFTIWARP_BELL_H_
#define SDP_VERBS_SOFTIWARP_BELL_H_

#include <atomic>
#include <cstdint>
#include <span>

#include "verbs/abilities.h"

namespace sdp::iwarp {

class Bell {
 public:
  Bell() = default;
  ~Bell() { Close(); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  // Makes the socket, if there is none yet. Returns false if no descriptor is left. Keeps errno.
  bool Open();
  void Close();
  // Returns the descriptor that is readable when the bell was rung, or -1. The bell owns it.
  [[nodiscard]] int fd() const { return fd_.load(std::memory_order_relaxed); }
  // Needs Open().
  [[nodiscard]] const verbs::BellName& name() const { return name_; }
  // Takes what the bell was rung with, and returns how many of `cookies` that was. Any value may come. Never
  // blocks, and keeps errno.
  static constexpr size_t kMostAtOnce = 8;
  size_t Take(std::span<uint64_t, kMostAtOnce> cookies);

 private:
  std::atomic<int> fd_{-1};
  verbs::BellName name_;
};

// Rings the bell `name` with `cookie`. Returns false if no socket has that name, or its queue is full. Then
// the caller wakes the sleeper in another way. Never blocks, and keeps errno.
bool RingBell(const verbs::BellName& name, uint64_t cookie);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_BELL_H_
