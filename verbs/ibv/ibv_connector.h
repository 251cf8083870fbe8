// Connection set-up on librdmacm, for one connection. The connecting side resolves the address and the route,
// and connects. The accepting side takes a request from a listener. Both make an IbvQp.
#ifndef SDP_VERBS_IBV_IBV_CONNECTOR_H_
#define SDP_VERBS_IBV_IBV_CONNECTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "verbs/ibv/ibv_qp.h"
#include "verbs/ibv/ibv_resources.h"
#include "verbs/rnic.h"

namespace sdp::ibv {

class IbvConnector final : public verbs::Connector {
 public:
  // Connecting side. `events`: the descriptor of the connection that this one replaces, or null.
  IbvConnector(const Api& api, std::shared_ptr<EventDescriptor> events, const sockaddr* local,
               const sockaddr* target, Bytes private_data, const verbs::QpOptions& qp, Duration timeout,
               Time now);
  // Accepting side. `id` and `request` are those of a connection request.
  IbvConnector(const Api& api, rdma_cm_id* id, const rdma_conn_param& request, Duration timeout, Time now);
  ~IbvConnector() override;

  verbs::ConnectState Step(Time now) override;
  [[nodiscard]] int event_fd() const override { return resources().event_fd; }
  void SetEventFd(int) override {}
  [[nodiscard]] verbs::Interest interest() const override { return {.read = !over(), .write = false}; }
  [[nodiscard]] Time deadline() const override;
  [[nodiscard]] Bytes peer_private_data() const override { return peer_private_data_; }
  // The kernel does not report which set-up the peer asked for.
  [[nodiscard]] bool may_send_first() const override { return false; }
  void Accept(Bytes private_data, const verbs::QpOptions& options) override;
  void Reject(Bytes private_data) override;
  [[nodiscard]] const verbs::LinkCause& cause() const override { return cause_; }
  std::unique_ptr<verbs::QueuePair> TakeQueuePair() override { return std::move(qp_); }

 private:
  [[nodiscard]] Resources& resources() const { return qp_ != nullptr ? qp_->resources() : *resources_; }
  [[nodiscard]] bool over() const {
    return state_ == verbs::ConnectState::kEstablished || state_ == verbs::ConnectState::kFailed ||
           state_ == verbs::ConnectState::kRejected;
  }
  void Resolve(const sockaddr* local, const sockaddr* target, Time now);
  [[nodiscard]] bool MayTryAnotherPort(int error) const;
  void TryAnotherPort(Time now);
  void HandleEvent(const rdma_cm_event& event, Time now);
  void BeginConfirmation(Time now);
  void StepConfirmation(Time now);
  void StepSilence(Time now);
  bool MakeQueuePair();
  [[nodiscard]] rdma_conn_param Parameters(Bytes private_data) const;
  void Connect();
  void TakePrivateData(const rdma_conn_param& parameters);
  void Fail(verbs::LinkEnd end, std::string text, int os_error = 0);
  void FailHere(const char* what);
  void FailOnTheWay(std::string text, int status);

  const bool connecting_;
  const Api& api_;
  std::unique_ptr<Resources> resources_;  // until qp_ has them
  std::unique_ptr<IbvQp> qp_;
  verbs::QpOptions options_{};
  std::vector<std::byte> private_data_;
  std::vector<std::byte> peer_private_data_;
  verbs::ConnectState state_ = verbs::ConnectState::kInProgress;
  verbs::LinkCause cause_;
  Time deadline_;
  Time quiet_until_ = kNever;  // accepting side, connected: see StepSilence
  Time asked_at_{};  // accepting side: when the reply was sent; connecting side: when AskPeer() was called
  bool confirming_ = false;      // connecting side, connected: see BeginConfirmation
  bool port_is_chosen_ = false;  // connecting side, by us: see TryAnotherPort
  bool port_is_taken_ = false;
  int ports_tried_ = 0;
  Time next_opening_ = kNever;
  Duration opening_interval_{};
  uint16_t ird_ = 0;
  uint16_t ord_ = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_CONNECTOR_H_
