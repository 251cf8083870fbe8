#include "core/engine/enlargement.h"

#include <algorithm>

namespace sdp::engine {
void Enlargement::DataSent(bool filled, bool more) {
  if (!filled) {
    pressure_ -= pressure_ != 0 ? 1 : 0;
  } else if (more) {
    pressure_ += pressure_ < kMostWindow ? 1 : 0;
  }
}

bool Enlargement::due(uint32_t window, uint32_t current, uint32_t wanted) const {
  return !asked_ && pressure_ >= std::clamp(window, kLeastWindow, kMostWindow) &&
         wanted > uint64_t{current} + current / 8;
}

uint32_t LimitWhenEnlarged(const Options& options) {
  const uint64_t buffers = std::min<uint32_t>(options.receive_buffers, kFewestEnlarged);
  const uint64_t needed = std::min<uint64_t>(buffers * options.receive_buffer_size, UINT32_MAX);
  return std::max(options.receive_limit, static_cast<uint32_t>(needed));
}

}  // namespace sdp::engine
