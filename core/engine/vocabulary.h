// What an engine and its owner hand to each other: received messages, the application's buffers, flags and
// results. The actions are in action.h, what an engine tells about itself is in status.h.
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

// A received SDP message, as the RNIC lends it.
struct ReceivedMessage {
  uint32_t length = 0;  // bytes in all pieces
  std::span<const Bytes>
      pieces{};        // in order; the span itself is only read during the call, the bytes until release
  uint64_t token = 0;  // for ReleaseReceive
  uint32_t cost = 0;   // what holding it costs, for Options::receive_limit
  std::optional<STag> invalidated{};  // by Send with Invalidate
};

// How far Send may copy what the peer's credit does not allow to leave now.
enum class Buffering : uint8_t {
  kNone,   // nothing: the bytes are not even looked at
  kSmall,  // only a write small enough that coalescing it pays (the caller waits for credit, or reports what
           // was taken)
  kFull,   // up to Options::send_limit (9.5.6: a caller that has waited must not deadlock). Right behind
           // OfferSink(), before any action is polled, all is copied, and travels in the SinkAvail if it
           // fits (9.4)
};

struct SendFlags {
  Buffering buffering = Buffering::kSmall;
  bool out_of_band = false;  // the last byte is Out-Of-Band data (9.5.3)
};

// Why bytes are no frozen engine.
enum class ThawError : uint8_t {
  kNotAnEngine,
  kOtherVersion,  // of another build of this library
  kBroken,        // cut short, or a state that no engine can be in
};

struct ReceiveFlags {
  bool peek = false;
};

// Memory of the application's that the owner has registered on the connection's QueuePair. Both stay until
// the offer's result was taken.
struct SourceBuffer {
  Bytes data{};     // to be sent, in one piece, at most 2^31 bytes
  STag stag{};      // the peer may RDMA Read it
  uint64_t va = 0;  // Tagged Offset of data[0]
};
struct SinkBuffer {
  MutableBytes data{};  // to be filled, in one piece
  STag stag{};          // sink of our RDMA Reads; if `advertise`, the peer may RDMA Write it, too
  uint64_t va = 0;
  bool advertise = false;  // may be told to the peer by SinkAvail: see SinkWish. Never with MSG_WAITALL (9.3)
};
struct OfferResult {
  uint64_t bytes =
      0;  // sent from, or placed into, the beginning of the buffer. Exact, also after a revocation
  bool invalidated =
      false;  // the peer's Send with Invalidate has named the STag: the RNIC knows it no longer. Not said of
              // what comes after an abort: to deregister such an STag again has no effect
};
// What a receive buffer would be used for now.
enum class SinkWish : uint8_t {
  kNothing,    // wait for data as ever
  kRead,       // a SrcAvail waits to be read: an offer is filled from it
  kAdvertise,  // Pipelined Mode, nothing to read: an offer with `advertise` lets the peer write before it is
               // ready
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_VOCABULARY_H_
