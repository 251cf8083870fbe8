#ifndef SDP_CORE_ENGINE_ENLARGEMENT_H_
#define SDP_CORE_ENGINE_ENLARGEMENT_H_

#include <cstdint>

#include "core/engine/options.h"

namespace sdp::engine {

// When larger receive Private Buffers of the peer's are worth a ChRcvBuf (SDP 10.6), which is for the Data
// Source to ask: a stream of large writes fills one after another, and each message costs both ends the same
// whatever its length. Requests and answers never get there. Asked once a connection: what the peer has made
// of it is the best it can do.
class Enlargement {
 public:
  // So many messages more that were filled than not: a window's worth, within these bounds.
  static constexpr uint32_t kLeastWindow = 8, kMostWindow = 64;

  // A Data message has left, `filled` to the brim or not; `more`: the writer has more for the next one at
  // once.
  void DataSent(bool filled, bool more);
  // `window`: how many receive Private Buffers the peer began with; `current`: bytes of each; `wanted`: what
  // suits us. Not worth it for less than an eighth more.
  [[nodiscard]] bool due(uint32_t window, uint32_t current, uint32_t wanted) const;
  void Asked() { asked_ = true; }

 private:
  friend struct Frozen;

  uint8_t pressure_ = 0;
  bool asked_ = false;
};

// As many receive Private Buffers as a stream needs when they are enlarged.
inline constexpr uint32_t kFewestEnlarged = 12;

// The receive_limit that goes with enlarged buffers. They are fewer, so that the memory stays the same, but
// no fewer than a stream needs.
uint32_t LimitWhenEnlarged(const Options& options);

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_ENLARGEMENT_H_
