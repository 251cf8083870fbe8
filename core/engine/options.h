#ifndef SDP_CORE_ENGINE_OPTIONS_H_
#define SDP_CORE_ENGINE_OPTIONS_H_

#include <cstdint>

namespace sdp::engine {

enum class Role : uint8_t { kConnecting, kAccepting };

// Fixed when the engine is made. All sizes are in bytes; a Private Buffer's size includes all SDP headers.
struct Options {
  // The most receive Private Buffers posted for the peer (SDP 10; at least 3, at most 65535).
  uint16_t receive_buffers = 24;
  // As Data Source, ask for desired_remote_size when a stream of large writes fills smaller buffers
  // (engine/enlargement.h).
  bool enlarge_remote = false;
  uint32_t receive_buffer_size = 32 * 1024 + 16;
  // The largest receive Private Buffers that the peer may ask for (ChRcvBuf, 10.6); at least
  // receive_buffer_size.
  uint32_t receive_buffer_limit = 64 * 1024;
  // The size that we would like the peer's receive Private Buffers to have (DesRemRcvSz, a hint).
  uint32_t desired_remote_size = 32 * 1024 + 16;
  // The most bytes of received, unread data plus posted buffers (SO_RCVBUF, 9.5.6). The limit grows if the
  // peer asks for larger buffers: a dozen fit in any case.
  uint32_t receive_limit = 24 * (32 * 1024 + 16);
  // The most bytes of accepted, unsent data that the engine copies (SO_SNDBUF, 9.5.6).
  uint32_t send_limit = 256 * 1024;
  uint16_t max_adverts = 16;
  // If true, a SrcAvail of the peer's waits for OfferSink() or ForceBcopy() (9.2, 2). If false, each is
  // answered with SendSm at once, and data comes by Bcopy.
  bool read_zcopy = false;
  // Data Source Bcopy Threshold: a rest of an offered buffer up to this size goes by Bcopy (11). With a
  // SinkAvail of the peer's, sink_threshold applies if it is smaller.
  uint32_t source_threshold = 64 * 1024;
  // Data Sink Bcopy Threshold: the engine makes no use of a smaller receive buffer. At least
  // receive_buffer_size (10, 5).
  uint32_t sink_threshold = 64 * 1024;
  // ULP payload of a SrcAvail in Combined Mode (at least 1): a reader that looks at a header first gets this
  // much at once.
  uint32_t src_avail_payload = 4096;
  // The most bytes of one RDMA Read. A revocation waits for the reads in flight (9.5.4).
  uint32_t read_size = 1024 * 1024;
  // As Data Sink, hint that the peer should use Pipelined Mode (REQ_PIPE, 6.1.2). Engine::PreferPipelined()
  // changes this.
  bool prefer_pipelined = false;
  // As Data Source, follow the peer's hints (12): REQ_PIPE leads to Pipelined Mode; its absence, and SendSm,
  // back to Combined Mode.
  bool follow_hints = false;
  // As Data Source, go to Pipelined Mode at once. The connecting peer does so on establishment. The accepting
  // peer, which may have no right to speak first, does so with the peer's first message.
  bool begin_pipelined = false;
  // As Data Source in Pipelined Mode, do not advertise: an offered buffer waits for a SinkAvail until it is
  // revoked or moved.
  bool await_sink_avail = false;
  uint16_t ird = 16;
  uint16_t ord = 16;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_OPTIONS_H_
