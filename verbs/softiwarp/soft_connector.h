// The embedded RNIC's connection set-up. It drives MPA's negotiation over a connected TCP socket, and makes
// the SoftQp. The owner keeps the socket.
#ifndef SDP_VERBS_SOFTIWARP_SOFT_CONNECTOR_H_
#define SDP_VERBS_SOFTIWARP_SOFT_CONNECTOR_H_

#include <memory>
#include <optional>
#include <string>

#include "verbs/rnic.h"
#include "verbs/softiwarp/local/meeting.h"
#include "verbs/softiwarp/proto/mpa_negotiation.h"
#include "verbs/softiwarp/soft_options.h"
#include "verbs/softiwarp/soft_qp.h"
#include "verbs/softiwarp/tcp_link.h"

namespace sdp::iwarp {

class SoftConnector final : public verbs::Connector {
 public:
  SoftConnector(int fd, const SoftOptions& options, Bytes private_data, const verbs::QpOptions& qp, Time now);
  SoftConnector(int fd, const SoftOptions& options, Time now);

  verbs::ConnectState Step(Time now) override;
  [[nodiscard]] int event_fd() const override { return link_.fd(); }
  void SetEventFd(int fd) override;
  [[nodiscard]] verbs::Interest interest() const override;
  [[nodiscard]] Time deadline() const override;
  [[nodiscard]] Bytes peer_private_data() const override;
  [[nodiscard]] bool may_send_first() const override { return agreement().rtr != Rtr::kNone; }
  [[nodiscard]] bool may_open() const override;
  [[nodiscard]] bool is_open() const override { return open_; }
  void Accept(Bytes private_data, const verbs::QpOptions& options) override;
  void Reject(Bytes private_data) override;
  [[nodiscard]] const verbs::LinkCause& cause() const override { return cause_; }
  std::unique_ptr<verbs::QueuePair> TakeQueuePair() override { return std::move(qp_); }

 private:
  void SendOutput();
  void ReadInput();
  void BeginConfirmation(Time now);
  verbs::ConnectState StepConfirmation(Time now);
  void Fail(verbs::LinkEnd end, std::string text, int os_error = 0);
  void BlamePeer(std::string text);
  std::unique_ptr<SoftQp> MakeQueuePair() const;
  [[nodiscard]] RtrWay RtrWayOf(Bytes reply) const {
    return options_.rtr_way != nullptr ? options_.rtr_way(reply) : RtrWay::kAtOnce;
  }
  // Returns what was negotiated, without an RTR if both ends know of the local link, or that there is none.
  [[nodiscard]] MpaAgreement agreement() const;
  // Returns the local link's offer in the peer's MPA Request, if there is one.
  [[nodiscard]] std::optional<LocalOffer> PeerOffer() const;
  // Returns true if the peer's MPA Reply has kSameMemory.
  [[nodiscard]] bool PeerHasSameMemory() const;
  // The link may become a local one: takes the peer's offer, or what the peer has sent for ours. Sets
  // memory_, or why_not_local_.
  void AnswerOffer();
  void TakeAnswer();
  void TakeSameMemory(LocalMeeting* meeting);
  // Accepting side, with memory_: finds out by the peer's first byte whether the peer has taken it. Returns
  // kEstablished once that is known; memory_ is null if not.
  verbs::ConnectState HearAnswer(Time now);

  TcpLink link_;
  const SoftOptions options_;
  std::unique_ptr<LocalMeeting> meeting_;  // connecting side, until the reply is here
  std::shared_ptr<LocalMemory> memory_;    // of a local link
  bool same_memory_ = false;               // both ends have kept memory_
  bool open_ = false;                      // without an RTR: RtrWay::kNone
  std::string why_not_local_;              // for people
  verbs::QpOptions qp_options_;
  MpaNegotiation negotiation_;
  std::optional<Duration> waited_;  // start-up time already used before the first look; empty until that look
  const Time send_deadline_;        // limit for a peer that does not even take our frame
  bool link_full_ = false;
  verbs::LinkCause cause_;
  std::unique_ptr<SoftQp> qp_;
  bool established_ = false;
  bool confirming_ = false;  // established except for the peer's first FPDU
  Time next_rtr_ = kNever;   // while confirming: the RTR may have been overlooked
  Duration rtr_interval_{};
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_SOFT_CONNECTOR_H_
