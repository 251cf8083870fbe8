#include "portmapper/engine/transaction_table.h"

#include <bit>

#include "core/base/check.h"

namespace sdp::pm {
namespace {

// A look-up that finds nothing, as for each new question, seldom has to look at a transaction.
constexpr size_t kBucketsPerSlot = 4;

}  // namespace

TransactionTable::TransactionTable(size_t capacity, const HashKey& key)
    : key_(key),
      slots_(capacity),
      by_request_(std::bit_ceil(capacity) * kBucketsPerSlot, kNone),
      by_ack_(by_request_.size(), kNone) {
  SDP_CHECK(capacity > 0 && capacity < kNone / kBucketsPerSlot / 2);
  for (uint32_t i = 0; i + 1 < capacity; ++i) slots_[i].next = i + 1;
}

const Transaction* TransactionTable::FindByRequest(const Endpoint& cp, const Endpoint& asked) const {
  const uint32_t index = IndexByRequest(RequestBucket(KeyedHash(cp, key_), asked), cp, asked);
  return index == kNone ? nullptr : &slots_[index].transaction;
}

PutOutcome TransactionTable::Put(const Transaction& transaction) {
  SDP_CHECK(newest_ == kNone || slots_[newest_].transaction.deadline <= transaction.deadline);
  const Transaction& t = transaction;
  const uint64_t cp_hash = KeyedHash(t.cp, key_);
  const uint32_t request_bucket = RequestBucket(cp_hash, t.asked);
  const uint32_t ack_bucket = AckBucket(cp_hash, t.handle);
  // Each look-up would wait for memory of its own: they wait together.
  __builtin_prefetch(&by_request_[request_bucket]);
  __builtin_prefetch(&by_ack_[ack_bucket]);
  if (free_ == kNone) {
    __builtin_prefetch(&by_request_[slots_[oldest_].request_bucket]);
    __builtin_prefetch(&by_ack_[slots_[oldest_].ack_bucket]);
  }
  PutOutcome outcome;
  if (const uint32_t prior = IndexByRequest(request_bucket, t.cp, t.asked); prior != kNone) {
    outcome.replaced = slots_[prior].transaction.handle;
    Free(prior);
  }
  if (const uint32_t prior = IndexByAck(ack_bucket, t.handle, t.cp, t.answered); prior != kNone) Free(prior);
  outcome.over_oldest = free_ == kNone;
  if (outcome.over_oldest) Free(oldest_);

  const uint32_t index = free_;
  Slot& slot = slots_[index];
  free_ = slot.next;
  uint32_t& request_head = by_request_[request_bucket];
  uint32_t& ack_head = by_ack_[ack_bucket];
  slot = {transaction, newest_, kNone, request_bucket, ack_bucket, request_head, ack_head};
  request_head = ack_head = index;
  (newest_ == kNone ? oldest_ : slots_[newest_].next) = index;
  newest_ = index;
  ++size_;
  return outcome;
}

bool TransactionTable::RemoveByAck(AssocHandle handle, const Endpoint& cp, const Endpoint& answered) {
  const uint32_t index = IndexByAck(AckBucket(KeyedHash(cp, key_), handle), handle, cp, answered);
  if (index == kNone) return false;
  Free(index);
  return true;
}

std::optional<AssocHandle> TransactionTable::RemoveByRequest(const Endpoint& cp, const Endpoint& asked) {
  const uint32_t index = IndexByRequest(RequestBucket(KeyedHash(cp, key_), asked), cp, asked);
  if (index == kNone) return std::nullopt;
  const AssocHandle handle = slots_[index].transaction.handle;
  Free(index);
  return handle;
}

size_t TransactionTable::RemoveExpired(Time now) {
  size_t removed = 0;
  while (oldest_ != kNone && slots_[oldest_].transaction.deadline <= now) {
    Free(oldest_);
    ++removed;
  }
  return removed;
}

Time TransactionTable::EarliestDeadline() const {
  return oldest_ == kNone ? kNever : slots_[oldest_].transaction.deadline;
}

uint32_t TransactionTable::RequestBucket(uint64_t cp_hash, const Endpoint& asked) const {
  return static_cast<uint32_t>(Fold(cp_hash, KeyedHash(asked, key_) ^ key_[1]) & (by_request_.size() - 1));
}

uint32_t TransactionTable::AckBucket(uint64_t cp_hash, AssocHandle handle) const {
  return static_cast<uint32_t>(Fold(cp_hash, handle.value() ^ key_[1]) & (by_ack_.size() - 1));
}

uint32_t TransactionTable::IndexByRequest(uint32_t bucket, const Endpoint& cp, const Endpoint& asked) const {
  uint32_t index = by_request_[bucket];
  while (index != kNone &&
         !(slots_[index].transaction.cp == cp && slots_[index].transaction.asked == asked)) {
    index = slots_[index].next_by_request;
  }
  return index;
}

uint32_t TransactionTable::IndexByAck(uint32_t bucket, AssocHandle handle, const Endpoint& cp,
                                      const Endpoint& answered) const {
  uint32_t index = by_ack_[bucket];
  while (index != kNone) {
    const Transaction& t = slots_[index].transaction;
    if (t.handle == handle && t.cp == cp && t.answered == answered) break;
    index = slots_[index].next_by_ack;
  }
  return index;
}

void TransactionTable::Unchain(uint32_t* head, Chain next, uint32_t index) {
  uint32_t* link = head;
  while (*link != index) link = &(slots_[*link].*next);
  *link = slots_[index].*next;
}

void TransactionTable::Free(uint32_t index) {
  Slot& slot = slots_[index];
  Unchain(&by_request_[slot.request_bucket], &Slot::next_by_request, index);
  Unchain(&by_ack_[slot.ack_bucket], &Slot::next_by_ack, index);
  (slot.previous == kNone ? oldest_ : slots_[slot.previous].next) = slot.next;
  (slot.next == kNone ? newest_ : slots_[slot.next].previous) = slot.previous;
  slot.next = free_;
  free_ = index;
  --size_;
}

bool TransactionTable::IsConsistent() const {
  size_t waiting = 0;
  uint32_t previous = kNone;
  for (uint32_t i = oldest_; i != kNone; previous = i, i = slots_[i].next) {
    const Transaction& t = slots_[i].transaction;
    const uint64_t cp_hash = KeyedHash(t.cp, key_);
    if (IndexByRequest(RequestBucket(cp_hash, t.asked), t.cp, t.asked) != i ||
        IndexByAck(AckBucket(cp_hash, t.handle), t.handle, t.cp, t.answered) != i) {
      return false;
    }
    if (slots_[i].previous != previous || ++waiting > slots_.size()) return false;
    if (previous != kNone && slots_[previous].transaction.deadline > t.deadline) return false;
  }
  size_t unused = 0;
  for (uint32_t i = free_; i != kNone && unused <= slots_.size(); i = slots_[i].next) ++unused;
  return previous == newest_ && waiting == size_ && waiting + unused == slots_.size();
}

}  // namespace sdp::pm
