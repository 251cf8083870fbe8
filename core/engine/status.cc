#include "core/engine/status.h"

namespace sdp::engine {

const char* ToString(AbortReason reason) {
  switch (reason) {
    case AbortReason::kNone:
      return "none";
    case AbortReason::kLocal:
      return "local";
    case AbortReason::kPeerAborted:
      return "peer-aborted";
    case AbortReason::kLinkLost:
      return "link-lost";
    case AbortReason::kShortMessage:
      return "short-message";
    case AbortReason::kLengthMismatch:
      return "length-mismatch";
    case AbortReason::kUnknownMid:
      return "unknown-mid";
    case AbortReason::kUnexpectedMid:
      return "unexpected-mid";
    case AbortReason::kBadSequence:
      return "bad-sequence";
    case AbortReason::kBadAcknowledgement:
      return "bad-acknowledgement";
    case AbortReason::kCreditOverrun:
      return "credit-overrun";
    case AbortReason::kBadVersion:
      return "bad-version";
    case AbortReason::kBadMaxAdverts:
      return "bad-max-adverts";
    case AbortReason::kBadIrdOrd:
      return "bad-ird-ord";
    case AbortReason::kTooFewBuffers:
      return "too-few-buffers";
    case AbortReason::kBadBufferSize:
      return "bad-buffer-size";
    case AbortReason::kBadAdvertisement:
      return "bad-advertisement";
    case AbortReason::kDataAfterDisConn:
      return "data-after-disconn";
    case AbortReason::kBadModeChange:
      return "bad-mode-change";
    case AbortReason::kBadInvalidate:
      return "bad-invalidate";
    case AbortReason::kTooManyAdverts:
      return "too-many-adverts";
    case AbortReason::kBadCredit:
      return "bad-credit";
    case AbortReason::kBadFlags:
      return "bad-flags";
    case AbortReason::kBadCompletion:
      return "bad-completion";
    case AbortReason::kAfterSuspend:
      return "after-suspend";
  }
  return "?";
}

const char* ToString(State state) {
  switch (state) {
    case State::kIdle:
      return "idle";
    case State::kHelloSent:
      return "hello-sent";
    case State::kHelloReceived:
      return "hello-received";
    case State::kEstablished:
      return "established";
    case State::kSendClosed:
      return "send-closed";
    case State::kReceiveClosed:
      return "receive-closed";
    case State::kClosed:
      return "closed";
    case State::kAborted:
      return "aborted";
  }
  return "?";
}

const char* ToString(FlowMode mode) {
  switch (mode) {
    case FlowMode::kBuffered:
      return "buffered";
    case FlowMode::kCombined:
      return "combined";
    case FlowMode::kPipelined:
      return "pipelined";
  }
  return "?";
}

}  // namespace sdp::engine
