// The parts of an engine, and the functions that combine them. Private to core/engine and to its tests.
#ifndef SDP_CORE_ENGINE_REP_H_
#define SDP_CORE_ENGINE_REP_H_

#include <array>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "core/base/check.h"
#include "core/base/result.h"
#include "core/engine/action.h"
#include "core/engine/advert_answers.h"
#include "core/engine/buffer_resizing.h"
#include "core/engine/credit_ledger.h"
#include "core/engine/enlargement.h"
#include "core/engine/flow_modes.h"
#include "core/engine/options.h"
#include "core/engine/sink_half.h"
#include "core/engine/sink_offer.h"
#include "core/engine/source_half.h"
#include "core/engine/source_offer.h"
#include "core/engine/status.h"
#include "core/engine/suspension.h"
#include "core/engine/teardown.h"
#include "core/engine/vocabulary.h"
#include "core/wire/message.h"

namespace sdp::engine {

AbortReason ReasonFor(wire::WireError error);

struct Rep {
  Rep(Role the_role, const Options& the_options);

  // --- handshake.cc
  std::array<std::byte, kHelloSize> Hello();
  Result<void, AbortReason> HandleHello(Bytes bytes);
  std::array<std::byte, kHelloAckSize> HelloAck();
  AbortReason HandleHelloAck(const wire::Message& message);
  void Establish();
  void BeginPipelined();

  // --- inbound.cc
  void HandleReceive(const ReceivedMessage& received);
  AbortReason HandleMessage(const ReceivedMessage& received, bool* kept);
  AbortReason Dispatch(const wire::Message& message, const ReceivedMessage& received, bool* kept);
  AbortReason HandleModeChange(const wire::ModeChange& change);
  AbortReason HandleChRcvBuf(const wire::ChRcvBuf& request);
  AbortReason HandleSuspCommAck();
  AbortReason HandleDisConn();
  AbortReason HandlePayload(const wire::Message& message, const ReceivedMessage& received, bool* kept);
  void FollowHint(uint8_t flags);
  void Repost();
  void Fail(AbortReason reason);

  // --- outbound.cc
  bool PollAction(Action* out);
  bool PollMessage(Action* out);
  // Each composes one message of its kind if one is due, and returns whether it did.
  bool PollHelloAck(PostSend* post);
  bool PollAbortConn(PostSend* post);
  bool PollRequest(PostSend* post);
  bool PollPayload(PostSend* post);
  bool PollDisConn(PostSend* post);
  bool PollUpdate(PostSend* post);
  void Compose(const wire::Body& body, MessageKind kind, uint8_t flags, PostSend* post, uint32_t payload = 0);
  void ComposeData(PostSend* post);
  // Makes the header of a Data message with `payload` bytes, which leaves now, and counts them.
  void StampData(uint8_t flags, size_t payload, bool more, std::span<std::byte, wire::Bsdh::kSize> header);
  void NoteDataSent(uint64_t payload, bool more);
  // Returns true if only the peer's need of credit makes a message due.
  [[nodiscard]] bool credit_update_due() const {
    const uint32_t window = sink.Window();
    return credit.update_may_be_due(window) &&
           credit.update_due(window, !sink.holds_memory(), source.writer_expected(),
                             adverts_outstanding() != 0);
  }

  // --- direct.cc
  // Returns true if nothing but usual Data is under way in either direction, and no action is due.
  [[nodiscard]] bool IsPlain() const;
  [[nodiscard]] bool plain() const {
    if (!plain_then) plain_then = IsPlain();
    SDP_DCHECK(*plain_then == IsPlain());
    return *plain_then;
  }
  // End() for the direct way.
  void EndDirect();
  [[nodiscard]] bool may_send_direct(size_t size) const;
  void SendDirect(uint32_t size, std::span<std::byte, wire::Bsdh::kSize> header);
  [[nodiscard]] bool may_receive_direct(const wire::Bsdh& header, uint32_t length) const;
  uint32_t ReceiveDirect(const wire::Bsdh& header);
  [[nodiscard]] bool due_after_direct() const;
  // Returns true if it is known at once that PollAction() has nothing.
  [[nodiscard]] bool AtRest() const { return plain() && !due_after_direct(); }

