#include "portmapper/engine/transaction_table.h"

#include "core/base/check.h"

namespace sdp::pm {

TransactionTable::TransactionTable(size_t capacity) : slots_(capacity) {
  SDP_CHECK(capacity > 0 && capacity < kNone);
  for (uint32_t i = 0; i + 1 < capacity; ++i) slots_[i].next = i + 1;
  by_request_.reserve(capacity);
  by_ack_.reserve(capacity);
}

const Transaction* TransactionTable::FindByRequest(const Endpoint& cp, const Endpoint& asked) const {
  const auto found = by_request_.find({cp, asked});
  return found == by_request_.end() ? nullptr : &slots_[found->second].transaction;
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
  slot = {transaction, newest_, kNone};
  (newest_ == kNone ? oldest_ : slots_[newest_].next) = index;
  newest_ = index;
  by_request_.emplace(RequestKey{transaction.cp, transaction.asked}, index);
  by_ack_.emplace(AckKey{transaction.handle, transaction.cp, transaction.answered}, index);
  return full ? PutOutcome::kStoredOverOldest : PutOutcome::kStored;
}

bool TransactionTable::RemoveByAck(AssocHandle handle, const Endpoint& cp, const Endpoint& answered) {
  const auto found = by_ack_.find({handle, cp, answered});
  if (found == by_ack_.end()) return false;
  Free(found->second);
  return true;
}

bool TransactionTable::RemoveByRequest(const Endpoint& cp, const Endpoint& asked) {
  const auto found = by_request_.find({cp, asked});
  if (found == by_request_.end()) return false;
  Free(found->second);
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

void TransactionTable::Free(uint32_t index) {
  Slot& slot = slots_[index];
  const Transaction& transaction = slot.transaction;
  by_request_.erase({transaction.cp, transaction.asked});
  by_ack_.erase({transaction.handle, transaction.cp, transaction.answered});
  (slot.previous == kNone ? oldest_ : slots_[slot.previous].next) = slot.next;
  (slot.next == kNone ? newest_ : slots_[slot.next].previous) = slot.previous;
  slot.next = free_;
  free_ = index;
}

bool TransactionTable::IsConsistent() const {
  size_t waiting = 0;
  uint32_t previous = kNone;
  for (uint32_t i = oldest_; i != kNone; previous = i, i = slots_[i].next) {
    const Slot& slot = slots_[i];
    const Transaction& transaction = slot.transaction;
    const auto request = by_request_.find({transaction.cp, transaction.asked});
    const auto ack = by_ack_.find({transaction.handle, transaction.cp, transaction.answered});
    if (request == by_request_.end() || request->second != i || ack == by_ack_.end() || ack->second != i)
      return false;
    if (slot.previous != previous || ++waiting > slots_.size()) return false;
    if (previous != kNone && slots_[previous].transaction.deadline > transaction.deadline) return false;
  }
  size_t unused = 0;
  for (uint32_t i = free_; i != kNone && unused <= slots_.size(); i = slots_[i].next) ++unused;
  return previous == newest_ && waiting == by_request_.size() && waiting == by_ack_.size() &&
         waiting + unused == slots_.size();
}

}  // namespace sdp::pm
