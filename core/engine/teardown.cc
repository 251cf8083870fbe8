#include "core/engine/teardown.h"

namespace sdp::engine {

void Teardown::DisConnTaken() {
  disconn_sent_ = true;
  // 8.2.1: the sender of the second DisConn then ends the LLP connection. The sender of the first may do so
  // when it has the second.
  if (over()) due_ = LinkStep::kDisconnect;
}

void Teardown::HandleDisConn() {
  peer_closed_ = true;
  repeat_expected_ = false;
  if (disconn_sent_) due_ = LinkStep::kDisconnect;
}

void Teardown::Abort(AbortReason reason, bool may_send) {
  if (aborted()) return;
  reason_ = reason;
  if (!link_up_) return;
  // 8.2.2: AbortConn if and only if DisConn has left. Without credit for it the link's end informs the peer.
  if (disconn_sent_ && may_send && !link_step_taken_) {
    abort_ = AbortStep::kSendAbortConn;
    due_ = LinkStep::kNone;
  } else {
    abort_ = AbortStep::kLinkDue;
    due_ = LinkStep::kAbort;
    link_step_taken_ = false;
  }
}

void Teardown::AbortConnTaken(WorkId id) {
  abort_ = AbortStep::kAwaitCompletion;
  abort_conn_ = id;
}

void Teardown::HandleSendCompleted(WorkId id) {
  if (abort_ != AbortStep::kAwaitCompletion || id != abort_conn_) return;
  // 8.2.2, last paragraph: the normal teardown follows, which lets the AbortConn arrive.
  abort_ = AbortStep::kLinkDue;
  due_ = LinkStep::kDisconnect;
}

void Teardown::HandleLinkEnd() {
  link_up_ = false;
  due_ = LinkStep::kNone;
  abort_ = AbortStep::kNone;
  // 8.2.1, 4: graceful only if both DisConns were exchanged.
  if (!aborted() && !over()) reason_ = AbortReason::kLinkLost;
}

void Teardown::LeaveLink() {
  link_up_ = false;
  due_ = LinkStep::kNone;
}

void Teardown::Resume() {
  link_up_ = true;
  link_step_taken_ = false;
  disconn_sent_ = false;
  repeat_expected_ = peer_closed_;
}

Teardown::LinkStep Teardown::TakeLinkStep() {
  const LinkStep step = due_;
  due_ = LinkStep::kNone;
  if (step != LinkStep::kNone) link_step_taken_ = true;
  return step;
}

}  // namespace sdp::engine
