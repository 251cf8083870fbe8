#include "preload/readiness/device_spin.h"

#include <sys/epoll.h>

#include <optional>

#include "preload/socket/clock.h"
#include "preload/socket/watch.h"

namespace sdp::preload {

void DeviceSpin::Prepare() {
  for (Device& device : devices_) {
    StreamSocket& stream = Stream(device.socket);
    const Watch::Readiness readiness = Watch(stream).GetReadiness();
    device.read_edge = readiness.read_edge;
    device.write_edge = readiness.write_edge;
    if (!readiness.device) continue;
    look_.Add(&stream, readiness.look,
              {.events = static_cast<short>(device.events | EPOLLERR | EPOLLHUP),
               .edges = (device.events & EPOLLET) != 0,
               .read_edge = device.read_edge,
               .write_edge = device.write_edge});
  }
}

DeviceLook::Outcome DeviceSpin::Look(LookTurn& turn, Time deadline, bool other_ready, const sigset_t* mask) {
  const Time now = Now();
  const Time until = now + look_.budget();
  looked_ = turn.Take(now, until);
  const DeviceLook::Outcome outcome = look_.Run(deadline, other_ready || !looked_, mask);
  if (looked_) turn.GiveBack(until);
  return outcome;
}

void DeviceSpin::FallAsleep(Time deadline) {
  if (!look_.any()) return;
  began_ = Now();
  asleep_ = began_ < deadline;
}

void DeviceSpin::WakeUp() {
  if (!asleep_) return;
  const Duration lasted = Now() - began_;
  bool any = false;
  for (Device& device : devices_) {
    const Watch::Readiness now = Watch(Stream(device.socket)).GetReadiness();
    const bool read = now.read_edge != device.read_edge && (device.events & EPOLLIN) != 0;
    const bool write = now.write_edge != device.write_edge && (device.events & EPOLLOUT) != 0;
    device.came = read || write;
    any = any || device.came;
  }
  using WokenBy = Watch::WokenBy;
  for (const Device& device : devices_) {
    StreamSocket& stream = Stream(device.socket);
    const WokenBy by = device.came ? WokenBy::kThis : any ? WokenBy::kAnother : WokenBy::kNeither;
    Watch(stream).NoteSlept(looked_ ? std::optional(lasted) : std::nullopt, by);
  }
}

}  // namespace sdp::preload
