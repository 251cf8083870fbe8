#ifndef SDP_CORE_ENGINE_TEARDOWN_H_
#define SDP_CORE_ENGINE_TEARDOWN_H_

#include <optional>

#include "core/base/types.h"
#include "core/engine/status.h"

namespace sdp::engine {

// How a connection ends: half by half with DisConn (SDP 8.2.1), or abortively (8.2.2).
class Teardown {
 public:
  enum class LinkStep : uint8_t { kNone, kDisconnect, kAbort };

  // --- graceful
  void CloseSend() { send_closed_ = true; }
  [[nodiscard]] bool send_closed() const { return send_closed_; }
  [[nodiscard]] bool disconn_due() const { return send_closed_ && !disconn_sent_; }  // once all data left
  void DisConnTaken();
  void HandleDisConn();
  [[nodiscard]] bool peer_closed() const { return peer_closed_; }
  // The same, said in the connection that is.
  [[nodiscard]] bool peer_done() const { return peer_closed_ && !repeat_expected_; }
  // Both DisConns are exchanged.
  [[nodiscard]] bool over() const { return peer_done() && disconn_sent_; }

  // --- abortive
  // The first reason stands. `may_send`: there is credit for an AbortConn.
  void Abort(AbortReason reason, bool may_send);
  [[nodiscard]] AbortReason reason() const { return reason_; }
  [[nodiscard]] bool aborted() const { return reason_ != AbortReason::kNone; }
  [[nodiscard]] bool abort_conn_due() const { return abort_ == AbortStep::kSendAbortConn; }
  void AbortConnTaken(WorkId id);
  void HandleSendCompleted(WorkId id);

  // --- the link
  void HandleLinkEnd();
  // The session goes on over another one (13.1.1, 4). There, what has been said with DisConn is said again.
  void LeaveLink();
  void Resume();
  [[nodiscard]] bool link_up() const { return link_up_; }
  // What to do with the link now; each step is returned once.
  LinkStep TakeLinkStep();
  // Nothing is left to do but to forget the link.
  [[nodiscard]] bool done() const { return !link_up_ || link_step_taken_; }
  // No step is to be taken, and no completion waited for.
  [[nodiscard]] bool at_rest() const { return due_ == LinkStep::kNone && !abort_conn_outstanding(); }
  [[nodiscard]] bool abort_conn_outstanding() const {
    return abort_ == AbortStep::kSendAbortConn || abort_ == AbortStep::kAwaitCompletion;
  }

 private:
  friend struct Frozen;

  enum class AbortStep : uint8_t { kNone, kSendAbortConn, kAwaitCompletion, kLinkDue };

  bool send_closed_ = false;
  bool disconn_sent_ = false;
  bool peer_closed_ = false;
  bool repeat_expected_ = false;  // peer_closed_ was said in an earlier connection
  bool link_up_ = true;
  bool link_step_taken_ = false;
  AbortReason reason_ = AbortReason::kNone;
  AbortStep abort_ = AbortStep::kNone;
  LinkStep due_ = LinkStep::kNone;
  WorkId abort_conn_{};
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_TEARDOWN_H_
