#include "portmapper/engine/transaction_table.h"

#include <bit>

#include "core/base/check.h"

namespace sdp::pm {
TransactionTable::TransactionTable(size_t capacity, const HashKey& key)
    : key_(key),
      slots_(capacity),
      by_request_(std::bit_ceil(capacity), kNone),
      by_ack_(by_request_.size(), kNone) {
  SDP_CHECK(capacity > 0 && capacity < kNone);
  for (uint32_t i = 0; i + 1 < capacity; ++i) slots_[i].next = i + 1;
}

const Transaction* TransactionTable::FindByRequest(const Endpoint& cp, const Endpoint& asked) const {
  const uint32_t index = IndexByRequest(cp, asked);
  return index == kNone ? nullptr : &slots_[index].transaction;
}

PutOutcome TransactionTable::Put(const Transaction& transaction) {
  SDP_CHECK(newest_ == kNone || slots_[newest_].transaction.deadline <= transaction.deadline);
  RemoveByRequest(transaction.cp, transaction.asked);
  RemoveByAck(transaction.handle, transaction.cp, transaction.answered);
  const bool full = free_ == kNone;
  if (full) Free(oldest_);

  const uint32_t index = free_;
  Slot& slot = slots_[index];
  free_ = slot.next;
  uint32_t& request_head = by_request_[RequestBucket(transaction.cp, transaction.asked)];
  uint32_t& ack_head = by_ack_[AckBucket(transaction.handle, transaction.cp)];
  slot = {transaction, newest_, kNone, request_head, ack_head};
  request_head = ack_head = index;
  (newest_ == kNone ? oldest_ : slots_[newest_].next) = index;
  newest_ = index;
  ++size_;
  return full ? PutOutcome::kStoredOverOldest : PutOutcome::kStored;
}

bool TransactionTable::RemoveByAck(AssocHandle handle, const Endpoint& cp, const Endpoint& answered) {
  const uint32_t index = IndexByAck(handle, cp, answered);
  if (index == kNone) return false;
  Free(index);
  return true;
}

bool TransactionTable::RemoveByRequest(const Endpoint& cp, const Endpoint& asked) {
  const uint32_t index = IndexByRequest(cp, asked);
  if (index == kNone) return false;
  Free(index);
  return true;
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

size_t TransactionTable::RequestBucket(const Endpoint& cp, const Endpoint& asked) const {
  return Fold(KeyedHash(cp, key_), KeyedHash(asked, key_) ^ key_[1]) & (by_request_.size() - 1);
}

size_t TransactionTable::AckBucket(AssocHandle handle, const Endpoint& cp) const {
  return Fold(KeyedHash(cp, key_), handle.value() ^ key_[1]) & (by_ack_.size() - 1);
}

uint32_t TransactionTable::IndexByRequest(const Endpoint& cp, const Endpoint& asked) const {
  uint32_t index = by_request_[RequestBucket(cp, asked)];
  while (index != kNone &&
         !(slots_[index].transaction.cp == cp && slots_[index].transaction.asked == asked)) {
    index = slots_[index].next_by_request;
  }
  return index;
}

uint32_t TransactionTable::IndexByAck(AssocHandle handle, const Endpoint& cp,
                                      const Endpoint& answered) const {
  uint32_t index = by_ack_[AckBucket(handle, cp)];
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
  const Transaction& t = slot.transaction;
  Unchain(&by_request_[RequestBucket(t.cp, t.asked)], &Slot::next_by_request, index);
  Unchain(&by_ack_[AckBucket(t.handle, t.cp)], &Slot::next_by_ack, index);
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
    if (IndexByRequest(t.cp, t.asked) != i || IndexByAck(t.handle, t.cp, t.answered) != i) return false;
    if (slots_[i].previous != previous || ++waiting > slots_.size()) return false;
    if (previous != kNone && slots_[previous].transaction.deadline > t.deadline) return false;
  }
  size_t unused = 0;
  for (uint32_t i = free_; i != kNone && unused <= slots_.size(); i = slots_[i].next) ++unused;
  return previous == newest_ && waiting == size_ && waiting + unused == slots_.size();
}

}  // namespace sdp::pm
