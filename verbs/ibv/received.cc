#include "verbs/ibv/received.h"

#include <cstring>

namespace sdp::ibv {
namespace {

// The most messages that Poll takes, so that the owner consumes their bytes while the cache has them.
constexpr size_t kMostAtOnce = 32;
// While more buffers than this are lent, small messages are copied out.
constexpr uint32_t kMostLent = 8;
constexpr uint32_t kCopyCost = 64;
// A token is the number of a buffer or of a copy, above these two bits. Token 0 stands for neither.
constexpr uint64_t kBufferToken = 1;
constexpr uint64_t kCopyToken = 2;
constexpr int kTokenBits = 2;

}  // namespace

Received::Received(Resources& resources, Arming& arming, Ending& ending, Regions& regions,
                   Completed& completed, verbs::QpCounters& counters, uint32_t buffer_size)
    : resources_(resources),
      arming_(arming),
      ending_(ending),
      regions_(regions),
      completed_(completed),
      counters_(counters),
      pool_(resources, buffer_size) {}

bool Received::Poll() {
  std::array<ibv_wc, kMostAtOnce> done;
  const int count = ibv_poll_cq(resources_.receive_cq, static_cast<int>(done.size()), done.data());
  if (count > 0) arming_.NoteReceives();
  for (int i = 0; i < count; ++i) HandleCompletion(done[static_cast<size_t>(i)]);
  return count > 0;
}

void Received::HandleCompletion(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    ending_.NoteFailure(wc, "a receive");
    return;
  }
  const std::byte* data = pool_.Take(wc.wr_id);
  if (data == nullptr) return;
  ++counters_.fpdus_in;
  counters_.bytes_in += wc.byte_len;
  verbs::Completion completion;
  completion.opcode = verbs::Opcode::kReceive;
  completion.length = wc.byte_len;
  if ((wc.wc_flags & IBV_WC_WITH_INV) != 0) {
    completion.invalidated = STag(wc.invalidated_rkey);
    // The device has invalidated the STag; deregister the region that remains.
    regions_.Deregister(*completion.invalidated);
  }
  if (wc.byte_len > kCopyLimit || (wc.byte_len > 0 && pool_.lent() <= kMostLent)) {
    completion.token = verbs::ReceiveToken(wc.wr_id << kTokenBits | kBufferToken);
  } else {
    if (wc.byte_len > 0) {
      const uint32_t index = CopyOut(data, wc.byte_len);
      data = copies_[index].data();
      completion.token = verbs::ReceiveToken(uint64_t{index} << kTokenBits | kCopyToken);
    }
    pool_.Free(wc.wr_id);
  }
  if (wc.byte_len > 0) {
    completion.piece_count = 1;
    completion.pieces[0] = Bytes(data, wc.byte_len);
  }
  completed_.Push(completion);
}

uint32_t Received::CopyOut(const std::byte* data, uint32_t size) {
  if (free_copies_.empty()) {
    free_copies_.push_back(static_cast<uint32_t>(copies_.size()));
    copies_.emplace_back();
  }
  const uint32_t index = free_copies_.back();
  free_copies_.pop_back();
  std::memcpy(copies_[index].data(), data, size);
  return index;
}

bool Received::Release(verbs::ReceiveToken token) {
  const uint64_t number = token.value() >> kTokenBits;
  switch (token.value() & ((1 << kTokenBits) - 1)) {
    case kBufferToken:
      return pool_.Free(number);
    case kCopyToken:
      free_copies_.push_back(static_cast<uint32_t>(number));
      return true;
    default:
      return true;
  }
}

uint32_t Received::Cost(uint32_t length) const {
  return length <= kCopyLimit ? length + kCopyCost : pool_.buffer_size();
}

}  // namespace sdp::ibv
