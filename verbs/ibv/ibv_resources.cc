#include "verbs/ibv/ibv_resources.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "verbs/descriptor_calls.h"

namespace sdp::ibv {
namespace {

constexpr size_t kPage = 4096;

// siw's provider mistakes a queue for a failed one if the kernel gives it the map offset 0x90000. A process
// meets that offset at about its twelfth connection, and then at each further one. An unused completion
// queue, made before all others and kept, covers that offset.
constexpr uint32_t kSiwVendor = 0x626d74;
constexpr int kSpacerEntries = 0x91000 / 32;

void KeepSiwFromItsBadOffset(const Api& api, ibv_context* device) {
  static std::mutex mutex;
  static std::vector<ibv_context*>* const done = new std::vector<ibv_context*>;
  std::lock_guard lock(mutex);
  if (std::find(done->begin(), done->end(), device) != done->end()) return;
  if (api.ibv_create_cq(device, kSpacerEntries, nullptr, nullptr, 0) != nullptr) done->push_back(device);
}

}  // namespace

uint64_t LockableMemory() {
  rlimit limit{};
  return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 ? limit.rlim_cur : 0;  // RLIM_INFINITY is the largest number
}

bool KernelSendsPages() {
  utsname kernel{};
  int major = 0, minor = 0;
  return uname(&kernel) == 0 && sscanf(kernel.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 5));
}

std::unique_ptr<RegisteredMemory> RegisteredMemory::Make(const Api& api, ibv_pd* pd, size_t size,
                                                         int access) {
  size = (size + kPage - 1) / kPage * kPage;
  // The memory has pages of its own. Pages that the kernel still sends from keep their content after this
  // process unmaps them.
  void* const pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  std::unique_ptr<RegisteredMemory> memory(new RegisteredMemory(api, static_cast<std::byte*>(pages), size));
  memory->mr_ = api.ibv_reg_mr(pd, pages, size, access);
  return memory->mr_ != nullptr ? std::move(memory) : nullptr;
}

RegisteredMemory::~RegisteredMemory() {
  if (mr_ != nullptr) api_.ibv_dereg_mr(mr_);
  ::munmap(data_, size_);
}

std::shared_ptr<EventDescriptor> EventDescriptor::Make() {
  // System calls by number: under the preload the plain names lead back into libsdp.so.
  const int fd = static_cast<int>(::syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
  return fd < 0 ? nullptr
                : std::shared_ptr<EventDescriptor>(new EventDescriptor(verbs::descriptor_calls().hide(fd)));
}

EventDescriptor::~EventDescriptor() {
  verbs::descriptor_calls().reveal(fd_);
  verbs::CloseUnseen(fd_);
}

Resources::~Resources() {
  // The next connection's descriptors take their place. Closing them is not enough: a child of fork has them,
  // too.
  if (events_.use_count() > 1) {
    for (const int fd : watched_) ::syscall(SYS_epoll_ctl, event_fd, EPOLL_CTL_DEL, fd, nullptr);
  }
  if (device_ != nullptr) device_->Remove(&watch_);
  if (id != nullptr && id->qp != nullptr) api.rdma_destroy_qp(id);
  if (send_cq != nullptr) api.ibv_destroy_cq(send_cq);
  if (receive_cq != nullptr) api.ibv_destroy_cq(receive_cq);
  if (completions != nullptr) {
    verbs::descriptor_calls().reveal(completions->fd);
    api.ibv_destroy_comp_channel(completions);
  }
  if (pd != nullptr) api.ibv_dealloc_pd(pd);
  if (id != nullptr) api.rdma_destroy_id(id);
  if (channel != nullptr) {
    verbs::descriptor_calls().reveal(channel->fd);
    api.rdma_destroy_event_channel(channel);
  }
}

bool Resources::Fail(const char* what) {
  failure_ = std::string(what) + ": " + strerrordesc_np(errno);
  if (errno == ENOMEM) failure_ += " (the limit on locked memory, ulimit -l, may be too small)";
  return false;
}

bool Resources::Open() {
  if (events_ == nullptr) events_ = EventDescriptor::Make();
  if (events_ == nullptr) return Fail("epoll_create1");
  event_fd = events_->fd();
  channel = api.rdma_create_event_channel();
  if (channel == nullptr) return Fail("rdma_create_event_channel");
  return Watch(&channel->fd);
}

bool Resources::Watch(int* fd) {
  *fd = verbs::descriptor_calls().hide(*fd);
  ::syscall(SYS_fcntl, *fd, F_SETFD, FD_CLOEXEC);
  const long flags = ::syscall(SYS_fcntl, *fd, F_GETFL);
  ::syscall(SYS_fcntl, *fd, F_SETFL, flags | O_NONBLOCK);
  return AddToEpoll(*fd, EPOLLIN);
}

bool Resources::WatchDevice() {
  device_ = Device::Of(api, id->verbs);
  if (device_ == nullptr) return Fail("eventfd");
  watch_.queue_pair = id->qp;
  watch_.send_cq = send_cq;
  watch_.receive_cq = receive_cq;
  watch_.port = id->port_num;
  device_->Add(&watch_);
  // No thread empties the bell: EPOLLET reports each write to it once.
  return AddToEpoll(device_->events_fd(), EPOLLIN) && AddToEpoll(device_->bell_fd(), EPOLLIN | EPOLLET);
}

Resources::Woken Resources::Look() {
  epoll_event events[4];
  Woken woken;
  const long count = ::syscall(SYS_epoll_pwait, event_fd, events, 4, 0, nullptr, 8);
  for (long i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == channel->fd) woken.connection_manager = true;
    if (completions != nullptr && fd == completions->fd) woken.completions = true;
    if (device_ != nullptr && fd == device_->events_fd()) device_->TakeEvents();
  }
  return woken;
}

