// What one wait on an epoll set does for sockets over kernel RNICs. Before its sleep it looks at their
// completion queues; after the sleep it tells them what has ended it. Empty, and for nothing, in a set
// without such sockets.
#ifndef SDP_PRELOAD_READINESS_DEVICE_SPIN_H_
#define SDP_PRELOAD_READINESS_DEVICE_SPIN_H_

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "preload/readiness/look.h"

namespace sdp::preload {

class DeviceSpin {
 public:
  // `events`: what the application asked for.
  void Add(SocketRef socket, uint32_t events) {
    devices_.push_back({.socket = std::move(socket), .events = events});
  }
  // Asks each that was added what it has and how long it wants to be looked at.
  void Prepare();
  [[nodiscard]] bool any() const { return look_.any(); }
  // Before the sleep. Of several threads that wait on the set one looks: `turn` says which. A thread that
  // does not look asks to be woken, and sleeps: the one that looks may find something, and be away with it
  // for long.
  DeviceLook::Outcome Look(LookTurn& turn, Time deadline, bool other_ready, const sigset_t* mask);
  // Around the sleep, which is none if `deadline` has passed.
  void FallAsleep(Time deadline);
  void WakeUp();

 private:
  struct Device {
    SocketRef socket;
    uint32_t events;
    uint64_t read_edge = 0;  // when it was looked at last
    uint64_t write_edge = 0;
    bool came = false;
  };

  absl::InlinedVector<Device, DeviceLook::kMostSockets> devices_;
  DeviceLook look_;
  Duration budget_{};
  bool looked_ = false;
  Time began_{};
  bool asleep_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_DEVICE_SPIN_H_
