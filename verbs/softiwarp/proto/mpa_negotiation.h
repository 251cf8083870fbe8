// MPA's start-up of one connection as a state machine (RFC 5044, section 7.1; RFC 6581): one Request, one
// Reply, and the agreement of both sides. It takes bytes and time and returns bytes; SoftConnector does the
// I/O.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_MPA_NEGOTIATION_H_
#define SDP_VERBS_SOFTIWARP_PROTO_MPA_NEGOTIATION_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/types.h"
#include "verbs/softiwarp/wire/mpa_frame.h"
#include "verbs/softiwarp/wire/terminate.h"

namespace sdp::iwarp {

enum class MpaRole : uint8_t { kInitiator, kResponder };

// The first FPDU of a peer-to-peer connection, which frees the responder to send.
enum class Rtr : uint8_t { kNone, kSend, kWrite, kRead };

struct MpaOptions {
  bool want_crc = false;
  bool want_markers = false;  // in what we receive
  bool peer_to_peer = true;   // initiator
  bool rtr_by_read = false;   // initiator: offer the RDMA Read only
  uint8_t revision = 2;       // initiator: 1 or 2. Responder: the highest accepted
  Duration timeout = std::chrono::seconds(10);
};

struct MpaAgreement {
  MpaRole role = MpaRole::kInitiator;
  bool crc = false;
  bool send_markers = false;
  bool receive_markers = false;
  uint8_t revision = 1;
  Rtr rtr = Rtr::kNone;  // initiator: to send; responder: to expect
  bool open = false;     // the responder may send at once; the owner's decision
  uint16_t ird = 0;
  uint16_t ord = 0;
};

enum class MpaState : uint8_t {
  kWaiting,      // for the peer's frame
  kRequested,    // responder: decide with Accept or Reject
  kEstablished,  // once output() is empty
  kRejected,     // initiator: by the peer. Responder: by this side, once output() is empty
  kFailed,       // failure() says why
};

class MpaNegotiation {
 public:
  // Initiator: the Request is the first output. `private_data`: at most max_private_data(options.revision)
  // bytes.
  MpaNegotiation(const MpaOptions& options, Bytes private_data, uint16_t ird, uint16_t ord, Time now);
  // Responder.
  MpaNegotiation(const MpaOptions& options, Time now);

  // --- inputs
  // Takes received bytes. Bytes after the frame are an error, because the peer has to wait for our answer
  // (RFC 5044, 7.1.2), unless the options allow them.
  void HandleBytes(Bytes bytes);
  void HandleEof();
  void HandleTime(Time now);
  void HandleSent(size_t n);

  // --- commands: responder, in kRequested. `ird`, `ord`: our limits, lowered to those of the peer.
  void Accept(Bytes private_data, uint16_t ird, uint16_t ord);
  void Reject(Bytes private_data);

  // --- outputs
  // Returns the bytes to send now.
  [[nodiscard]] Bytes output() const { return Bytes(output_).subspan(sent_, output_size_ - sent_); }
  [[nodiscard]] Time deadline() const { return state_ == MpaState::kWaiting ? deadline_ : kNever; }

  // --- getters
  [[nodiscard]] MpaState state() const { return state_; }
  // Returns the most bytes that HandleBytes can still use. Read one more, to detect a peer that does not
  // wait.
  [[nodiscard]] size_t input_room() const { return input_.size() - input_size_; }
  // Valid in kRequested and later.
  [[nodiscard]] Bytes peer_private_data() const { return peer_private_data_; }
  // In kEstablished, initiator: what came behind the Reply, which the owner judges.
  [[nodiscard]] Bytes behind_reply() const { return behind_reply_; }
  // In kRequested all is valid except ird and ord. In kEstablished all is valid.
  [[nodiscard]] const MpaAgreement& agreement() const { return agreement_; }
  // In kFailed: the reason for people, and the Terminate to send to the peer (RFC 6581, section 8) before the
  // link is closed.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] const std::optional<TerminateCause>& terminate() const { return terminate_; }
  // In kFailed: returns true if a peer with our MPA cannot have sent these bytes, false if the peer only left
  // or stayed silent.
  [[nodiscard]] bool peer_is_wrong() const { return peer_is_wrong_; }

  [[nodiscard]] static size_t max_private_data(uint8_t revision) {
    return kMaxPrivateData - (revision >= 2 ? kMpaWordsSize : 0);
  }

 private:
  void HandleRequest(const MpaFrame& frame);
  void HandleReply(const MpaFrame& frame);
  void End(std::string why);
  void Fail(std::string why, std::optional<TerminateCause> terminate = std::nullopt);
  void Send(const MpaFrame& frame);

  const MpaOptions options_;
  const Time deadline_;
  MpaState state_ = MpaState::kWaiting;
  MpaAgreement agreement_;
  std::optional<MpaWords> words_;  // initiator: as sent; responder: as received
  std::array<std::byte, kMaxMpaFrame + 1> input_{};
  size_t input_size_ = 0;
  Bytes peer_private_data_{};
  Bytes behind_reply_{};
  std::array<std::byte, kMaxMpaFrame> output_{};
  size_t output_size_ = 0;
  size_t sent_ = 0;
  std::string failure_;
  std::optional<TerminateCause> terminate_;
  bool peer_is_wrong_ = false;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_MPA_NEGOTIATION_H_
