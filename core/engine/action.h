#ifndef SDP_CORE_ENGINE_ACTION_H_
#define SDP_CORE_ENGINE_ACTION_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "core/base/types.h"

namespace sdp::engine {

inline constexpr size_t kMaxHeader = 36;  // BSDH and SinkAH, the longest
inline constexpr size_t kMaxPayloadPieces = 8;

// Post one SDP message as an iWARP Send. Posted in the order polled: that is MSeq order (10.1).
struct PostSend {
  WorkId id{};
  bool signaled = false;
  bool solicited = false;  // 14.2
  std::optional<STag> invalidate{};
  uint8_t header_size = 0;
  uint8_t piece_count = 0;
  std::array<std::byte, kMaxHeader> header{};
  std::array<Bytes, kMaxPayloadPieces> pieces{};

  [[nodiscard]] Bytes header_bytes() const { return {header.data(), header_size}; }
  [[nodiscard]] std::span<const Bytes> payload() const { return {pieces.data(), piece_count}; }
};

// `count` more receive Private Buffers, already counted in the Bufs of later messages. Always polled before
// those messages.
struct PostReceives {
  uint32_t count = 0;
};

// The receive Private Buffers posted from now on have this size (10.6), about `count` of them. If there is no
// memory for them, HandleReceiveSizeRefused() is called before the next action is polled.
struct SetReceiveSize {
  uint32_t bytes = 0;
  uint32_t count = 0;
};

// The engine no longer needs the received message's memory.
struct ReleaseReceive {
  uint64_t token = 0;
};

// Read the peer's memory (9.2) into the memory of OfferSink(). Its completion is handed to
// HandleRdmaReadCompleted. Reads are polled, posted and completed in one order.
struct PostRdmaRead {
  WorkId id{};
  uint32_t length = 0;
  STag local_stag{};  // as OfferSink() named it
  uint64_t local_va = 0;
  STag remote_stag{};
  uint64_t remote_va = 0;
};

// Write to the peer's memory (9.3) from the memory of OfferSource(), signaled: its completion is handed to
// HandleRdmaWriteCompleted.
struct PostRdmaWrite {
  WorkId id{};
  Bytes local{};
  STag local_stag{};  // as OfferSource() named it
  STag remote_stag{};
  uint64_t remote_va = 0;
};

// Both DisConns are exchanged, or ours is sent and the peer's link is gone: end the LLP connection in good
// order.
struct DisconnectLink {};

// Terminate the LLP connection at once (8.2.2).
struct AbortLink {};

using Action = std::variant<PostSend, PostReceives, SetReceiveSize, ReleaseReceive, PostRdmaRead,
                            PostRdmaWrite, DisconnectLink, AbortLink>;

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_ACTION_H_
