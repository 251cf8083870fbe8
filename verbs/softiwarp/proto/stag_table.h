// The memory that one QueuePair has registered: STags, bounds and rights (RFC 5041, section 7.1; RFC 5040,
// section 7.2).
#ifndef SDP_VERBS_SOFTIWARP_PROTO_STAG_TABLE_H_
#define SDP_VERBS_SOFTIWARP_PROTO_STAG_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/base/types.h"

namespace sdp::iwarp {

// Why an access is refused. DDP and RDMAP each have codes of their own for these.
enum class AccessError : uint8_t { kInvalidSTag, kBounds, kRights, kToWrap };

enum class Rights : uint8_t { kLocal = 0, kRemoteRead = 1, kRemoteWrite = 2, kRemoteReadWrite = 3 };

// An STag consists of a slot number and random bits above it. STags are sparse and unpredictable. An STag is
// never valid on another connection, because each QueuePair has a table of its own.
class StagTable {
 public:
  // Fills memory with unpredictable bytes.
  using RandomSource = void (*)(MutableBytes);
  explicit StagTable(RandomSource random) : random_(random) {}

  // Registers a region whose base TO is the address of its first byte. Returns nullopt if there are too many
  // regions, or if 32 bits do not hold the length.
  std::optional<STag> Register(MutableBytes memory, Rights rights);
  // Moves the region's bytes to `memory`; its TOs stay. Returns the old place, or nullopt if there is no such
  // region of that length.
  std::optional<const std::byte*> Move(STag stag, MutableBytes memory);
  // Returns false if there is no such region.
  bool Deregister(STag stag);
  // Deregisters for the peer's Send with Invalidate: the peer can invalidate only a region that is open to
  // it.
  bool InvalidateByPeer(STag stag);
  [[nodiscard]] bool CanInvalidateByPeer(STag stag) const;
  // Returns true if no memory is registered.
  [[nodiscard]] bool empty() const;
  [[nodiscard]] bool Contains(STag stag) const { return Find(stag) != nullptr; }
  // Returns true if at least one region is open to the peer's RDMA Writes.
  [[nodiscard]] bool open_to_writes() const { return open_to_writes_ != 0; }
  // Returns the number of bytes of the region from `to` on; 0 if `to` is outside it.
  [[nodiscard]] uint64_t RoomAt(STag stag, uint64_t to) const;
  // Returns the address of [to, to + length) in the region, if it has the rights `needed`; kLocal: always
  // granted.
  [[nodiscard]] Result<std::byte*, AccessError> Access(STag stag, uint64_t to, uint32_t length,
                                                       Rights needed) const;

 private:
  struct Region {
    uint32_t stag = 0;
    uint32_t length = 0;
    std::byte* base = nullptr;
    uint64_t base_to = 0;
    Rights rights = Rights::kLocal;
    bool used = false;
  };
  [[nodiscard]] const Region* Find(STag stag) const;
  static bool IsOpenToWrites(const Region& region) {
    return (static_cast<uint8_t>(region.rights) & static_cast<uint8_t>(Rights::kRemoteWrite)) != 0;
  }

  RandomSource random_;
  std::vector<uint32_t> pool_;  // random bits, so that one system call serves many regions
  std::vector<Region> regions_;
  uint32_t open_to_writes_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_STAG_TABLE_H_
