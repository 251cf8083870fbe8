// A queue pair's verbs::Portable: its state as bytes, for another process. The queue pair owns this object,
// and its owner's lock guards both.
#ifndef SDP_VERBS_SOFTIWARP_PORTABLE_ABILITY_H_
#define SDP_VERBS_SOFTIWARP_PORTABLE_ABILITY_H_

#include "core/base/archive.h"
#include "verbs/abilities.h"

namespace sdp::iwarp {

class SoftQp;

class PortableAbility final : public verbs::Portable {
 public:
  explicit PortableAbility(SoftQp& qp) : qp_(qp) {}

  [[nodiscard]] bool freezable() const override;
  using Portable::Freeze;
  void Freeze(Writer& ar) const override;
  void StaysHere() override;

 private:
  SoftQp& qp_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PORTABLE_ABILITY_H_
