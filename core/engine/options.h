#ifndef SDP_CORE_ENGINE_OPTIONS_H_
#define SDP_CORE_ENGINE_OPTIONS_H_

#include <cstdint>

namespace sdp::engine {

enum class Role : uint8_t { kConnecting, kAccepting };

// Fixed when the engine is made. Sizes are bytes; a Private Buffer's size includes all SDP headers.
struct Options {
  // Receive Private Buffers posted towards the peer at most (SDP 10; at least 3, at most 65535).
  uint16_t receive_buffers = 24;
  uint32_t receive_buffer_size = 32 * 1024 + 16;
  // The size we would like the peer's receive Private Buffers to have (DesRemRcvSz, a hint).
  uint32_t desired_remote_size = 32 * 1024 + 16;
  // Most bytes of received, unread data plus posted buffers the engine answers for (SO_RCVBUF, 9.5.6).
  uint32_t receive_limit = 24 * (32 * 1024 + 16);
  // Most bytes of accepted, unsent data the engine keeps a copy of (SO_SNDBUF, 9.5.6).
  uint32_t send_limit = 256 * 1024;
  uint16_t max_adverts = 16;
  uint16_t ird = 16;
  uint16_t ord = 16;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_OPTIONS_H_
