#ifndef SDP_CORE_ENGINE_OPTIONS_H_
#define SDP_CORE_ENGINE_OPTIONS_H_

#include <cstdint>

namespace sdp::engine {

enum class Role : uint8_t { kConnecting, kAccepting };

// Fixed when the engine is made. Sizes are bytes; a Private Buffer's size includes all SDP headers.
struct Options {
  // Receive Private Buffers posted towards the peer at most (SDP 10; at least 3, at most 65535).
  uint16_t receive_buffers = 24;
  // As Data Source, ask for desired_remote_size when a stream of large writes fills smaller buffers
  // (engine/enlargement.h).
  bool enlarge_remote = false;
  uint32_t receive_buffer_size = 32 * 1024 + 16;
  // The largest that the peer may have them made (ChRcvBuf, 10.6); at least receive_buffer_size.
  uint32_t receive_buffer_limit = 64 * 1024;
  // The size we would like the peer's receive Private Buffers to have (DesRemRcvSz, a hint).
  uint32_t desired_remote_size = 32 * 1024 + 16;
  // Most bytes of received, unread data plus posted buffers the engine answers for (SO_RCVBUF, 9.5.6). More
  // if the peer has the buffers enlarged: a dozen fit in any case.
  uint32_t receive_limit = 24 * (32 * 1024 + 16);
  // Most bytes of accepted, unsent data the engine keeps a copy of (SO_SNDBUF, 9.5.6).
  uint32_t send_limit = 256 * 1024;
  uint16_t max_adverts = 16;
  // A SrcAvail of the peer's waits for OfferSink() or ForceBcopy() (9.2, 2). False: every one is answered
  // with SendSm at once, and data comes by Bcopy.
  bool read_zcopy = false;
  // Data Source Bcopy Threshold: what is left of an offered buffer and no longer goes by Bcopy (11). What the
  // peer has sent a SinkAvail for is written from sink_threshold on, if that is less.
  uint32_t source_threshold = 64 * 1024;
  // Data Sink Bcopy Threshold: a smaller receive buffer is no use to the engine. At least receive_buffer_size
  // (10, 5).
  uint32_t sink_threshold = 64 * 1024;
  // ULP payload of a SrcAvail in Combined Mode (at least 1): what a reader that looks at a header first gets
  // at once.
  uint32_t src_avail_payload = 4096;
  // Most bytes of one RDMA Read. A revocation waits for those in flight (9.5.4).
  uint32_t read_size = 1024 * 1024;
  // Hint to the peer, as Data Sink, to use Pipelined Mode (REQ_PIPE, 6.1.2). Engine::PreferPipelined()
  // changes it.
  bool prefer_pipelined = false;
  // As Data Source, follow the peer's hints (12): REQ_PIPE to Pipelined Mode; its absence, and SendSm, back
  // to Combined Mode.
  bool follow_hints = false;
  // As Data Source, go to Pipelined Mode at once: with the connection (the connecting peer), or with the
  // peer's first message (the accepting peer, which may have no right to speak first).
  bool begin_pipelined = false;
  // As Data Source in Pipelined Mode, do not advertise: an offered buffer waits for a SinkAvail until it is
  // revoked.
  bool await_sink_avail = false;
  uint16_t ird = 16;
  uint16_t ord = 16;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_OPTIONS_H_
