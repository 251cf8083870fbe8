// The PMAccepts that wait for their PMAck: a fixed number of places, in the order of their deadlines.
#ifndef SDP_PORTMAPPER_ENGINE_TRANSACTION_TABLE_H_
#define SDP_PORTMAPPER_ENGINE_TRANSACTION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
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

// What Put did to other transactions.
struct PutOutcome {
  std::optional<AssocHandle> replaced;  // the handle of the one with the same four-tuple
  bool over_oldest = false;             // the table was full
};

class TransactionTable {
 public:
  // All memory is taken here; capacity is from 1 to 2^28.
  TransactionTable(size_t capacity, const HashKey& key);

  // By the four-tuple (ApPort, CpPort, ApIPAddr, CpIPAddr) of the PMReq; null if there is none. Valid until
  // the next change.
  [[nodiscard]] const Transaction* FindByRequest(const Endpoint& cp, const Endpoint& asked) const;

  // Stores a transaction in place of one with the same four-tuple, or of the same PMAck (the PMAck could free
  // only one of them), or, when the table is full, of the one that has waited longest. Deadlines come in
  // ascending order: the caller has one time-out and a clock that does not go back.
  PutOutcome Put(const Transaction& transaction);

  // Frees the transaction that this PMAck ends. False if there is none.
  bool RemoveByAck(AssocHandle handle, const Endpoint& cp, const Endpoint& answered);
  // Frees the one of this four-tuple, and returns its handle; empty if there is none.
  std::optional<AssocHandle> RemoveByRequest(const Endpoint& cp, const Endpoint& asked);
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
    uint32_t request_bucket = 0;
    uint32_t ack_bucket = 0;
    uint32_t next_by_request = kNone;
    uint32_t next_by_ack = kNone;
  };
  using Chain = uint32_t Slot::*;

  // `cp_hash`: of CpIPAddr and CpPort, which both buckets are made of.
  [[nodiscard]] uint32_t RequestBucket(uint64_t cp_hash, const Endpoint& asked) const;
  [[nodiscard]] uint32_t AckBucket(uint64_t cp_hash, AssocHandle handle) const;
  [[nodiscard]] uint32_t IndexByRequest(uint32_t bucket, const Endpoint& cp, const Endpoint& asked) const;
  [[nodiscard]] uint32_t IndexByAck(uint32_t bucket, AssocHandle handle, const Endpoint& cp,
                                    const Endpoint& answered) const;
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
