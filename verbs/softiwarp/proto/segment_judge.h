// Judges each received DDP segment of one connection by the rules of DDP and RDMAP (RFC 5041, section 7; RFC
// 5040, sections 5 and 7.2), and says where its payload goes. Judging changes no state. A segment takes
// effect in HandleSegment(), after MPA has found it valid.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_SEGMENT_JUDGE_H_
#define SDP_VERBS_SOFTIWARP_PROTO_SEGMENT_JUDGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "core/base/result.h"
#include "core/base/types.h"
#include "verbs/softiwarp/proto/read_queue.h"
#include "verbs/softiwarp/proto/receive_buffers.h"
#include "verbs/softiwarp/proto/stag_table.h"
#include "verbs/softiwarp/wire/ddp_header.h"
#include "verbs/softiwarp/wire/opcode_table.h"
#include "verbs/softiwarp/wire/terminate.h"

namespace sdp::iwarp {

// A broken rule of the peer's: what to answer, and the text for people.
struct Violation {
  TerminateMessage answer;
  std::string text;
};

// Where a segment's payload goes.
struct Placement {
  enum class Kind : uint8_t {
    kMessage,  // part of a Send
    kPlace,    // to `place`, in a registered region
    kBody,     // a Read Request or Terminate, for RDMAP itself
  };
  Kind kind = Kind::kBody;
  std::byte* place = nullptr;
};

// The meaning of a valid segment.
namespace segment {
struct None {};
struct MessageEnd {  // a Send is complete
  uint32_t length = 0;
  bool solicited = false;
  std::optional<STag> invalidate{};
};
struct ReadyToReceive {};  // the zero-length Send of a peer-to-peer set-up
struct ReadWanted {        // the peer's Read Request; its source is checked
  ReadRequest request;
  const std::byte* source = nullptr;
};
struct ReadDone {  // our Read is complete
  WorkId id;
  uint32_t length = 0;
  bool silent = false;
};
struct Terminated {  // the peer's Terminate; nullopt when it is malformed
  std::optional<TerminateMessage> message;
};
}  // namespace segment
using SegmentOutcome = std::variant<segment::None, segment::MessageEnd, segment::ReadyToReceive,
                                    segment::ReadWanted, segment::ReadDone, segment::Terminated>;

class SegmentJudge {
 public:
  // The references outlive this. `ird`: how many of the peer's Reads may be outstanding. `rtr_send`: the
  // peer's first Send is its RTR.
  SegmentJudge(StagTable& stags, ReceiveBuffers& buffers, ReadQueue& reads, uint16_t ird, bool rtr_send)
      : stags_(stags), buffers_(buffers), reads_(reads), ird_(ird), rtr_send_(rtr_send) {}

  // Judges the header of the next segment, which `payload_length` bytes of payload follow.
  Result<Placement, Violation> HandleHeader(const DdpHeader& header, uint32_t payload_length);
  // Gives effect to that segment, which is complete and valid. `body`: the payload of a kBody segment, at
  // most kMaxTerminateSize bytes of it.
  Result<SegmentOutcome, Violation> HandleSegment(const DdpHeader& header, uint32_t payload_length,
                                                  Bytes body);

  // Returns true if a complete segment is a usual Send: one segment that is in order, finds its buffer, and
  // invalidates nothing. TakeUsualSend() then gives effect to it. All others are for the two methods above.
  // `ahead`: so many others are before it.
  [[nodiscard]] bool IsUsualSend(const DdpHeader& header, uint32_t payload_length, uint32_t ahead) const;
  void TakeUsualSend();

  // Returns true if a tagged message may begin with the next segment. `current`: the header of the segment
  // before it, nullptr if that one is complete.
  [[nodiscard]] bool ExpectsPlacement(const DdpHeader* current) const;
  // Returns how many bytes of the tagged message will certainly follow a segment of `length` bytes, which was
  // judged and is not the last. Returns 0 for a Write, whose length is unknown: memory beyond it must not
  // change.
  [[nodiscard]] uint64_t RoomBehind(const DdpHeader& header, uint32_t length) const;
  // Notes that a Read Response was handed to the link: the peer may request another.
  void HandleReadResponseSent() { --reads_wanted_; }
  // Returns the bytes of the current Send that came with earlier segments.
  [[nodiscard]] uint32_t message_offset() const { return message_offset_; }

 private:
  friend struct Frozen;
  Result<Placement, Violation> JudgeSend(const DdpHeader& h, uint32_t length) const;
  Result<Placement, Violation> JudgeWrite(const DdpHeader& h, uint32_t length) const;
  Result<Placement, Violation> JudgeReadResponse(const DdpHeader& h, uint32_t length) const;
  Result<Placement, Violation> JudgeReadRequest(const DdpHeader& h, uint32_t length) const;
  Result<SegmentOutcome, Violation> FinishSend(const DdpHeader& h, uint32_t length);
  Result<SegmentOutcome, Violation> FinishReadRequest(const DdpHeader& h, uint32_t length, Bytes body);

  StagTable& stags_;
  ReceiveBuffers& buffers_;
  ReadQueue& reads_;
  const uint16_t ird_;
  bool rtr_send_;
  uint32_t reads_wanted_ = 0;
  uint32_t message_offset_ = 0;
  uint32_t expected_msn_[kQueueCount] = {1, 1, 1};
};

// Returns a violation with the segment's header attached, as RFC 5040, figure 10, demands.
Violation MakeViolation(const TerminateCause& cause, const DdpHeader& header, uint32_t payload_length,
                        std::string detail);
// Returns a violation of MPA's rules, which carries no header.
Violation MakeMpaViolation(const TerminateCause& cause, std::string detail);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_SEGMENT_JUDGE_H_
