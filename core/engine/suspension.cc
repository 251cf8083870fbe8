#include "core/engine/suspension.h"

#include "core/base/check.h"

namespace sdp::engine {

void Suspension::Ask(uint16_t port) {
  wish_ = port;
  if (phase_ == Phase::kNone) phase_ = Phase::kAsking;
}

uint16_t Suspension::AskTaken() {
  SDP_CHECK(ask_due());
  phase_ = Phase::kAwaiting;
  return *wish_;
}

AbortReason Suspension::HandleSuspCommAck() {
  if (phase_ != Phase::kAwaiting) return AbortReason::kUnexpectedMid;
  phase_ = Phase::kLocalDone;
  wish_.reset();
  disregarded_ = false;
  return AbortReason::kNone;
}

AbortReason Suspension::HandleSuspComm(uint16_t port, Role role) {
  if (phase_ == Phase::kAwaiting && role == Role::kAccepting) {
    disregarded_ = true;  // 13.1.2
    return AbortReason::kNone;
  }
  crossed_ = phase_ == Phase::kAwaiting;
  phase_ = Phase::kAnswering;
  port_ = port;
  return AbortReason::kNone;
}

void Suspension::AnswerTaken(WorkId id) {
  SDP_CHECK(answer_due());
  phase_ = Phase::kAnswered;
  crossed_ = false;
  answer_ = static_cast<uint32_t>(id.value());
}

void Suspension::HandleSendCompleted(WorkId id) {
  if (phase_ == Phase::kAnswered && static_cast<uint32_t>(id.value()) == answer_) phase_ = Phase::kRemoteDone;
}

void Suspension::Resume() {
  SDP_CHECK(complete());
  phase_ = wish_ ? Phase::kAsking : Phase::kNone;
  port_ = 0;
  resumed_ = true;
}

}  // namespace sdp::engine