  // --- zcopy.cc
  [[nodiscard]] bool wants_source(uint64_t size) const;
  [[nodiscard]] SinkWish sink_wish(uint64_t size) const;
  [[nodiscard]] uint64_t advertise_above() const;
  bool OfferSource(const SourceBuffer& buffer);
  bool OfferSink(const SinkBuffer& buffer);
  void RevokeSource();
  void RevokeSink();
  bool PollRdma(Action* out);
  bool PollCompletion(PostSend* post);
  bool PollZcopyControl(PostSend* post);
  [[nodiscard]] bool sink_avail_due() const;
  bool PollSinkAvail(PostSend* post);
  bool PollSourceOffer(PostSend* post);
  bool PollSrcAvail(bool with_payload, PostSend* post);
  bool ComposeOfferData(uint64_t limit, PostSend* post);
  void HandleRdmaReadCompleted(WorkId id);
  void HandleRdmaWriteCompleted(WorkId id);
  AbortReason HandleSrcAvail(const wire::SrcAvail& advert, uint32_t payload);
  AbortReason HandleSinkAvail(const wire::SinkAvail& advert, uint32_t payload);
  AbortReason HandleSendSm();
  AbortReason HandleRdmaRdCompl(const wire::RdmaRdCompl& completed, const std::optional<STag>& invalidated);
  AbortReason HandleRdmaWrCompl(const wire::RdmaWrCompl& completed, const std::optional<STag>& invalidated);
  void HandleSrcAvailCancel();
  void SettleSource();
  void FinishOffers();
  // Like FinishOffers(), where the session continues: the bytes of a moved offer have to follow.
  void LapseOffers();
  // Moves the rest of a moved offer, of which the peer no longer knows, to the send buffer.
  void KeepMoved();
  [[nodiscard]] uint32_t adverts_outstanding() const {
    return (source_offer.advertised() ? 1 : 0) + (sink_offer.advertised() ? 1 : 0);
  }
  // 12.1, 12.4: returns true if the change need not wait for an advertisement or a write.
  [[nodiscard]] bool mode_change_possible() const {
    return modes.change_due() && !(modes.source_change_due() &&
                                   (modes.buffered_due() ? source_offer.advertised() : adverts.writing()));
  }
  // Returns true if no transfer is being read or written, or waits for its completion message (13.1.1).
  [[nodiscard]] bool nothing_in_process() const {
    return !sink_offer.reading() && !adverts.in_process() && !source_offer.writing() && !adverts.writing();
  }

  // --- socket_duplication.cc
  [[nodiscard]] bool suspend_possible() const;
  void MakeRoomToSuspend();
  bool PollSuspCommAck(PostSend* post);
  void Resume(uint16_t ird, uint16_t ord);

  // --- engine.cc
  [[nodiscard]] State state() const;
  // Returns true if established, or between two connections of the session.
  [[nodiscard]] bool open() const { return established || suspension.resumed(); }
  [[nodiscard]] bool can_send() const;
  [[nodiscard]] bool writable() const;
  [[nodiscard]] bool sending_over() const {
    return !established || suspension.silent() || teardown.aborted() || !teardown.link_up();
  }
  [[nodiscard]] uint32_t payload_capacity() const {
    return peer_buffer_size - static_cast<uint32_t>(wire::Bsdh::kSize);
  }
  // Returns how many bytes of Send() may leave now: none while they follow an active offer.
  [[nodiscard]] uint64_t pending_bytes() const { return behind_offer() ? 0 : source.pending_bytes(); }
  [[nodiscard]] bool behind_offer() const { return sends_behind && source_offer.active(); }
  // Returns true if Send() may continue after the offer: its memory stays, and no older bytes wait to leave.
  [[nodiscard]] bool may_send_behind() const {
    return source_offer.moved() && (sends_behind || source.pending_bytes() == 0);
  }
  void Begin() { source.Reclaim(); }
  // Ends every input, command and polled action.
  void End();
  // Counts an edge if there is room again for a writer that found none.
  void NoteRoom();
  [[nodiscard]] bool IsConsistent() const;

  Role role;  // in the current connection
  uint8_t minor_version = 0;
  Enlargement enlargement;
  Options options;  // made legal by MakeLegal()

  // Set-up.
  bool hello_done = false;  // our Hello was sent, or the peer's received
  bool established = false;
  bool hello_ack_due = false;
  bool pipelined_due = false;
  bool update_asked = false;  // not frozen, because the update leaves at once where there is credit
  bool size_due = false;      // the owner must learn the new size of our receive Private Buffers
  bool sends_behind = false;  // the send buffer's bytes follow the source offer
  bool was_writable = false;
  uint32_t peer_buffer_size = 0;
  uint16_t peer_max_adverts = 0;
  uint16_t ord = 0;

  CreditLedger credit;
  SourceHalf source;
  SinkHalf sink;
  FlowModes modes;
  AdvertAnswers adverts;
  SourceOffer source_offer;
  SinkOffer sink_offer;
  WorkId write_work{};
  Teardown teardown;
  BufferResizing resizing;
  Suspension suspension;

  uint32_t receives_to_post = 0;
  // IsPlain(), if it was asked for since the last End(); not frozen. Each function that changes what
  // IsPlain() or writable() reads ends with End() or EndDirect().
  mutable std::optional<bool> plain_then;
  absl::InlinedVector<uint64_t, 2> releases;
  uint64_t last_work = 0;
  uint64_t read_edge = 0;
  uint64_t write_edge = 0;
  mutable Stats stats;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_REP_H_
