// The asynchronous events of one RDMA device, which all its connections in this process share.
//
// All events arrive on one descriptor of the device's, whichever connection they concern. The thread that
// finds it readable takes all events and marks the connections concerned. Then it writes to an eventfd, the
// bell, which every connection's event_fd() watches. A mutex guards the list of connections.
#ifndef SDP_VERBS_IBV_IBV_DEVICE_H_
#define SDP_VERBS_IBV_IBV_DEVICE_H_

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "verbs/ibv/ibv_api.h"

namespace sdp::ibv {

// One connection as Device sees it.
class DeviceWatch {
 public:
  // The objects that an event may name; null if not yet made.
  ibv_qp* queue_pair = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  uint8_t port = 0;

  // Returns true if an event has ended the connection; the first such event counts.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  // If failed(): returns the reason in one line.
  [[nodiscard]] const char* why() const { return why_; }

 private:
  friend class Device;
  const char* why_ = nullptr;  // written once, before failed_
  std::atomic<bool> failed_{false};
};

class Device {
 public:
  // Returns the device of `context`, made at the first call and kept until the process ends; null if no
  // descriptor was left.
  static Device* Of(const Api& api, ibv_context* context);

  // Lets events mark `watch` until Remove(). Call Remove() before the objects that it names are destroyed.
  void Add(DeviceWatch* watch);
  void Remove(DeviceWatch* watch);

  // Readable while there are events to take.
  [[nodiscard]] int events_fd() const { return context_->async_fd; }
  // The bell: becomes readable, for edge-triggered watching, each time connections were marked.
  [[nodiscard]] int bell_fd() const { return bell_fd_; }
  // Takes all pending events, without blocking. Safe from any thread.
  void TakeEvents();

 private:
  Device(const Api& api, ibv_context* context, int bell_fd)
      : api_(api), context_(context), bell_fd_(bell_fd) {}

  // Returns the event's meaning for that connection in one line; null if none.
  [[nodiscard]] static const char* Meaning(const ibv_async_event& event, const DeviceWatch& watch);

  const Api& api_;
  ibv_context* const context_;
  const int bell_fd_;
  std::mutex mutex_;
  std::vector<DeviceWatch*> watches_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_DEVICE_H_
