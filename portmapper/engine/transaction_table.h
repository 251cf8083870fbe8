// The PMAccepts that wait for their PMAck: a fixed number of places, in the order of their deadlines.
#ifndef SDP_PORTMAPPER_ENGINE_TRANSACTION_TABLE_H_
#define SDP_PORTMAPPER_ENGINE_TRANSACTION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/keyed_hash.h"
#include "portmapper/wire/pm_message.h"

namespace sdp::pm {

struct Transaction {
  AssocHandle handle;
  Endpoint cp;        // CpIPAddr, CpPort
  Endpoint asked;     // ApIPAddr, ApPort of the PMReq
  Endpoint answered;  // ApIPAddr, ApPort of the PMAccept
  Time deadline{};
};

// What Put had to do to other transactions to make room.
enum class PutOutcome : uint8_t { kStored, kStoredOverOldest };

class TransactionTable {
 public:
  // All memory is taken here; capacity is at least 1.
  TransactionTable(size_t capacity, const HashKey& key);

  // By the four-tuple (ApPort, CpPort, ApIPAddr, CpIPAddr) of the PMReq; null if there is none. Valid until
  // the next change.
  [[nodiscard]] const Transaction* FindByRequest(const Endpoint& cp, const Endpoint& asked) const;

  // Stores a transaction in place of one with the same four-tuple, or of the same PMAck (the PMAck could free
  // only one of them), or, when the table is full, of the one that has waited longest. Deadlines come in
  // ascending order: the caller has one time-out and a clock that does not go back.
  PutOutcome Put(const Transaction& transaction);

  // Frees the transaction that this PMAck ends, or the one of this four-tuple. False if there is none.
  bool RemoveByAck(AssocHandle handle, const Endpoint& cp, const Endpoint& answered);
  bool RemoveByRequest(const Endpoint& cp, const Endpoint& asked);
  // Frees what has its deadline at or before `now`; returns how many.
  size_t RemoveExpired(Time now);

  // kNever if nothing waits.
  [[nodiscard]] Time EarliestDeadline() const;
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] size_t capacity() const { return slots_.size(); }
  [[nodiscard]] bool IsConsistent() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Slot {
    Transaction transaction;
    uint32_t previous = kNone;  // in the order of deadlines
    uint32_t next = kNone;      // the same; also chains the free slots
    uint32_t next_by_request = kNone;
    uint32_t next_by_ack = kNone;
  };
  using Chain = uint32_t Slot::*;

  [[nodiscard]] size_t RequestBucket(const Endpoint& cp, const Endpoint& asked) const;
  [[nodiscard]] size_t AckBucket(AssocHandle handle, const Endpoint& cp) const;
  [[nodiscard]] uint32_t IndexByRequest(const Endpoint& cp, const Endpoint& asked) const;
  [[nodiscard]] uint32_t IndexByAck(AssocHandle handle, const Endpoint& cp, const Endpoint& answered) const;
  void Unchain(uint32_t* head, Chain next, uint32_t index);
  void Free(uint32_t index);

  HashKey key_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> by_request_;  // heads of chains; a power of two of them
  std::vector<uint32_t> by_ack_;
  size_t size_ = 0;
  uint32_t free_ = 0;
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_TRANSACTION_TABLE_H_
