#include "verbs/ibv/receive_pool.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace sdp::ibv {
namespace {

constexpr size_t kMaxChain = 16;
// A slab is this large, or one buffer.
constexpr size_t kSlabSize = 256 * 1024;

}  // namespace

bool ReceivePool::Post(uint32_t count) {
  wanted_ += count;
  return PostWanted();
}

bool ReceivePool::PostWanted() {
  while (wanted_ > 0 && posted_ < resources_.depths.receives) {
    std::array<ibv_recv_wr, kMaxChain> works{};
    std::array<ibv_sge, kMaxChain> parts{};
    const size_t room = std::min<size_t>({wanted_, resources_.depths.receives - posted_, kMaxChain});
    size_t count = 0;
    while (count < room) {
      if (free_.empty() && !Grow()) {
        if (count == 0) return false;
        break;
      }
      const uint32_t index = free_.back();
      free_.pop_back();
      Slot& slot = slots_[index];
      if (slot.size < buffer_size_) continue;  // of a smaller size that is no longer wanted: out of use
      slot.posted = true;
      parts[count] = {
          .addr = reinterpret_cast<uint64_t>(slot.data), .length = buffer_size_, .lkey = slot.key};
      works[count].wr_id = index;
      works[count].sg_list = &parts[count];
      works[count].num_sge = 1;
      if (count > 0) works[count - 1].next = &works[count];
      ++count;
    }
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(resources_.id->qp, works.data(), &bad) != 0) {
      for (const ibv_recv_wr* work = bad; work != nullptr; work = work->next) {
        slots_[work->wr_id].posted = false;
        free_.push_back(static_cast<uint32_t>(work->wr_id));
        --count;
      }
      wanted_ -= static_cast<uint32_t>(count);
      posted_ += static_cast<uint32_t>(count);
      return true;  // the queue pair is in error: its end is on its way
    }
    wanted_ -= static_cast<uint32_t>(count);
    posted_ += static_cast<uint32_t>(count);
  }
  return true;
}

bool ReceivePool::Grow() {
  const size_t size = std::max<size_t>(buffer_size_, 1);
  const size_t per_slab = std::max<size_t>(kSlabSize / size, 1);
  auto slab = RegisteredMemory::Make(resources_.api, resources_.pd, per_slab * size, IBV_ACCESS_LOCAL_WRITE);
  if (slab == nullptr) return false;
  for (size_t i = 0; i < per_slab; ++i) {
    free_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.push_back({.data = slab->data() + i * size,
                      .key = slab->key(),
                      .size = static_cast<uint32_t>(size),
                      .posted = false});
  }
  slabs_.push_back(std::move(slab));
  return true;
}

const std::byte* ReceivePool::Take(uint64_t id) {
  if (id >= slots_.size() || !slots_[id].posted) return nullptr;
  slots_[id].posted = false;
  --posted_;
  ++lent_;
  return slots_[id].data;
}

bool ReceivePool::Free(uint64_t id) {
  --lent_;
  free_.push_back(static_cast<uint32_t>(id));
  return wanted_ == 0 || PostWanted();
}

}  // namespace sdp::ibv
