// What one wait on an epoll set does for its sockets over kernel RNICs. Before the wait sleeps it looks at
// their completion queues. After the sleep it tells each socket what ended the sleep. Each wait has its own
// DeviceSpin; in a set without such sockets it is empty and costs nothing.
#ifndef SDP_PRELOAD_READINESS_DEVICE_SPIN_H_
#define SDP_PRELOAD_READINESS_DEVICE_SPIN_H_

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "preload/readiness/look.h"

namespace sdp::preload {

class DeviceSpin {
 public:
  // `events`: the epoll events that the application asked for.
  void Add(SocketRef socket, uint32_t events) {
    devices_.push_back({.socket = std::move(socket), .events = events});
  }
  // Asks each added socket for its readiness and for how long it wants to be looked at.
  void Prepare();
  [[nodiscard]] bool any() const { return look_.any(); }
  // Call before the sleep. If several threads wait on the set, only one looks, and `turn` decides which. A
  // thread that does not look asks to be woken and sleeps: the looking thread may find something and then be
  // busy with it for a long time.
  DeviceLook::Outcome Look(LookTurn& turn, Time deadline, bool other_ready, const sigset_t* mask);
  // Call around the sleep. A wait whose `deadline` has passed does not sleep.
  void FallAsleep(Time deadline);
  void WakeUp();

 private:
  struct Device {
    SocketRef socket;
    uint32_t events;
    uint64_t read_edge = 0;  // edge counts at the last look
    uint64_t write_edge = 0;
    bool came = false;
  };

  absl::InlinedVector<Device, DeviceLook::kMostSockets> devices_;
  DeviceLook look_;
  bool looked_ = false;
  Time began_{};
  bool asleep_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_DEVICE_SPIN_H_
