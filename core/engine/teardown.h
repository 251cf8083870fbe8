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
  [[nodiscard]] bool disconn_due() const { return send_closed_ && !disconn_sent_; }  // after all data
  void DisConnTaken();
  void HandleDisConn();
  [[nodiscard]] bool peer_closed() const { return peer_closed_; }
  // Returns true if the peer has sent its DisConn in the current connection.
  [[nodiscard]] bool peer_done() const { return peer_closed_ && !repeat_expected_; }
  // Returns true if both DisConns are exchanged.
  [[nodiscard]] bool over() const { return peer_done() && disconn_sent_; }

  // --- abortive
  // Ends abortively; the first reason stays. `may_send`: there is credit for an AbortConn.
  void Abort(AbortReason reason, bool may_send);
  [[nodiscard]] AbortReason reason() const { return reason_; }
  [[nodiscard]] bool aborted() const { return reason_ != AbortReason::kNone; }
  [[nodiscard]] bool abort_conn_due() const { return abort_ == AbortStep::kSendAbortConn; }
  void AbortConnTaken(WorkId id);
  void HandleSendCompleted(WorkId id);

  // --- the link
  void HandleLinkEnd();
  // Ends the link of a session that continues over another one (13.1.1, 4). A DisConn is repeated there.
  void LeaveLink();
  void Resume();
  [[nodiscard]] bool link_up() const { return link_up_; }
  // Returns what to do with the link now; returns each step once.
  LinkStep TakeLinkStep();
  // Returns true if only forgetting the link is left.
  [[nodiscard]] bool done() const { return !link_up_ || link_step_taken_; }
  // Returns true if no step is due and no completion awaited.
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
  bool repeat_expected_ = false;  // the peer closed in an earlier connection
  bool link_up_ = true;
  bool link_step_taken_ = false;
  AbortReason reason_ = AbortReason::kNone;
  AbortStep abort_ = AbortStep::kNone;
  LinkStep due_ = LinkStep::kNone;
  WorkId abort_conn_{};
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_TEARDOWN_H_
