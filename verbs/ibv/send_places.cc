#include "verbs/ibv/send_places.h"

#include <atomic>
#include <utility>

namespace sdp::ibv {
namespace {

// The size of the memory for kept Sends, and the number of long Sends before it is made. The memory is
// pinned, so a process that may pin little does without.
constexpr size_t kKeptSize = 1024 * 1024;
constexpr uint32_t kLongSendsBefore = 16;
constexpr uint64_t kKeptPerLimit = 64;
// The fraction of that limit that all connections together may take.
constexpr uint64_t kAllKeptPerLimit = 8;
std::atomic<size_t> all_kept{0};

}  // namespace

SendPlaces::~SendPlaces() {
  if (kept_memory_ != nullptr) all_kept.fetch_sub(kKeptSize, std::memory_order_relaxed);
}

SendPlaces::Taken SendPlaces::Take(size_t size, bool long_send, SendPlace* place) {
  if (long_send && resources_.sends_pages && TakeKept(size, place)) return Taken::kYes;
  if (size > ring_.largest()) {
    place->own_memory = RegisteredMemory::Make(resources_.api, resources_.pd, size, IBV_ACCESS_LOCAL_WRITE);
    if (place->own_memory == nullptr) return Taken::kNoMemory;
    place->data = place->own_memory->data();
    place->key = place->own_memory->key();
  } else {
    place->data = ring_.Take(size);
    if (place->data == nullptr) return Taken::kNoRoom;
    place->key = ring_.key();
  }
  place->ring_mark = ring_.mark();
  return Taken::kYes;
}

bool SendPlaces::TakeKept(size_t size, SendPlace* place) {
  if (kept_memory_ == nullptr && !MakeKept()) return false;
  if (size > kept_->largest()) return false;
  const std::optional<size_t> start = kept_->Keep(size);
  if (!start) return false;
  *place = {.data = kept_memory_->data() + *start,
            .key = kept_memory_->key(),
            .ring_mark = ring_.mark(),
            .kept = true,
            .own_memory = nullptr};
  return true;
}

// One attempt only: a connection whose attempt failed uses the ring for all Sends.
bool SendPlaces::MakeKept() {
  if (long_sends_ > kLongSendsBefore || ++long_sends_ <= kLongSendsBefore) return false;
  if (resources_.lockable / kKeptPerLimit < kKeptSize) return false;
  if (all_kept.fetch_add(kKeptSize, std::memory_order_relaxed) + kKeptSize <=
      resources_.lockable / kAllKeptPerLimit) {
    kept_memory_ = RegisteredMemory::Make(resources_.api, resources_.pd, kKeptSize, IBV_ACCESS_LOCAL_WRITE);
  }
  if (kept_memory_ == nullptr) {
    all_kept.fetch_sub(kKeptSize, std::memory_order_relaxed);
    return false;
  }
  kept_.emplace(kept_memory_->size());
  return true;
}

}  // namespace sdp::ibv
