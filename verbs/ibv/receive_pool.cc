#include "verbs/ibv/receive_pool.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace sdp::ibv {
namespace {

constexpr size_t kMaxChain = 16;
// A slab has this size, or holds one buffer if that is larger.
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
      slot.posted = true;
      parts[count] = {.addr = reinterpret_cast<uint64_t>(slot.data),
                      .length = buffer_size_,
                      .lkey = slabs_[slot.slab].memory->key()};
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
      return true;  // the queue pair is in error, and its end will be reported
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
  auto place = std::find_if(slabs_.begin(), slabs_.end(), [](const Slab& s) { return s.memory == nullptr; });
  if (place == slabs_.end()) place = slabs_.emplace(slabs_.end());
  for (size_t i = 0; i < per_slab; ++i) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const uint32_t index = unused_.back();
    unused_.pop_back();
    slots_[index] = {.data = slab->data() + i * size,
                     .slab = static_cast<uint32_t>(place - slabs_.begin()),
                     .size = static_cast<uint32_t>(size),
                     .posted = false};
    free_.push_back(index);
  }
  *place = {.memory = std::move(slab), .slots = static_cast<uint32_t>(per_slab)};
  return true;
}

bool ReceivePool::SetSize(uint32_t bytes, uint32_t count) {
  if (bytes == buffer_size_) return true;
  const uint32_t old_size = std::exchange(buffer_size_, bytes);
  std::vector<uint32_t> others = std::exchange(free_, {});
  bool enough = true;
  while (enough && free_.size() < std::min(count, resources_.depths.receives)) enough = Grow();
  if (!enough) {
    buffer_size_ = old_size;
    std::swap(free_, others);
  }
  for (const uint32_t index : others) PutOutOfUse(index);
  return enough;
}

// The slab goes with its last slot. The slot's number may be used again, because no posted buffer has it.
void ReceivePool::PutOutOfUse(uint32_t index) {
  Slab& slab = slabs_[slots_[index].slab];
  if (--slab.slots == 0) slab.memory.reset();
  unused_.push_back(index);
}

size_t ReceivePool::bytes() const {
  size_t bytes = 0;
  for (const Slab& slab : slabs_) bytes += slab.memory != nullptr ? slab.memory->size() : 0;
  return bytes;
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
  if (slots_[id].size == buffer_size_) {
    free_.push_back(static_cast<uint32_t>(id));
  } else {
    PutOutOfUse(static_cast<uint32_t>(id));
  }
  return wanted_ == 0 || PostWanted();
}

}  // namespace sdp::ibv
