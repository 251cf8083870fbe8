// A queue pair's verbs::DirectSend on a TCP link: one message becomes one FPDU, and one system call. The
// queue pair owns this object, and its owner's lock guards both.
#ifndef SDP_VERBS_SOFTIWARP_DIRECT_SEND_ABILITY_H_
#define SDP_VERBS_SOFTIWARP_DIRECT_SEND_ABILITY_H_

#include <cstddef>
#include <span>

#include "core/base/types.h"
#include "verbs/abilities.h"
#include "verbs/softiwarp/tcp_link.h"

namespace sdp::iwarp {

class SoftQp;

class DirectSendAbility final : public verbs::DirectSend {
 public:
  explicit DirectSendAbility(SoftQp& qp) : qp_(qp) {}

  [[nodiscard]] bool MaySendDirect(size_t size) override;
  void SendDirect(Bytes header, std::span<const Bytes> payload) override;

 private:
  // The link has not taken all of the FPDU: the queue sends the rest.
  void Queue(Bytes header, std::span<const Bytes> payload, const LinkResult& sent);

  SoftQp& qp_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_DIRECT_SEND_ABILITY_H_
