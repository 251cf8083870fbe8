#include "verbs/ibv/regions.h"

namespace sdp::ibv {

Regions::~Regions() {
  for (const auto& [stag, region] : regions_) resources_.api.ibv_dereg_mr(region);
}

std::optional<verbs::MemoryRegion> Regions::Register(MutableBytes memory, verbs::Access access) {
  // The peer's RDMA Read Response writes to the sink of an RDMA Read: on iWARP that needs the right to write.
  int rights = IBV_ACCESS_LOCAL_WRITE;
  const auto bits = static_cast<uint8_t>(access);
  if (access == verbs::Access::kLocal) rights |= IBV_ACCESS_REMOTE_WRITE;
  if ((bits & static_cast<uint8_t>(verbs::Access::kRemoteRead)) != 0) rights |= IBV_ACCESS_REMOTE_READ;
  if ((bits & static_cast<uint8_t>(verbs::Access::kRemoteWrite)) != 0) rights |= IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* const region = resources_.api.ibv_reg_mr(resources_.pd, memory.data(), memory.size(), rights);
  if (region == nullptr) return std::nullopt;
  regions_.emplace(STag(region->rkey), region);
  return verbs::MemoryRegion{.stag = STag(region->rkey),
                             .base_to = reinterpret_cast<uint64_t>(memory.data()),
                             .length = static_cast<uint32_t>(memory.size())};
}

void Regions::Deregister(STag stag) {
  const auto region = regions_.find(stag);
  if (region == regions_.end()) return;
  resources_.api.ibv_dereg_mr(region->second);
  regions_.erase(region);
}

const ibv_mr* Regions::Find(STag stag) const {
  const auto region = regions_.find(stag);
  return region != regions_.end() ? region->second : nullptr;
}

}  // namespace sdp::ibv
