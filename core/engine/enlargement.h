#ifndef SDP_CORE_ENGINE_ENLARGEMENT_H_
#define SDP_CORE_ENGINE_ENLARGEMENT_H_

#include <cstdint>

#include "core/engine/options.h"

namespace sdp::engine {

// Decides when larger receive Private Buffers of the peer's are worth a ChRcvBuf (SDP 10.6). Only the Data
// Source can ask. A stream of large writes fills one buffer after another, and each message costs both ends
// equally, whatever its length. Short requests and answers never make it due. The Data Source asks once a
// connection: the peer's answer is the best that the peer can do.
class Enlargement {
 public:
  // The bounds of the window: so many more filled than unfilled messages make the request due.
  static constexpr uint32_t kLeastWindow = 8, kMostWindow = 64;

  // Counts a Data message that has left. `filled`: it filled its buffer. `more`: the writer has more bytes at
  // once.
  void DataSent(bool filled, bool more);
  // Returns true if a request is due. `window`: the number of receive Private Buffers the peer began with;
  // `current`: bytes of each; `wanted`: the size that suits us. A gain of an eighth or less is not worth it.
  [[nodiscard]] bool due(uint32_t window, uint32_t current, uint32_t wanted) const;
  void Asked() { asked_ = true; }

 private:
  friend struct Frozen;

  uint8_t pressure_ = 0;
  bool asked_ = false;
};

// The number of receive Private Buffers that a stream needs when they are enlarged.
inline constexpr uint32_t kFewestEnlarged = 12;

// Returns the receive_limit for enlarged buffers. Fewer buffers keep the memory the same, but not fewer than
// a stream needs.
uint32_t LimitWhenEnlarged(const Options& options);

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_ENLARGEMENT_H_
