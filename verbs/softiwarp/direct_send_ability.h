// A queue pair's verbs::DirectSend on a TCP link: one message becomes one FPDU, and one system call. The
// queue pair owns this object, and its owner's lock guards both.
#ifndef SDP_VERBS_SOFTIWARP_DIRECT_SEND_ABILITY_H_
#define SDP_VERBS_SOFTIWARP_DIRECT_SEND_ABILITY_H_

#include "verbs/abilities.h"

namespace sdp::iwarp {

class SoftQp;

class DirectSendAbility final : public verbs::DirectSend {
 public:
  explicit DirectSendAbility(SoftQp& qp) : qp_(qp) {}

  [[nodiscard]] bool MaySendDirect(size_t size) override;
  void SendDirect(Bytes header, std::span<const Bytes> payload) override;

 private:
  // The link has taken only the first `sent` bytes of the FPDU: the queue sends the rest.
  void Queue(Bytes header, std::span<const Bytes> payload, size_t sent);

  SoftQp& qp_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_DIRECT_SEND_ABILITY_H_
