// What one connection has of the RDMA libraries: an id with its event channel, a protection domain,
// completion queues, a queue pair; and the one descriptor whose readiness stands for all of them. Freed in
// the order the libraries demand.
#ifndef SDP_VERBS_IBV_IBV_RESOURCES_H_
#define SDP_VERBS_IBV_IBV_RESOURCES_H_

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/base/types.h"
#include "verbs/ibv/ibv_api.h"
#include "verbs/ibv/ibv_device.h"

namespace sdp::ibv {

// Page-aligned memory that the device may reach.
class RegisteredMemory {
 public:
  // Null when there is no memory, or the limit on locked memory (RLIMIT_MEMLOCK) is too small; errno tells.
  static std::unique_ptr<RegisteredMemory> Make(const Api& api, ibv_pd* pd, size_t size, int access);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] uint32_t key() const { return mr_->lkey; }

 private:
  RegisteredMemory(const Api& api, std::byte* data, size_t size) : api_(api), data_(data), size_(size) {}

  const Api& api_;
  std::byte* const data_;
  const size_t size_;
  ibv_mr* mr_ = nullptr;
};

// The one descriptor that all of a connection is waited for by: an epoll, protected from the application. A
// connection that goes on as another one keeps it.
class EventDescriptor {
 public:
  // Null: no descriptor was left, errno tells.
  static std::shared_ptr<EventDescriptor> Make();
  ~EventDescriptor();
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  explicit EventDescriptor(int fd) : fd_(fd) {}

  const int fd_;
};

// What the process may pin (RLIMIT_MEMLOCK), in bytes; UINT64_MAX: as much as it likes.
uint64_t LockableMemory();
// Whether TCP sends pages that siw gives it from where they lie (MSG_SPLICE_PAGES, Linux 6.5). Where it does
// not, siw may still give it a Send page by page, as Debian's 6.1 does, and each is copied in a call of its
// own: several times as slow as a copy of the whole.
bool KernelSendsPages();

// Queue depths, within what the device has.
struct Depths {
  uint32_t sends = 0;
  uint32_t receives = 0;
  uint32_t inline_bytes = 0;
};

class Resources {
 public:
  // `events`: of the connection before; else one is made.
  explicit Resources(const Api& api, std::shared_ptr<EventDescriptor> events = nullptr)
      : api(api), events_(std::move(events)) {}
  ~Resources();
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;

  // The event channel and the descriptor to wait on. False: failure().
  bool Open();
  // An id of its own on the channel, in place of what it had.
  bool MakeId();
  // Takes over an id that a listener's channel brought.
  bool AdoptId(rdma_cm_id* accepted);
  // For an id that has a device.
  bool MakeQueuePair(const Depths& wanted);
  // Another look at the number of CM events: null if there is none now. To be acknowledged by
  // api.rdma_ack_cm_event.
  rdma_cm_event* NextCmEvent() const;
  [[nodiscard]] const std::shared_ptr<EventDescriptor>& events() const { return events_; }
  // What made event_fd readable. The device's own events are taken here.
  struct Woken {
    bool connection_manager = false;
    bool completions = false;
  };
  Woken Look();
  // An event of the device's has ended this connection: one line; else null.
  [[nodiscard]] const char* device_failure() const { return watch_.failed() ? watch_.why() : nullptr; }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  bool Fail(const char* what);

  const Api& api;
  rdma_event_channel* channel = nullptr;
  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* completions = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  int event_fd = -1;
  Depths depths{};
  uint64_t lockable = LockableMemory();  // bytes
  bool sends_pages = KernelSendsPages();
  // The device tells who waits for solicited Sends of those.
  bool tells_solicited = true;

 private:
  // The descriptor is protected from the application, does not block, and is among those that event_fd stands
  // for.
  bool Watch(int* fd);
  bool WatchDevice();
  bool AddToEpoll(int fd, uint32_t events);

  std::shared_ptr<EventDescriptor> events_;
  std::vector<int> watched_;  // what event_fd stands for
  Device* device_ = nullptr;
  DeviceWatch watch_;
  std::string failure_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_RESOURCES_H_
