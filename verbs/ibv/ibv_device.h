// What all connections of this process over one RDMA device share: its asynchronous events.
//
// They come by one descriptor of the device's, whomever they concern. Whoever is woken by it takes all of
// them, marks the connections they concern, and rings a bell that every connection's own descriptor listens
// to.
#ifndef SDP_VERBS_IBV_IBV_DEVICE_H_
#define SDP_VERBS_IBV_IBV_DEVICE_H_

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "verbs/ibv/ibv_api.h"

namespace sdp::ibv {

// A connection's place among those that hear of a device's events.
class DeviceWatch {
 public:
  // What the events may name. Null: not made yet.
  ibv_qp* queue_pair = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  uint8_t port = 0;

  // An event has ended the connection. The first one counts.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  // While failed(): one line.
  [[nodiscard]] const char* why() const { return why_; }

 private:
  friend class Device;
  const char* why_ = nullptr;  // written once, before failed_
  std::atomic<bool> failed_{false};
};

class Device {
 public:
  // The one behind `context`, made at the first call; it lives as long as the process. Null: no descriptor
  // was left.
  static Device* Of(const Api& api, ibv_context* context);

  // `watch` is told of events from here on; it lives until Remove, which comes before what it names is
  // destroyed.
  void Add(DeviceWatch* watch);
  void Remove(DeviceWatch* watch);

  // Readable while there are events to take.
  [[nodiscard]] int events_fd() const { return context_->async_fd; }
  // Becomes readable, for edge-triggered watching, each time connections were marked.
  [[nodiscard]] int bell_fd() const { return bell_fd_; }
  // Takes what there is, without blocking. Safe from any thread.
  void TakeEvents();

 private:
  Device(const Api& api, ibv_context* context, int bell_fd)
      : api_(api), context_(context), bell_fd_(bell_fd) {}

  // What the event means for that connection; null: nothing.
  [[nodiscard]] static const char* Meaning(const ibv_async_event& event, const DeviceWatch& watch);

  const Api& api_;
  ibv_context* const context_;
  const int bell_fd_;
  std::mutex mutex_;
  std::vector<DeviceWatch*> watches_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_DEVICE_H_
