// The memory regions that the owner of one IbvQp has registered.
#ifndef SDP_VERBS_IBV_REGIONS_H_
#define SDP_VERBS_IBV_REGIONS_H_

#include <optional>
#include <unordered_map>

#include "verbs/ibv/ibv_resources.h"
#include "verbs/rnic_types.h"

namespace sdp::ibv {

class Regions {
 public:
  // `resources` has a protection domain and outlives this.
  explicit Regions(const Resources& resources) : resources_(resources) {}
  // Deregisters all regions. The owner destroys the queue pair that may use them first.
  ~Regions();
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // Like QueuePair::Register and Deregister.
  std::optional<verbs::MemoryRegion> Register(MutableBytes memory, verbs::Access access);
  void Deregister(STag stag);
  // Returns null if no region has this STag.
  [[nodiscard]] const ibv_mr* Find(STag stag) const;

 private:
  const Resources& resources_;
  std::unordered_map<STag, ibv_mr*> regions_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_REGIONS_H_
