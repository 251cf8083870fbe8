// What an epoll set does for sockets over kernel RNICs before and behind a sleep.
#ifndef SDP_PRELOAD_READINESS_EPOLL_SET_LOOK_H_
#define SDP_PRELOAD_READINESS_EPOLL_SET_LOOK_H_

#include "absl/container/inlined_vector.h"
#include "preload/readiness/epoll_set.h"
#include "preload/readiness/look.h"

namespace sdp::preload {

// Of one wait; empty, and for nothing, in a set without such sockets.
struct EpollSet::SleepingDevices {
  struct Device {
    SocketRef socket;
    uint32_t events;     // what the application asked for
    uint64_t read_edge;  // when it was looked at last
    uint64_t write_edge;
  };
  // Around the sleep, which is none if `deadline` has passed.
  void FallAsleep(Time deadline);
  void WakeUp();

  absl::InlinedVector<Device, DeviceLook::kMostSockets> all;
  DeviceLook look;
  Time began{};
  bool asleep = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_EPOLL_SET_LOOK_H_