bool Resources::AddToEpoll(int fd, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (::syscall(SYS_epoll_ctl, event_fd, EPOLL_CTL_ADD, fd, &event) != 0) return Fail("epoll_ctl");
  watched_.push_back(fd);
  return true;
}

bool Resources::MakeId() {
  if (id != nullptr) api.rdma_destroy_id(std::exchange(id, nullptr));
  return api.rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0 || Fail("rdma_create_id");
}

bool Resources::AdoptId(rdma_cm_id* accepted) {
  id = accepted;
  return api.rdma_migrate_id(id, channel) == 0 || Fail("rdma_migrate_id");
}

bool Resources::MakeQueuePair(const Depths& wanted) {
  ibv_context* const device = id->verbs;
  ibv_device_attr limits{};
  if (api.ibv_query_device(device, &limits) != 0) return Fail("ibv_query_device");
  // Each queue pair has completion queues of its own.
  const auto most = static_cast<uint32_t>(std::min(limits.max_qp_wr, limits.max_cqe));
  depths.sends = std::min(wanted.sends, most);
  depths.receives = std::min(wanted.receives, most);
  if (limits.vendor_id == kSiwVendor) {
    KeepSiwFromItsBadOffset(api, device);
    // The kernel's siw completes each receive as one that was not solicited (siw_rqe_complete).
    tells_solicited = false;
  }
  pd = api.ibv_alloc_pd(device);
  if (pd == nullptr) return Fail("ibv_alloc_pd");
  completions = api.ibv_create_comp_channel(device);
  if (completions == nullptr) return Fail("ibv_create_comp_channel");
  send_cq = api.ibv_create_cq(device, static_cast<int>(depths.sends), nullptr, completions, 0);
  receive_cq = api.ibv_create_cq(device, static_cast<int>(depths.receives), nullptr, completions, 0);
  if (send_cq == nullptr || receive_cq == nullptr) return Fail("ibv_create_cq");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send_cq;
  attributes.recv_cq = receive_cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = depths.sends;
  attributes.cap.max_recv_wr = depths.receives;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = wanted.inline_bytes;
  // rdma_create_qp returns -1 and sets errno, or returns the error of changing the queue pair's state.
  int result = api.rdma_create_qp(id, pd, &attributes);
  if (result != 0 && id->qp == nullptr) {
    // Inlining is a convenience that a device need not have.
    attributes.cap.max_inline_data = 0;
    result = api.rdma_create_qp(id, pd, &attributes);
  }
  if (result > 0) errno = result;
  if (result != 0) return Fail("rdma_create_qp");
  depths.inline_bytes = std::min(wanted.inline_bytes, attributes.cap.max_inline_data);
  return Watch(&completions->fd) && WatchDevice();
}

rdma_cm_event* Resources::NextCmEvent() const {
  rdma_cm_event* event = nullptr;
  return api.rdma_get_cm_event(channel, &event) == 0 ? event : nullptr;
}

}  // namespace sdp::ibv
