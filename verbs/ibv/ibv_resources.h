// The objects of the RDMA libraries that one connection owns: an id with its event channel, a protection
// domain, completion queues and a queue pair. One file descriptor's readiness stands for all of them.
// Resources makes these objects, and frees them in the order that the libraries demand.
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
  // Returns null if there is no memory, or if the limit on locked memory (RLIMIT_MEMLOCK) is too small; errno
  // says which.
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

// The one file descriptor that a thread waits on for a connection: an epoll, protected from the application.
// A connection that replaces another one keeps it.
class EventDescriptor {
 public:
  // Returns null if no descriptor was left; errno says why.
  static std::shared_ptr<EventDescriptor> Make();
  ~EventDescriptor();
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  explicit EventDescriptor(int fd) : fd_(fd) {}

  const int fd_;
};

// Returns how many bytes the process may pin (RLIMIT_MEMLOCK); UINT64_MAX means no limit.
uint64_t LockableMemory();
// Returns true if TCP sends the pages that siw gives it without a copy (MSG_SPLICE_PAGES, from Linux 6.5).
// The siw of an older kernel, such as Debian's 6.1, may also hand over a Send page by page. TCP then copies
// each page in a call of its own, several times as slow as one copy of the whole.
bool KernelSendsPages();

// Queue depths within the device's limits.
struct Depths {
  uint32_t sends = 0;
  uint32_t receives = 0;
  uint32_t inline_bytes = 0;
};

class Resources {
 public:
  // `events`: the descriptor of the connection that this one replaces. If null, Open() makes one.
  explicit Resources(const Api& api, std::shared_ptr<EventDescriptor> events = nullptr)
      : api(api), events_(std::move(events)) {}
  ~Resources();
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;

  // Makes the event channel and the descriptor to wait on. Returns false on failure; failure() has the
  // reason.
  bool Open();
  // Makes an id on the channel, and destroys the one that was there.
  bool MakeId();
  // Takes over an id that a listener's channel brought.
  bool AdoptId(rdma_cm_id* accepted);
  // Makes the queue pair and its completion queues. Needs an id that has a device.
  bool MakeQueuePair(const Depths& wanted);
  // Returns the next event of the connection manager, or null. The caller acknowledges it with
  // api.rdma_ack_cm_event.
  rdma_cm_event* NextCmEvent() const;
  [[nodiscard]] const std::shared_ptr<EventDescriptor>& events() const { return events_; }
  // Look() returns which descriptors made event_fd readable, and takes the device's asynchronous events.
  struct Woken {
    bool connection_manager = false;
    bool completions = false;
  };
  Woken Look();
  // Returns the reason in one line if an event of the device's has ended this connection; else null.
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
  // The device can report solicited Sends only.
  bool tells_solicited = true;

 private:
  // Protects the descriptor from the application, makes it non-blocking, and adds it to event_fd.
  bool Watch(int* fd);
  bool WatchDevice();
  bool AddToEpoll(int fd, uint32_t events);

  std::shared_ptr<EventDescriptor> events_;
  std::vector<int> watched_;  // the descriptors in event_fd
  Device* device_ = nullptr;
  DeviceWatch watch_;
  std::string failure_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_RESOURCES_H_
