#include "test/guest/native_peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "test/support/skipped.h"

namespace sdp::guest {
namespace {

constexpr size_t kSlot = 128 * 1024;
constexpr size_t kSlots = 16;
constexpr auto kPatience = std::chrono::seconds(60);

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

bool EndsAConnection(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return true;
    default:
      return false;
  }
}

sockaddr_in ToSockaddr(const std::string& address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  inet_pton(AF_INET, address.c_str(), &result.sin_addr);
  return result;
}

}  // namespace

std::string RnicAddress() {
  const char* address = std::getenv("SDP_TEST_RNIC_ADDRESS");
  return address != nullptr ? address : "10.77.0.1";
}

bool HaveRnic() {
  constexpr char kDevice[] = "/dev/infiniband/rdma_cm";
  std::string why = kDevice;  // where this is not to be used, librdmacm says just that there is no such file
  bool found = false;
  if (::access(kDevice, R_OK | W_OK) != 0) {
    why += std::string(": ") + std::strerror(errno);
  } else if (rdma_event_channel* const channel = rdma_create_event_channel(); channel != nullptr) {
    why = "the address is no device's";
    if (rdma_cm_id* id = nullptr; rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0) {
      sockaddr_in address = ToSockaddr(RnicAddress(), 0);
      found = rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) == 0 && id->verbs != nullptr;
      rdma_destroy_id(id);
    }
    rdma_destroy_event_channel(channel);
  }
  if (!found)
    sdp::test::Skipped("no RDMA device at " + RnicAddress() + ": " + why + " (scripts/siw-guest has one)");
  return found;
}

NativePeer::~NativePeer() {
  if (id_ != nullptr) DestroyId();
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

void NativePeer::DestroyId() {
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  for (ibv_mr** mr : {&send_mr_, &receive_mr_})
    if (*mr != nullptr) ibv_dereg_mr(std::exchange(*mr, nullptr));
  for (ibv_mr* mr : regions_) ibv_dereg_mr(mr);
  regions_.clear();
  rdma_destroy_id(std::exchange(id_, nullptr));
  next_slot_ = 0;
}

void NativePeer::Begin(const char* what) {
  const std::lock_guard lock(mutex_);
  doing_ = what;
}

std::string NativePeer::State() const {
  const std::lock_guard lock(mutex_);
  return doing_ + ", its connection manager's events so far:" + (events_.empty() ? " none" : events_);
}

void NativePeer::OpenChannel() {
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) Fail("rdma_create_event_channel");
  if (::fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) Fail("fcntl");
}

NativePeer::Event NativePeer::Await(std::initializer_list<rdma_cm_event_type> wanted) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    rdma_cm_event* got = nullptr;
    if (rdma_get_cm_event(channel_, &got) != 0) {
      if (errno != EAGAIN && errno != EINTR) Fail("rdma_get_cm_event");
      pollfd fd{.fd = channel_->fd, .events = POLLIN, .revents = 0};
      ::poll(&fd, 1, 100);
      if (std::chrono::steady_clock::now() < end) continue;
      throw std::runtime_error(std::string("no ") + rdma_event_str(*wanted.begin()) + " came");
    }
    // All of it is gone once it is acknowledged.
    Event event{.type = got->event, .id = got->id, .parameters = got->param.conn, .private_data = {}};
    if (event.parameters.private_data != nullptr) {
      event.private_data.assign(static_cast<const char*>(event.parameters.private_data),
                                event.parameters.private_data_len);
    }
    const std::string name = rdma_event_str(event.type);
    {
      const std::lock_guard lock(mutex_);
      events_ += " " + name + (got->status != 0 ? " (" + std::to_string(got->status) + ")" : "");
    }
    rdma_ack_cm_event(got);
    if (std::find(wanted.begin(), wanted.end(), event.type) != wanted.end()) return event;
    if (EndsAConnection(event.type)) throw std::runtime_error("came " + name);
  }
}

