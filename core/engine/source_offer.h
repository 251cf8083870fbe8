#ifndef SDP_CORE_ENGINE_SOURCE_OFFER_H_
#define SDP_CORE_ENGINE_SOURCE_OFFER_H_

#include <cstdint>
#include <optional>

#include "core/engine/action.h"
#include "core/engine/status.h"
#include "core/engine/vocabulary.h"
#include "core/wire/headers.h"

namespace sdp::engine {

// A send buffer of the application's on its way by Read Zcopy, Write Zcopy or forced Bcopy
// (SDP 9.2, 9.3, 9.5.2, 9.5.4), we being the Data Source. Which of them is next is the engine's decision;
// here is what has been promised about the buffer and how much of it is gone.
class SourceOffer {
 public:
  void Begin(const SourceBuffer& buffer);
  [[nodiscard]] bool active() const { return active_; }  // no result yet
  // Neither advertised, nor being written, nor owed to the peer: the next step is free.
  [[nodiscard]] bool idle() const { return active_ && advertised_ == 0 && writing_ == 0 && forced_ == 0; }
  [[nodiscard]] uint64_t left() const { return buffer_.data.size() - taken_; }
  [[nodiscard]] uint64_t forced() const { return forced_; }  // bytes that have to leave as Data (9.2, 3)
  [[nodiscard]] bool advertised() const { return advertised_ != 0; }
  [[nodiscard]] bool writing() const { return writing_ != 0; }
  [[nodiscard]] bool can_advertise() const { return !stag_gone_; }
  [[nodiscard]] bool revoked() const { return revoked_; }
  // Nobody needs it back, and nothing of it has gone another way.
  [[nodiscard]] bool can_wait() const { return !revoked_ && !moved_; }
  [[nodiscard]] bool cancel_due() const { return active_ && revoked_ && advertised_ != 0 && !cancel_; }
  [[nodiscard]] bool cancel_outstanding() const { return cancel_.has_value(); }
  // The number, as the credit ledger counts, of the message that carried the SrcAvail.
  [[nodiscard]] uint64_t advertised_in() const { return advertised_in_; }

  // SrcAvail of all that is left leaves as message number `message`; `payload` of it as its payload.
  wire::SrcAvail Advertise(uint64_t message, uint32_t payload);
  void CancelTaken(uint64_t message) { cancel_ = message; }
  // The next `size` bytes leave as payload of a message.
  Bytes TakePayload(uint64_t size);
  // The next bytes are being written; the completion of that.
  Bytes BeginWrite(uint64_t size);
  uint32_t WriteCompleted();

  // RdmaRdCompl, with the STag that came with it.
  AbortReason HandleRdmaRdCompl(uint32_t size, const std::optional<STag>& invalidated);
  // SendSm, in a message that acknowledges our first `acknowledged`.
  AbortReason HandleSendSm(uint64_t acknowledged);
  // A SinkAvail has overridden the SrcAvail (11.3, 1b), or leaving Pipelined Mode has (12.4).
  void Overridden();
  void Revoke() { revoked_ = active_; }
  // The buffer is given back: `done` bytes more are on their way by other means.
  void Finish(uint64_t done = 0);
  std::optional<OfferResult> TakeResult();
  [[nodiscard]] bool has_result() const { return result_.has_value(); }
  // The same bytes at another place, where they may stay.
  void Move(Bytes data) {
    buffer_.data = data;
    moved_ = true;
  }
  [[nodiscard]] bool moved() const { return active_ && moved_; }
  [[nodiscard]] STag stag() const { return buffer_.stag; }
  [[nodiscard]] Bytes rest() const { return buffer_.data.subspan(taken_); }

 private:
  SourceBuffer buffer_{};
  uint64_t taken_ = 0;
  uint64_t advertised_ = 0;  // bytes of the SrcAvail that are not accounted for
  uint64_t advertised_in_ = 0;
  uint64_t forced_ = 0;
  uint64_t writing_ = 0;
  std::optional<uint64_t> cancel_;  // the message that carried the SrcAvailCancel
  bool active_ = false;
  bool revoked_ = false;
  bool moved_ = false;
  bool stag_gone_ = false;
  std::optional<OfferResult> result_;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_SOURCE_OFFER_H_
