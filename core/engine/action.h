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

// Asks for one SDP message to be posted as an iWARP Send. Posting in the order polled is MSeq order (10.1).
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

// Asks for `count` more receive Private Buffers, already counted in the Bufs of later messages. This action
// is always polled before those messages.
struct PostReceives {
  uint32_t count = 0;
};

// Sets the size of the receive Private Buffers posted from now on (10.6), about `count` of them. If memory
// for them is lacking, the owner calls HandleReceiveSizeRefused() before it polls the next action.
struct SetReceiveSize {
  uint32_t bytes = 0;
  uint32_t count = 0;
};

// The engine no longer needs the received message's memory.
struct ReleaseReceive {
  uint64_t token = 0;
};

// Asks for a read of the peer's memory (9.2) into the memory of OfferSink(). The owner passes its completion
// to HandleRdmaReadCompleted. Reads are polled, posted and completed in one order.
struct PostRdmaRead {
  WorkId id{};
  uint32_t length = 0;
  STag local_stag{};  // as OfferSink() named it
  uint64_t local_va = 0;
  STag remote_stag{};
  uint64_t remote_va = 0;
};

// Asks for a signaled write to the peer's memory (9.3) from the memory of OfferSource(). The owner passes its
// completion to HandleRdmaWriteCompleted.
struct PostRdmaWrite {
  WorkId id{};
  Bytes local{};
  STag local_stag{};  // as OfferSource() named it
  STag remote_stag{};
  uint64_t remote_va = 0;
};

// Asks for an orderly end of the LLP connection: both DisConns are exchanged, or the AbortConn has left
// (8.2.2).
struct DisconnectLink {};

// Asks for the LLP connection to be terminated at once (8.2.2).
struct AbortLink {};

// The first one costs nothing to make.
using Action = std::variant<AbortLink, DisconnectLink, PostSend, PostReceives, SetReceiveSize, ReleaseReceive,
                            PostRdmaRead, PostRdmaWrite>;

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_ACTION_H_
