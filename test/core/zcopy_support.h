// What the Zcopy ladder tests share.
#ifndef SDP_TEST_CORE_ZCOPY_SUPPORT_H_
#define SDP_TEST_CORE_ZCOPY_SUPPORT_H_

#include <catch2/catch.hpp>

#include "test/core/scripted_peer.h"

namespace sdp::engine {

inline constexpr Options kZcopy{.receive_buffer_size = 1016,
                                .read_zcopy = true,
                                .source_threshold = 2000,
                                .sink_threshold = 1500,
                                .src_avail_payload = 100};
inline constexpr wire::ModeChange kSinkPipelined{.mode = wire::ModeChange::kPipelined,
                                                 .receivers_source = false};
inline constexpr wire::ModeChange kSinkCombined{.mode = wire::ModeChange::kCombined,
                                                .receivers_source = false};

inline std::vector<std::byte> Fill(size_t size, uint8_t seed) {
  std::vector<std::byte> data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(seed + i * 7);
  return data;
}

inline wire::SrcAvail Src(uint32_t len) { return {.len = len, .stag = STag(7), .va = 0x1000}; }
inline wire::SinkAvail Sink(uint32_t len, uint32_t non_discards = 0) {
  return {.len = len, .stag = STag(8), .va = 0x2000, .non_discards = non_discards};
}

inline void MakePipelined(End* end) {
  REQUIRE(end->engine.ChangeMode(Half::kSource, FlowMode::kPipelined));
  end->Drain();
}

// The engine is told that its oldest read is done.
inline void CompleteRead(ScriptedPeer* peer) {
  REQUIRE(peer->last_rdma.kind == Flight::Kind::kReadRequest);
  --peer->end.reads_outstanding;
  peer->engine().HandleRdmaReadCompleted(peer->last_rdma.read.id);
  peer->end.Drain();
}

inline std::string Text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace sdp::engine

#endif  // SDP_TEST_CORE_ZCOPY_SUPPORT_H_
