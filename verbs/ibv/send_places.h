// Registered memory for the bytes of outgoing work requests of one connection. It consists of a ring, a
// second ring for Sends that must stay until the peer has them, and separate memory for messages too long for
// the ring.
#ifndef SDP_VERBS_IBV_SEND_PLACES_H_
#define SDP_VERBS_IBV_SEND_PLACES_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "verbs/ibv/ibv_resources.h"
#include "verbs/ibv/kept_sends.h"
#include "verbs/ibv/send_ring.h"

namespace sdp::ibv {

// Memory for the bytes of one work request.
struct SendPlace {
  std::byte* data = nullptr;
  uint32_t key = 0;
  uint64_t ring_mark = 0;                        // FreeUpTo() it when the device is done with the request
  bool kept = false;                             // the bytes are in the second ring
  std::unique_ptr<RegisteredMemory> own_memory;  // of a message too long for the ring
};

class SendPlaces {
 public:
  // `resources` has a protection domain and outlives this.
  explicit SendPlaces(const Resources& resources) : resources_(resources) {}
  ~SendPlaces();
  SendPlaces(const SendPlaces&) = delete;
  SendPlaces& operator=(const SendPlaces&) = delete;

  // Makes the ring. Returns false if memory is lacking, and sets errno.
  bool Make(size_t ring_size) { return ring_.Make(resources_, ring_size); }

  enum class Taken : uint8_t {
    kYes,
    kNoRoom,    // until something is freed
    kNoMemory,  // errno says why
  };
  // `long_send`: a long Send that asks for no completion, which a kernel's siw may send from these very pages
  // (kept_sends.h).
  Taken Take(size_t size, bool long_send, SendPlace* place);
  void FreeUpTo(uint64_t mark) { ring_.FreeUpTo(mark); }

  // Counts a Send that leaves from outside the second ring.
  void CountOtherSend() {
    if (kept_) kept_->CountOther();
  }
  // Notes that the peer has all Sends except the last `missing`; `waiting` of these have no place yet.
  void NotePeerHas(uint64_t missing, uint64_t waiting) {
    if (kept_) kept_->NotePeerHas(missing, waiting);
  }

  [[nodiscard]] const SendRing& ring() const { return ring_; }

 private:
  bool TakeKept(size_t size, SendPlace* place);
  bool MakeKept();

  const Resources& resources_;
  SendRing ring_;
  // Made once a number of long Sends were posted.
  std::unique_ptr<RegisteredMemory> kept_memory_;
  std::optional<KeptSends> kept_;
  uint32_t long_sends_ = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_SEND_PLACES_H_
