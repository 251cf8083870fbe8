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
    bool came;
  };
  // Before the sleep.
  DeviceLook::Outcome Look(EpollSet& set, Time deadline, bool other_ready, const sigset_t* mask);
  // Around the sleep, which is none if `deadline` has passed.
  void FallAsleep(Time deadline);
  void WakeUp();

  absl::InlinedVector<Device, DeviceLook::kMostSockets> all;
  DeviceLook look;
  Duration budget{};
  bool looked = false;
  Time began{};
  bool asleep = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_EPOLL_SET_LOOK_H_
