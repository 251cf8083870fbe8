#include "test/verbs/fake_device.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace sdp::ibv::test {
namespace {

// The libraries' functions have no context of their own.
FakeDevice* current = nullptr;
Api& filled() {
  static Api& instance = *new Api;
  return instance;
}

// The next of them, 0 when there is none left; as the libraries return it.
int Answer(std::deque<int>& errors) {
  if (errors.empty()) return 0;
  errno = errors.front();
  errors.pop_front();
  return errno == 0 ? 0 : -1;
}

void Ring(int fd) {
  const uint64_t one = 1;
  SDP_CHECK(::write(fd, &one, sizeof one) == sizeof one);
}
void TakeRing(int fd) {
  uint64_t one = 0;
  SDP_CHECK(::read(fd, &one, sizeof one) == sizeof one);
}

}  // namespace

// Kept in sight: of one that no queue pair was made for, nobody else knows.
ibv_context& FakeDevice::MakeContext() {
  static auto* const all = new std::vector<std::unique_ptr<ibv_context>>;
  return *all->emplace_back(std::make_unique<ibv_context>());
}

FakeDevice::FakeDevice() {
  SDP_CHECK(current == nullptr);
  current = this;
  FillApi();
  FillConnectionManager();
  std::strcpy(device_.name, "fake0");
  context_.device = &device_;
  context_.async_fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  context_.ops.poll_cq = [](ibv_cq* cq, int most, ibv_wc* out) {
    std::function<void()> on_poll;
    {
      std::lock_guard lock(current->mutex_);
      on_poll = current->on_poll_;
    }
    if (on_poll) on_poll();
    std::lock_guard lock(current->mutex_);
    auto& done = current->Of(cq).done;
    int count = 0;
    for (; count < most && !done.empty(); ++count, done.pop_front()) out[count] = done.front();
    return count;
  };
  context_.ops.req_notify_cq = [](ibv_cq* cq, int solicited_only) {
    std::function<void(Armed)> on_arm;
    Armed now;
    {
      std::lock_guard lock(current->mutex_);
      // A wish for all is not taken back by one for less.
      Queue& queue = current->Of(cq);
      now = queue.armed = solicited_only == 0 || queue.armed == Armed::kAll ? Armed::kAll : Armed::kSolicited;
      if (&queue == &current->queues_[1]) on_arm = current->on_arm_;
    }
    if (on_arm) on_arm(now);
    return 0;
  };
  context_.ops.post_send = [](ibv_qp*, ibv_send_wr* request, ibv_send_wr** refused) {
    std::lock_guard lock(current->mutex_);
    for (; request != nullptr; request = request->next) {
      if (current->sent.size() >= current->room) {
        *refused = request;
        return current->refusal;
      }
      current->sent.push_back({.id = request->wr_id,
                               .opcode = request->opcode,
                               .signaled = (request->send_flags & IBV_SEND_SIGNALED) != 0,
                               .solicited = (request->send_flags & IBV_SEND_SOLICITED) != 0,
                               .inlined = (request->send_flags & IBV_SEND_INLINE) != 0,
                               .bytes = {}});
      if (request->num_sge == 0 || request->opcode == IBV_WR_RDMA_READ) continue;
      const auto* const data = reinterpret_cast<const std::byte*>(request->sg_list->addr);
      current->sent.back().bytes.assign(data, data + request->sg_list->length);
    }
    return 0;
  };
  context_.ops.post_recv = [](ibv_qp*, ibv_recv_wr* request, ibv_recv_wr**) {
    std::lock_guard lock(current->mutex_);
    for (; request != nullptr; request = request->next)
      current->receives_.push_back(
          {.id = request->wr_id, .address = reinterpret_cast<void*>(request->sg_list->addr)});
    return 0;
  };
  queue_pair_.context = &context_;
  completions_.fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  channel_.fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  limits.max_qp_wr = limits.max_cqe = 1024;
  limits.max_qp_rd_atom = limits.max_qp_init_rd_atom = 16;
  id_.verbs = &context_;
  id_.port_num = 1;
}

FakeDevice::~FakeDevice() {
  for (const int fd : {context_.async_fd, completions_.fd, channel_.fd}) ::close(fd);
  current = nullptr;
}

const Api& FakeDevice::api() { return filled(); }

