#include "verbs/softiwarp/proto/stag_table.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace sdp::iwarp {
namespace {

constexpr uint32_t kSlotBits = 12;
constexpr uint32_t kMaxRegions = 1u << kSlotBits;
constexpr uint32_t kSlotMask = kMaxRegions - 1;

}  // namespace

std::optional<STag> StagTable::Register(MutableBytes memory, Rights rights) {
  if (memory.size() > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  auto slot = std::find_if(regions_.begin(), regions_.end(), [](const Region& r) { return !r.used; });
  if (slot == regions_.end()) {
    if (regions_.size() == kMaxRegions) return std::nullopt;
    slot = regions_.emplace(regions_.end());
  }
  const auto index = static_cast<uint32_t>(slot - regions_.begin());
  uint32_t random = 0;
  do {
    if (pool_.empty()) {
      pool_.resize(16);
      random_(std::as_writable_bytes(std::span(pool_)));
    }
    random = pool_.back() & ~kSlotMask;
    pool_.pop_back();
    // The STag is never 0, which peers use for "none", and never this slot's last STag.
  } while (random == 0 || (random | index) == slot->stag);
  *slot = {.stag = random | index,
           .length = static_cast<uint32_t>(memory.size()),
           .base = memory.data(),
           .base_to = reinterpret_cast<uint64_t>(memory.data()),
           .rights = rights,
           .used = true};
  if (IsOpenToWrites(*slot)) ++open_to_writes_;
  return STag(slot->stag);
}

std::optional<const std::byte*> StagTable::Move(STag stag, MutableBytes memory) {
  const Region* region = Find(stag);
  if (region == nullptr || region->length != memory.size()) return std::nullopt;
  return std::exchange(regions_[region - regions_.data()].base, memory.data());
}

bool StagTable::Deregister(STag stag) {
  const Region* region = Find(stag);
  if (region == nullptr) return false;
  if (IsOpenToWrites(*region)) --open_to_writes_;
  regions_[region - regions_.data()].used = false;
  return true;
}

bool StagTable::CanInvalidateByPeer(STag stag) const {
  const Region* region = Find(stag);
  return region != nullptr && region->rights != Rights::kLocal;
}

bool StagTable::empty() const {
  return std::none_of(regions_.begin(), regions_.end(), [](const Region& r) { return r.used; });
}

bool StagTable::InvalidateByPeer(STag stag) { return CanInvalidateByPeer(stag) && Deregister(stag); }

uint64_t StagTable::RoomAt(STag stag, uint64_t to) const {
  const Region* region = Find(stag);
  if (region == nullptr || to < region->base_to || to - region->base_to > region->length) return 0;
  return region->length - (to - region->base_to);
}

Result<std::byte*, AccessError> StagTable::Access(STag stag, uint64_t to, uint32_t length,
                                                  Rights needed) const {
  const Region* region = Find(stag);
  if (region == nullptr) return unexpected(AccessError::kInvalidSTag);
  const auto bits = static_cast<uint8_t>(needed);
  if ((static_cast<uint8_t>(region->rights) & bits) != bits) return unexpected(AccessError::kRights);
  if (to + length < to) return unexpected(AccessError::kToWrap);
  const uint64_t base_to = region->base_to;
  if (to < base_to || to - base_to > region->length || length > region->length - (to - base_to)) {
    return unexpected(AccessError::kBounds);
  }
  return region->base + (to - base_to);
}

const StagTable::Region* StagTable::Find(STag stag) const {
  const uint32_t index = stag.value() & kSlotMask;
  if (index >= regions_.size()) return nullptr;
  const Region& region = regions_[index];
  return region.used && region.stag == stag.value() ? &region : nullptr;
}

}  // namespace sdp::iwarp