void NativePeer::Listen(uint16_t* port) {
  Begin("listens");
  OpenChannel();
  // Which port is free the RDMA port space knows for itself alone: a connection of TCP's may have it.
  for (int attempt = 0;; ++attempt) {
    if (rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) Fail("rdma_create_id");
    sockaddr_in address = ToSockaddr(RnicAddress(), 0);
    if (rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)) != 0) Fail("rdma_bind_addr");
    if (rdma_listen(listener_, 8) == 0) break;
    if (errno != EADDRINUSE || attempt == 20) Fail("rdma_listen");
    rdma_destroy_id(listener_);
    listener_ = nullptr;
  }
  *port = ntohs(rdma_get_src_port(listener_));
}

void NativePeer::Accept(std::string_view private_data) {
  Begin("waits for a connection");
  const Event asked = Await({RDMA_CM_EVENT_CONNECT_REQUEST});
  id_ = asked.id;
  private_data_ = asked.private_data;
  MakeQueuePair();
  rdma_conn_param answer{};
  answer.private_data = private_data.data();
  answer.private_data_len = static_cast<uint8_t>(private_data.size());
  answer.responder_resources = asked.parameters.responder_resources;
  answer.initiator_depth = asked.parameters.initiator_depth;
  Begin("accepts");
  if (rdma_accept(id_, &answer) != 0) Fail("rdma_accept");
  Await({RDMA_CM_EVENT_ESTABLISHED});
}

void NativePeer::Reject(std::string_view private_data) {
  Begin("waits for a connection");
  const Event asked = Await({RDMA_CM_EVENT_CONNECT_REQUEST});
  id_ = asked.id;
  private_data_ = asked.private_data;
  Begin("rejects");
  if (rdma_reject(id_, private_data.data(), static_cast<uint8_t>(private_data.size())) != 0)
    Fail("rdma_reject");
}

bool NativePeer::Connect(const std::string& address, uint16_t port, std::string_view private_data) {
  Begin("connects");
  OpenChannel();
  rdma_conn_param request{};
  request.private_data = private_data.data();
  request.private_data_len = static_cast<uint8_t>(private_data.size());
  request.responder_resources = 8;
  request.initiator_depth = 8;
  // As for Listen: TCP may have the port that the RDMA port space has chosen.
  for (int attempt = 0;; ++attempt) {
    if (rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) != 0) Fail("rdma_create_id");
    sockaddr_in target = ToSockaddr(address, port);
    if (rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&target), 5000) != 0)
      Fail("rdma_resolve_addr");
    Await({RDMA_CM_EVENT_ADDR_RESOLVED});
    if (rdma_resolve_route(id_, 5000) != 0) Fail("rdma_resolve_route");
    Await({RDMA_CM_EVENT_ROUTE_RESOLVED});
    MakeQueuePair();
    if (rdma_connect(id_, &request) == 0) break;
    if (errno != EADDRINUSE || attempt == 20) Fail("rdma_connect");
    DestroyId();
  }
  const Event answer = Await({RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED});
  private_data_ = answer.private_data;
  return answer.type == RDMA_CM_EVENT_ESTABLISHED;
}

void NativePeer::MakeQueuePair() {
  ibv_qp_init_attr attributes{};
  attributes.cap.max_send_wr = 16;
  attributes.cap.max_recv_wr = kSlots;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  if (rdma_create_qp(id_, nullptr, &attributes) != 0) Fail("rdma_create_qp");
  send_buffer_.resize(kSlot);
  receive_buffer_.resize(kSlot * kSlots);
  send_mr_ = ibv_reg_mr(id_->pd, send_buffer_.data(), send_buffer_.size(), int{IBV_ACCESS_LOCAL_WRITE});
  receive_mr_ =
      ibv_reg_mr(id_->pd, receive_buffer_.data(), receive_buffer_.size(), int{IBV_ACCESS_LOCAL_WRITE});
  if (send_mr_ == nullptr || receive_mr_ == nullptr) Fail("ibv_reg_mr");
  for (size_t i = 0; i < kSlots; ++i) PostReceive();
}

NativePeer::Region NativePeer::Expose(std::vector<char>& memory) {
  ibv_mr* mr =
      ibv_reg_mr(id_->pd, memory.data(), memory.size(),
                 int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_REMOTE_READ} | int{IBV_ACCESS_REMOTE_WRITE});
  if (mr == nullptr) Fail("ibv_reg_mr");
  regions_.push_back(mr);
  return {.stag = mr->rkey, .to = reinterpret_cast<uint64_t>(memory.data())};
}

