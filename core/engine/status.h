// The values that an engine reports about itself: its state, why it ended, its counters.
#ifndef SDP_CORE_ENGINE_STATUS_H_
#define SDP_CORE_ENGINE_STATUS_H_

#include <cstdint>

namespace sdp::engine {

enum class State : uint8_t {
  kIdle,           // no Hello yet
  kHelloSent,      // connecting peer, waiting for the HelloAck
  kHelloReceived,  // accepting peer, before its HelloAck
  kEstablished,
  kSendClosed,     // our DisConn is sent or waits for its turn
  kReceiveClosed,  // the peer's DisConn is here
  kClosed,         // both
  kAborted,        // see abort_reason()
};

enum class Half : uint8_t { kSource, kSink };  // a half-connection, named by our role in it

// The values of MCH's Mode (figure 12).
enum class FlowMode : uint8_t { kBuffered = 0, kCombined = 1, kPipelined = 2 };

// Why a connection was closed abortively. sdpstat and the log print the names (ToString), so these are
// stable.
enum class AbortReason : uint8_t {
  kNone,
  kLocal,        // the application asked for the abort
  kPeerAborted,  // AbortConn
  kLinkLost,     // the link ended without a DisConn
  // Violations by the peer:
  kShortMessage,    // shorter than its headers
  kLengthMismatch,  // BSDH Len is not the message's length
  kUnknownMid,
  kUnexpectedMid,       // a message not allowed in this state or mode
  kBadSequence,         // MSeq is not the successor of the last
  kBadAcknowledgement,  // MSeqAck names a message not sent
  kCreditOverrun,       // more messages than Private Buffers were posted
  kBadVersion,          // MajV
  kBadMaxAdverts,
  kBadIrdOrd,
  kTooFewBuffers,     // initial credit below three
  kBadBufferSize,     // Private Buffers smaller than the longest header and a byte
  kBadAdvertisement,  // Len, STag or VA impossible
  kDataAfterDisConn,
  kBadModeChange,
  kBadInvalidate,  // the peer invalidated an STag that was not advertised
  kTooManyAdverts,
  kBadCredit,      // Bufs takes back granted credit
  kBadFlags,       // OOB_PRES where it may not be, or not announced
  kAfterSuspend,   // a message after SuspComm
  kBadCompletion,  // RdmaRdCompl or RdmaWrCompl of more than was advertised
};
const char* ToString(AbortReason reason);
// Returns true if the peer broke the protocol.
constexpr bool IsViolation(AbortReason reason) { return reason >= AbortReason::kShortMessage; }
const char* ToString(State state);
const char* ToString(FlowMode mode);

struct Stats {
  FlowMode source_mode = FlowMode::kCombined;  // half-connection in which we are the Data Source
  FlowMode sink_mode = FlowMode::kCombined;
  uint32_t send_credits = 0;       // messages we may send now, reserves included
  uint32_t posted_receives = 0;    // the value of Bufs
  uint32_t local_buffer_size = 0;  // our receive Private Buffers
  uint32_t remote_buffer_size = 0;
  uint64_t messages_in = 0, messages_out = 0;
  uint64_t bcopy_bytes_in = 0, bcopy_bytes_out = 0;
  uint64_t read_zcopy_bytes_in = 0, read_zcopy_bytes_out = 0;
  uint64_t write_zcopy_bytes_in = 0, write_zcopy_bytes_out = 0;
  uint64_t transaction_bytes_in = 0, transaction_bytes_out = 0;
  uint64_t src_avails_in = 0, src_avails_out = 0;
  uint64_t sink_avails_in = 0, sink_avails_out = 0;
  uint64_t send_sms_in = 0, send_sms_out = 0;  // Bcopy that was forced
  uint64_t cancels_in = 0, cancels_out = 0;    // SrcAvailCancel and SinkAvailCancel
  uint64_t gratuitous_updates_out = 0;
  uint64_t send_stalls = 0;      // Send found no credit
  uint64_t buffered_copies = 0;  // bytes copied into the send buffer
  uint64_t receive_queue = 0;    // bytes received and not yet read
  uint64_t send_queue = 0;       // bytes accepted and not yet handed to the RNIC
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_STATUS_H_
