#ifndef SDP_CORE_ENGINE_SOURCE_OFFER_H_
#define SDP_CORE_ENGINE_SOURCE_OFFER_H_

#include <cstdint>
#include <optional>

#include "core/engine/action.h"
#include "core/engine/status.h"
#include "core/engine/vocabulary.h"
#include "core/wire/headers.h"

namespace sdp::engine {

// A send buffer of the application's, where we are the Data Source, on its way by Read Zcopy, Write Zcopy or
// forced Bcopy (SDP 9.2, 9.3, 9.5.2, 9.5.4). The engine chooses between them. SourceOffer knows what has been
// promised about the buffer, and how much of it has left.
class SourceOffer {
 public:
  void Begin(const SourceBuffer& buffer);
  [[nodiscard]] bool active() const { return active_; }  // no result yet
  // Returns true if the buffer is neither advertised, nor being written, nor owed to the peer: any step may
  // follow.
  [[nodiscard]] bool idle() const { return active_ && advertised_ == 0 && writing_ == 0 && forced_ == 0; }
  [[nodiscard]] uint64_t left() const { return buffer_.data.size() - taken_; }
  [[nodiscard]] uint64_t forced() const { return forced_; }  // bytes that must leave as Data (9.2, 3)
  [[nodiscard]] bool advertised() const { return advertised_ != 0; }
  [[nodiscard]] bool writing() const { return writing_ != 0; }
  [[nodiscard]] bool can_advertise() const { return !stag_gone_; }
  [[nodiscard]] bool revoked() const { return revoked_; }
  // Returns true if the offer may wait: no revocation and no move asks for the buffer.
  [[nodiscard]] bool can_wait() const { return !revoked_ && !moved_; }
  [[nodiscard]] bool cancel_due() const { return active_ && revoked_ && advertised_ != 0 && !cancel_; }
  [[nodiscard]] bool cancel_outstanding() const { return cancel_.has_value(); }
  // Returns the number of the message that carried the SrcAvail, as the credit ledger counts.
  [[nodiscard]] uint64_t advertised_in() const { return advertised_in_; }

  // Returns the SrcAvail of all that is left, for message number `message`; `payload` bytes travel in the
  // message.
  wire::SrcAvail Advertise(uint64_t message, uint32_t payload);
  void CancelTaken(uint64_t message) { cancel_ = message; }
  // Takes the next `size` bytes, which leave as payload of a message.
  Bytes TakePayload(uint64_t size);
  // Begins an RDMA Write of the next bytes; WriteCompleted() takes its completion and returns the size.
  Bytes BeginWrite(uint64_t size);
  uint32_t WriteCompleted();

  // Handles a RdmaRdCompl, with the STag that it invalidated.
  AbortReason HandleRdmaRdCompl(uint32_t size, const std::optional<STag>& invalidated);
  // Handles a SendSm, in a message that acknowledges our first `acknowledged` messages.
  AbortReason HandleSendSm(uint64_t acknowledged);
  // Drops the SrcAvail: a SinkAvail has overridden it (11.3, 1b), or we have left Pipelined Mode (12.4).
  void Overridden();
  void Revoke() { revoked_ = active_; }
  // Gives the buffer back, with a result; `done` further bytes leave by other means.
  void Finish(uint64_t done = 0);
  std::optional<OfferResult> TakeResult();
  [[nodiscard]] bool has_result() const { return result_.has_value(); }
  // Continues with the same bytes at another place, where they may stay.
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
  uint64_t advertised_ = 0;  // bytes of the SrcAvail that are not answered yet
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
