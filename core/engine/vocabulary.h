// The values that an engine and its owner hand to each other: received messages, the application's buffers,
// flags and results. action.h has the actions, and status.h the engine's reports.
#ifndef SDP_CORE_ENGINE_VOCABULARY_H_
#define SDP_CORE_ENGINE_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/types.h"

namespace sdp::engine {

inline constexpr size_t kHelloSize = 32;     // BSDH and HH
inline constexpr size_t kHelloAckSize = 28;  // BSDH and HAH
inline constexpr size_t kDataHeader = 16;    // BSDH

// A received SDP message, as the RNIC lends it.
struct ReceivedMessage {
  uint32_t length = 0;  // bytes in all pieces
  // In order. The engine reads the span only during the call, and the bytes until it releases the message.
  std::span<const Bytes> pieces{};
  uint64_t token = 0;                 // for ReleaseReceive
  uint32_t cost = 0;                  // the cost of holding it, for Options::receive_limit
  std::optional<STag> invalidated{};  // by the peer's Send with Invalidate
};

// How far Send may copy bytes that the peer's credit does not let leave now.
enum class Buffering : uint8_t {
  kNone,   // nothing: the engine does not read the bytes
  kSmall,  // only a write small enough that coalescing it pays (the caller waits for credit, or reports what
           // was taken)
  kFull,   // up to Options::send_limit (9.5.6: a caller that has waited must not deadlock). Directly
          // after OfferSink(), before any action is polled, all is copied, and travels in the SinkAvail if it
          // fits (9.4)
};

struct SendFlags {
  Buffering buffering = Buffering::kSmall;
  bool out_of_band = false;  // the last byte is Out-Of-Band data (9.5.3)
};

// Why bytes are not a frozen engine.
enum class ThawError : uint8_t {
  kNotAnEngine,
  kOtherVersion,  // from another build of this library
  kBroken,        // truncated, or a state that no engine can have
};

struct ReceiveFlags {
  bool peek = false;
};

// Memory of the application's that the owner has registered on the connection's QueuePair. Memory and
// registration stay until the offer's result was taken.
struct SourceBuffer {
  Bytes data{};     // to be sent, in one piece, at most 2^31 bytes
  STag stag{};      // the peer may RDMA Read it
  uint64_t va = 0;  // Tagged Offset of data[0]
};
struct SinkBuffer {
  MutableBytes data{};  // to be filled, in one piece
  STag stag{};          // sink of our RDMA Reads; if `advertise`, the peer may RDMA Write it, too
  uint64_t va = 0;
  bool advertise = false;  // SinkAvail may advertise it: see SinkWish. Never with MSG_WAITALL (9.3)
};
struct OfferResult {
  // Sent from, or placed into, the beginning of the buffer. Exact, also after a revocation.
  uint64_t bytes = 0;
  // The peer's Send with Invalidate has named the STag, so the RNIC no longer knows it. Messages after an
  // abort do not set this: deregistering such an STag again has no effect.
  bool invalidated = false;
};
// The current use for a receive buffer.
enum class SinkWish : uint8_t {
  kNothing,    // none: wait for data
  kRead,       // a SrcAvail waits to be read: an offer is filled from it
  kAdvertise,  // Pipelined Mode, nothing to read: an offer with `advertise` lets the peer write before it is
               // ready
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_VOCABULARY_H_
