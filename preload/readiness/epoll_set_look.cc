#include "preload/readiness/epoll_set_look.h"

#include <algorithm>
#include <utility>

#include "preload/socket/clock.h"

namespace sdp::preload {

// With the lock held: the entry is in the inner epoll by `link_fd`.
void EpollSet::NoteDevice(int fd, Entry& entry, int link_fd) {
  // Only an RNIC of the kernel's has a descriptor of its own for the link.
  if (link_fd < 0 || link_fd == fd || entry.device >= 0) return;
  entry.device = static_cast<int>(devices_.size());
  devices_.push_back(fd);
  device_count_.store(devices_.size(), std::memory_order_relaxed);
}

void EpollSet::ForgetDevice(Entry& entry) {
  if (entry.device < 0) return;
  const size_t place = static_cast<size_t>(std::exchange(entry.device, -1));
  const int last = devices_.back();
  devices_.pop_back();
  if (place < devices_.size()) {
    devices_[place] = last;
    At(last).device = static_cast<int>(place);
  }
  device_count_.store(devices_.size(), std::memory_order_relaxed);
}

void EpollSet::FindDevices(SleepingDevices* out) {
  {
    std::lock_guard lock(mutex_);
    if (devices_.size() > DeviceLook::kMostSockets) return;
    for (const int fd : devices_) {
      Entry* const entry = Find(fd);
      if (entry == nullptr || !entry->armed) continue;
      entry->socket->Ref();
      out->all.push_back({.socket = SocketRef(entry->socket.get()),
                          .events = entry->events,
                          .read_edge = 0,
                          .write_edge = 0,
                          .came = false});
    }
  }
  for (SleepingDevices::Device& device : out->all) {
    auto* const stream = static_cast<StreamSocket*>(device.socket.get());
    const StreamSocket::Readiness readiness = stream->GetReadiness();
    device.read_edge = readiness.read_edge;
    device.write_edge = readiness.write_edge;
    if (!readiness.device) continue;
    out->budget = std::max(out->budget, readiness.look);
    out->look.Add(stream, readiness.look,
                  {.events = static_cast<short>(device.events | EPOLLERR | EPOLLHUP),
                   .edges = (device.events & EPOLLET) != 0,
                   .read_edge = device.read_edge,
                   .write_edge = device.write_edge});
  }
}

// Who does not look asks to be woken, and sleeps: whoever looks may find something, and be away with it for
// long.
DeviceLook::Outcome EpollSet::SleepingDevices::Look(EpollSet& set, Time deadline, bool other_ready,
                                                    const sigset_t* mask) {
  const Time now = Now();
  const Time until = now + budget;
  looked = set.look_turn_.Take(now, until);
  const DeviceLook::Outcome outcome = look.Run(deadline, other_ready || !looked, mask);
  if (looked) set.look_turn_.GiveBack(until);
  return outcome;
}

void EpollSet::SleepingDevices::FallAsleep(Time deadline) {
  if (!look.any()) return;
  began = Now();
  asleep = began < deadline;
}

void EpollSet::SleepingDevices::WakeUp() {
  if (!asleep) return;
  const Duration lasted = Now() - began;
  bool any = false;
  for (Device& device : all) {
    const StreamSocket::Readiness now = static_cast<StreamSocket*>(device.socket.get())->GetReadiness();
    const bool read = now.read_edge != device.read_edge && (device.events & EPOLLIN) != 0;
    const bool write = now.write_edge != device.write_edge && (device.events & EPOLLOUT) != 0;
    device.came = read || write;
    any = any || device.came;
  }
  using WokenBy = StreamSocket::WokenBy;
  for (const Device& device : all) {
    auto* const stream = static_cast<StreamSocket*>(device.socket.get());
    const WokenBy by = device.came ? WokenBy::kThis : any ? WokenBy::kAnother : WokenBy::kNeither;
    looked ? stream->NoteSlept(lasted, by) : stream->NoteSleptUnlooked(by);
  }
}

}  // namespace sdp::preload