void NativePeer::PostReceive() {
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(&receive_buffer_[next_slot_ * kSlot]),
              .length = kSlot,
              .lkey = receive_mr_->lkey};
  ibv_recv_wr work{};
  work.wr_id = next_slot_;
  work.sg_list = &sge;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if ((errno = ibv_post_recv(id_->qp, &work, &bad)) != 0) Fail("ibv_post_recv");
  next_slot_ = (next_slot_ + 1) % kSlots;
}

std::string NativePeer::Receive() {
  const ibv_wc wc = Await("receives", /*receive=*/true);
  if (wc.status != IBV_WC_SUCCESS)
    throw std::runtime_error(std::string("receive: ") + ibv_wc_status_str(wc.status));
  std::string text(&receive_buffer_[wc.wr_id * kSlot], wc.byte_len);
  PostReceive();
  return text;
}

ibv_wc_status NativePeer::Send(std::string_view text, bool solicited, uint32_t invalidate) {
  std::memcpy(send_buffer_.data(), text.data(), text.size());
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(send_buffer_.data()),
              .length = static_cast<uint32_t>(text.size()),
              .lkey = send_mr_->lkey};
  ibv_send_wr work{};
  work.sg_list = &sge;
  work.num_sge = 1;
  work.opcode = invalidate != 0 ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
  work.send_flags = solicited ? IBV_SEND_SOLICITED : 0;
  work.invalidate_rkey = invalidate;
  work.wr.rdma.rkey = invalidate;  // where siw's provider looks for it
  return Run("sends", work, nullptr);
}

ibv_wc_status NativePeer::Write(std::string_view text, Region target) {
  std::vector<char> copy(text.begin(), text.end());
  ibv_mr* mr = ibv_reg_mr(id_->pd, copy.data(), copy.size(), int{IBV_ACCESS_LOCAL_WRITE});
  if (mr == nullptr) Fail("ibv_reg_mr");
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(copy.data()),
              .length = static_cast<uint32_t>(copy.size()),
              .lkey = mr->lkey};
  ibv_send_wr work{};
  work.sg_list = &sge;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.wr.rdma.remote_addr = target.to;
  work.wr.rdma.rkey = target.stag;
  return Run("writes", work, mr);
}

ibv_wc_status NativePeer::Read(std::vector<char>* into, Region source) {
  ibv_mr* mr = ibv_reg_mr(id_->pd, into->data(), into->size(),
                          int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_REMOTE_WRITE});
  if (mr == nullptr) Fail("ibv_reg_mr");
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(into->data()),
              .length = static_cast<uint32_t>(into->size()),
              .lkey = mr->lkey};
  ibv_send_wr work{};
  work.sg_list = &sge;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_READ;
  work.wr.rdma.remote_addr = source.to;
  work.wr.rdma.rkey = source.stag;
  return Run("reads", work, mr);
}

ibv_wc_status NativePeer::Run(const char* what, ibv_send_wr& work, ibv_mr* local) {
  ibv_send_wr* bad = nullptr;
  if ((errno = ibv_post_send(id_->qp, &work, &bad)) != 0) Fail("ibv_post_send");
  const ibv_wc wc = Await(what, /*receive=*/false);
  if (local != nullptr) ibv_dereg_mr(local);
  return wc.status;
}

ibv_wc NativePeer::Await(const char* what, bool receive) {
  Begin(what);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  ibv_wc wc{};
  for (;;) {
    const int count = ibv_poll_cq(receive ? id_->recv_cq : id_->send_cq, 1, &wc);
    if (count > 0) break;
    if (count < 0) Fail("ibv_poll_cq");
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("no completion came");
  }
  Begin("nothing");
  return wc;
}

void NativePeer::AwaitDisconnect() {
  Begin("waits for the peer's end");
  Await({RDMA_CM_EVENT_DISCONNECTED});
}

void NativePeer::Disconnect() {
  Begin("disconnects");
  rdma_disconnect(id_);
}

}  // namespace sdp::guest