void FakeDevice::FillConnectionManager() {
  Api& a = filled();
  a.rdma_create_event_channel = [] { return &current->channel_; };
  a.rdma_destroy_event_channel = [](rdma_event_channel*) {};
  a.rdma_create_id = [](rdma_event_channel*, rdma_cm_id** id, void*, rdma_port_space) {
    *id = &current->id_;
    return 0;
  };
  a.rdma_destroy_id = [](rdma_cm_id* id) {
    std::lock_guard lock(current->mutex_);
    SDP_CHECK(!current->hears_);  // librdmacm would wait for the acknowledgement
    id->route.addr = {};
    return 0;
  };
  a.rdma_resolve_addr = [](rdma_cm_id* id, sockaddr* local, sockaddr* target, int) {
    std::lock_guard lock(current->mutex_);
    std::memcpy(&id->route.addr.src_storage, local, sizeof(sockaddr_in));
    std::memcpy(&id->route.addr.dst_storage, target, sizeof(sockaddr_in));
    current->source_ports.push_back(ntohs(id->route.addr.src_sin.sin_port));
    if (Answer(current->resolve_errors) != 0) return -1;
    current->TellLocked(RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
  };
  a.rdma_resolve_route = [](rdma_cm_id*, int) {
    std::lock_guard lock(current->mutex_);
    current->TellLocked(RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
  };
  a.rdma_connect = [](rdma_cm_id*, rdma_conn_param* parameters) {
    current->asked = *parameters;
    return Answer(current->connect_errors);
  };
  a.rdma_get_cm_event = [](rdma_event_channel* channel, rdma_cm_event** event) {
    std::lock_guard lock(current->mutex_);
    if (current->cm_events_.empty()) return -1;
    SDP_CHECK(!std::exchange(current->hears_, true));
    TakeRing(channel->fd);
    current->heard_ = current->cm_events_.front();
    current->cm_events_.pop_front();
    *event = &current->heard_;
    return 0;
  };
  a.rdma_ack_cm_event = [](rdma_cm_event*) {
    std::lock_guard lock(current->mutex_);
    current->hears_ = false;
    return 0;
  };
}

void FakeDevice::FillApi() {
  Api& a = filled();
  a.rdma_create_qp = [](rdma_cm_id* id, ibv_pd*, ibv_qp_init_attr* attributes) {
    if (attributes->cap.max_inline_data != 0 && !current->inlines) {
      errno = EINVAL;
      return -1;
    }
    current->made = *attributes;
    id->qp = &current->queue_pair_;
    return 0;
  };
  a.rdma_destroy_qp = [](rdma_cm_id* id) { id->qp = nullptr; };
  a.rdma_disconnect = [](rdma_cm_id*) {
    ++current->disconnects;
    return 0;
  };
  a.ibv_alloc_pd = [](ibv_context*) { return &current->domain_; };
  a.ibv_dealloc_pd = [](ibv_pd*) { return 0; };
  a.ibv_reg_mr = [](ibv_pd*, void* address, size_t length, int) {
    auto* const region = new ibv_mr{};
    region->addr = address;
    region->length = length;
    region->lkey = region->rkey = 7;
    return region;
  };
  a.ibv_dereg_mr = [](ibv_mr* region) {
    delete region;
    return 0;
  };
  a.ibv_create_comp_channel = [](ibv_context*) { return &current->completions_; };
  a.ibv_destroy_comp_channel = [](ibv_comp_channel*) { return 0; };
  a.ibv_create_cq = [](ibv_context* context, int, void*, ibv_comp_channel* channel, int) {
    static ibv_cq unused{};
    if (channel == nullptr) return &unused;
    SDP_CHECK(current->made_ < 2);
    ibv_cq& cq = current->queues_[current->made_++].cq;
    cq.context = context;
    cq.channel = channel;
    return &cq;
  };
  a.ibv_destroy_cq = [](ibv_cq* cq) {
    current->Of(cq).armed = Armed::kNot;
    --current->made_;
    return 0;
  };
  a.ibv_get_cq_event = [](ibv_comp_channel* channel, ibv_cq** cq, void**) {
    std::lock_guard lock(current->mutex_);
    if (current->events_.empty()) return -1;
    TakeRing(channel->fd);
    *cq = current->events_.front();
    current->events_.pop_front();
    ++current->events_taken_;
    return 0;
  };
  a.ibv_ack_cq_events = [](ibv_cq*, unsigned int) {};
  a.ibv_modify_qp = [](ibv_qp*, ibv_qp_attr* attributes, int) {
    current->in_error = current->in_error || attributes->qp_state == IBV_QPS_ERR;
    return 0;
  };
  a.ibv_query_device = [](ibv_context*, ibv_device_attr* limits) {
    *limits = current->limits;
    limits->vendor_id = current->vendor;
    return 0;
  };
  a.ibv_get_async_event = [](ibv_context* context, ibv_async_event* event) {
    std::lock_guard lock(current->mutex_);
    if (current->device_events_.empty()) return -1;
    TakeRing(context->async_fd);
    *event = current->device_events_.front();
    current->device_events_.pop_front();
    return 0;
  };
  a.ibv_ack_async_event = [](ibv_async_event*) {};
  a.ibv_wc_status_str = [](ibv_wc_status) { return "a status"; };
}

std::unique_ptr<Resources> FakeDevice::Make(uint32_t depth) {
  auto resources = std::make_unique<Resources>(filled());
  SDP_CHECK(resources->Open());
  SDP_CHECK(resources->MakeId());
  SDP_CHECK(resources->MakeQueuePair({.sends = depth, .receives = depth, .inline_bytes = 0}));
  return resources;
}

void FakeDevice::Put(Queue& queue, const ibv_wc& completion, bool solicited) {
  queue.done.push_back(completion);
  // An error is as good as solicited.
  solicited = solicited || completion.status != IBV_WC_SUCCESS;
  if (queue.armed == Armed::kNot || (queue.armed == Armed::kSolicited && !solicited)) return;
  queue.armed = Armed::kNot;
  events_.push_back(&queue.cq);
  ++events_told_;
  Ring(completions_.fd);
}

void FakeDevice::Complete(uint64_t id, ibv_wc_status status) {
  std::lock_guard lock(mutex_);
  ibv_wc completion{};
  completion.wr_id = id;
  completion.status = status;
  Put(queues_[0], completion, false);
}

FakeDevice::Armed FakeDevice::Bring(std::string_view message, bool solicited) {
  std::lock_guard lock(mutex_);
  SDP_CHECK(!receives_.empty());
  ibv_wc completion{};
  completion.wr_id = receives_.front().id;
  completion.status = IBV_WC_SUCCESS;
  completion.byte_len = static_cast<uint32_t>(message.size());
  std::memcpy(receives_.front().address, message.data(), message.size());
  receives_.pop_front();
  const Armed armed = queues_[1].armed;
  Put(queues_[1], completion, solicited);
  return armed;
}

void FakeDevice::SetOnPoll(std::function<void()> on_poll) {
  std::lock_guard lock(mutex_);
  on_poll_ = std::move(on_poll);
}

void FakeDevice::SetOnArm(std::function<void(Armed)> on_arm) {
  std::lock_guard lock(mutex_);
  on_arm_ = std::move(on_arm);
}

std::vector<FakeDevice::Sent> FakeDevice::TakeSent() {
  std::lock_guard lock(mutex_);
  const std::vector<Sent> news(sent.begin() + static_cast<ptrdiff_t>(sent_taken_), sent.end());
  sent_taken_ = sent.size();
  return news;
}

void FakeDevice::FlushReceive() {
  std::lock_guard lock(mutex_);
  SDP_CHECK(!receives_.empty());
  ibv_wc completion{};
  completion.wr_id = receives_.front().id;
  completion.status = IBV_WC_WR_FLUSH_ERR;
  receives_.pop_front();
  Put(queues_[1], completion, false);
}

void FakeDevice::Tell(rdma_cm_event_type type) {
  std::lock_guard lock(mutex_);
  const bool waits = std::any_of(cm_events_.begin(), cm_events_.end(),
                                 [&](const rdma_cm_event& event) { return event.event == type; });
  if (!waits) TellLocked(type);
}

void FakeDevice::TellLocked(rdma_cm_event_type type) {
  rdma_cm_event event{};
  event.event = type;
  event.id = &id_;
  cm_events_.push_back(event);
  Ring(channel_.fd);
}

void FakeDevice::TellDevice(const ibv_async_event& event) {
  std::lock_guard lock(mutex_);
  device_events_.push_back(event);
  Ring(context_.async_fd);
}

bool FakeDevice::Tells(const Resources& resources) {
  pollfd fd{.fd = resources.event_fd, .events = POLLIN, .revents = 0};
  return ::poll(&fd, 1, 0) == 1;
}

}  // namespace sdp::ibv::test
