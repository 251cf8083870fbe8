// The DeviceLink of an IbvQp: what its connection can do because a device carries it instead of TCP.
#ifndef SDP_VERBS_IBV_IBV_LINK_H_
#define SDP_VERBS_IBV_IBV_LINK_H_

#include <memory>

#include "verbs/ibv/sends.h"
#include "verbs/rnic.h"

namespace sdp::ibv {

class IbvLink final : public verbs::DeviceLink {
 public:
  // All references outlive this.
  IbvLink(const Resources& resources, const verbs::LinkFacts& facts, Sends& sends,
          const verbs::QpCounters& counters)
      : resources_(resources), facts_(facts), sends_(sends), counters_(counters) {}

  void SetRoundTrip(Duration duration);

  void Names(sockaddr_storage* local, sockaddr_storage* peer) const override;
  [[nodiscard]] Duration round_trip() const override { return round_trip_; }
  [[nodiscard]] bool AllTaken() override { return sends_.AllTaken(); }
  void NotePeerHas(uint64_t missing) override { sends_.NotePeerHas(missing); }
  [[nodiscard]] std::unique_ptr<verbs::QueuePair> Leave() override;  // ibv_left_qp.cc

 private:
  const Resources& resources_;
  const verbs::LinkFacts& facts_;
  Sends& sends_;
  const verbs::QpCounters& counters_;
  Duration round_trip_ = Duration::zero();
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_LINK_H_
