#include "verbs/ibv/ibv_device.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "verbs/descriptor_calls.h"

namespace sdp::ibv {
namespace {

struct Devices {
  std::mutex mutex;
  std::vector<std::pair<ibv_context*, Device*>> all;
};

Devices& devices() {
  static Devices* const instance = new Devices;
  return *instance;
}

// Makes system calls, because a preloaded process has other functions under the plain names.
void DoNotBlock(int fd) {
  const long flags = ::syscall(SYS_fcntl, fd, F_GETFL);
  if ((flags & O_NONBLOCK) == 0) ::syscall(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK);
}

}  // namespace

Device* Device::Of(const Api& api, ibv_context* context) {
  std::lock_guard lock(devices().mutex);
  // Repeated at each call: a new context may have the address of one that librdmacm has closed, with its
  // device.
  DoNotBlock(context->async_fd);
  for (const auto& [known, device] : devices().all) {
    if (known == context) return device;
  }
  const int bell = static_cast<int>(::syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (bell < 0) return nullptr;
  auto* const device = new Device(api, context, verbs::descriptor_calls().hide(bell));
  devices().all.emplace_back(context, device);
  return device;
}

void Device::Add(DeviceWatch* watch) {
  std::lock_guard lock(mutex_);
  watches_.push_back(watch);
}

void Device::Remove(DeviceWatch* watch) {
  std::lock_guard lock(mutex_);
  std::erase(watches_, watch);
}

void Device::TakeEvents() {
  bool marked = false;
  std::lock_guard lock(mutex_);
  ibv_async_event event;
  while (api_.ibv_get_async_event(context_, &event) == 0) {
    for (DeviceWatch* watch : watches_) {
      const char* const why = Meaning(event, *watch);
      if (why == nullptr || watch->failed()) continue;
      watch->why_ = why;
      watch->failed_.store(true, std::memory_order_release);
      marked = true;
    }
    // Destroying the object that the event names waits for this acknowledgement.
    api_.ibv_ack_async_event(&event);
  }
  if (!marked) return;
  const uint64_t one = 1;
  (void)!::syscall(SYS_write, bell_fd_, &one, sizeof one);
}

const char* Device::Meaning(const ibv_async_event& event, const DeviceWatch& watch) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
      return event.element.qp == watch.queue_pair ? "the queue pair failed" : nullptr;
    case IBV_EVENT_QP_REQ_ERR:
      return event.element.qp == watch.queue_pair ? "the queue pair met an invalid request" : nullptr;
    case IBV_EVENT_QP_ACCESS_ERR:
      return event.element.qp == watch.queue_pair ? "the queue pair met an access without the right"
                                                  : nullptr;
    case IBV_EVENT_CQ_ERR:
      return event.element.cq == watch.send_cq || event.element.cq == watch.receive_cq
                 ? "a completion queue overran"
                 : nullptr;
    case IBV_EVENT_DEVICE_FATAL:
      return "the RDMA device failed";
    case IBV_EVENT_PORT_ERR:
      return event.element.port_num == watch.port ? "the RDMA device's port went down" : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace sdp::ibv
