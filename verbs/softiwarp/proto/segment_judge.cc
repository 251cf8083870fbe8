#include "verbs/softiwarp/proto/segment_judge.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

namespace sdp::iwarp {
namespace {

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char line[160];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

std::string WithCause(const TerminateCause& cause, const std::string& detail) {
  return std::string(LayerName(cause.layer)) + " error, " + CauseName(cause) + ": " + detail;
}

std::string DescribeRange(const DdpHeader& h, uint64_t to, uint32_t length, STag stag) {
  return Format("%s of %u bytes at TO 0x%llx of STag 0x%08x", InfoOf(static_cast<RdmapOpcode>(h.opcode)).name,
                length, static_cast<unsigned long long>(to), stag.value());
}

// RFC 5041 has no code for missing rights, so a peer without them gets "invalid STag".
const TerminateCause& TaggedCause(AccessError error) {
  switch (error) {
    case AccessError::kBounds:
      return cause::kTaggedBounds;
    case AccessError::kToWrap:
      return cause::kTaggedToWrap;
    case AccessError::kInvalidSTag:
    case AccessError::kRights:
      break;
  }
  return cause::kTaggedInvalidSTag;
}

const TerminateCause& ReadCause(AccessError error) {
  switch (error) {
    case AccessError::kBounds:
      return cause::kReadBounds;
    case AccessError::kToWrap:
      return cause::kReadToWrap;
    case AccessError::kRights:
      return cause::kReadAccess;
    case AccessError::kInvalidSTag:
      break;
  }
  return cause::kReadInvalidSTag;
}

}  // namespace

Violation MakeViolation(const TerminateCause& cause, const DdpHeader& header, uint32_t payload_length,
                        std::string detail) {
  Violation v;
  v.answer.cause = cause;
  v.answer.segment_length_valid = true;
  v.answer.segment_length = static_cast<uint16_t>(header.size() + payload_length);
  v.answer.ddp_header = header;
  v.text = WithCause(cause, detail);
  return v;
}

Violation MakeMpaViolation(const TerminateCause& cause, std::string detail) {
  Violation v;
  v.answer.cause = cause;
  v.text = WithCause(cause, detail);
  return v;
}

Result<Placement, Violation> SegmentJudge::HandleHeader(const DdpHeader& h, uint32_t length) {
  const auto refuse = [&](const TerminateCause& cause, std::string detail) {
    return unexpected(MakeViolation(cause, h, length, std::move(detail)));
  };
  if (h.ddp_version != kDdpVersion) {
    return refuse(h.tagged ? cause::kTaggedVersion : cause::kUntaggedVersion, Format("DV %u", h.ddp_version));
  }
  if (!h.tagged && h.queue >= kQueueCount) return refuse(cause::kInvalidQueue, Format("QN %u", h.queue));
  // RFC 5040, 4.1: version 0 is valid; RDMAC peers send it.
  if (h.rdmap_version > kRdmapVersion) return refuse(cause::kRdmapVersion, Format("RV %u", h.rdmap_version));
  const OpcodeInfo* info = FindOpcode(h.opcode);
  if (info == nullptr) return refuse(cause::kUnexpectedOpcode, Format("opcode %u is reserved", h.opcode));
  if (info->tagged != h.tagged) {
    return refuse(cause::kUnexpectedOpcode,
                  Format("%s in %s segment", info->name, h.tagged ? "a tagged" : "an untagged"));
  }
  if (!h.tagged) {
    if (h.queue != info->queue)
      return refuse(cause::kUnexpectedOpcode, Format("%s on queue %u", info->name, h.queue));
    const uint32_t expected = expected_msn_[h.queue];
    if (h.msn != expected) {
      return refuse(cause::kMsnRange,
                    Format("%s has MSN %u where %u was expected", info->name, h.msn, expected));
    }
  }
  switch (info->opcode) {
    case RdmapOpcode::kWrite:
      return JudgeWrite(h, length);
    case RdmapOpcode::kReadResponse:
      return JudgeReadResponse(h, length);
    case RdmapOpcode::kReadRequest:
      return JudgeReadRequest(h, length);
    case RdmapOpcode::kTerminate:
      return Placement{};
    default:
      return JudgeSend(h, length);
  }
}

Result<Placement, Violation> SegmentJudge::JudgeSend(const DdpHeader& h, uint32_t length) const {
  const auto refuse = [&](const TerminateCause& cause, std::string detail) {
    return unexpected(MakeViolation(cause, h, length, std::move(detail)));
  };
  if (h.mo != message_offset_)
    return refuse(cause::kInvalidMo, Format("MO %u where %u was expected", h.mo, message_offset_));
  if (rtr_send_ && length == 0 && h.last && h.mo == 0) return Placement{.kind = Placement::Kind::kMessage};
  if (buffers_.empty()) return refuse(cause::kNoBuffer, Format("Send %u finds no receive posted", h.msn));
  const uint32_t limit = buffers_.limit();
  if (h.mo > limit || length > limit - h.mo) {
    return refuse(cause::kTooLong, Format("%u bytes at MO %u, buffers have %u", length, h.mo, limit));
  }
  return Placement{.kind = Placement::Kind::kMessage};
}

Result<Placement, Violation> SegmentJudge::JudgeWrite(const DdpHeader& h, uint32_t length) const {
  // RFC 5041, 5.2: the STag and TO of a zero-length tagged message are not checked.
  if (length == 0) return Placement{.kind = Placement::Kind::kPlace};
  const auto place = stags_.Access(h.stag, h.to, length, Rights::kRemoteWrite);
  if (!place)
    return unexpected(
        MakeViolation(TaggedCause(place.error()), h, length, DescribeRange(h, h.to, length, h.stag)));
  return Placement{.kind = Placement::Kind::kPlace, .place = *place};
}

Result<Placement, Violation> SegmentJudge::JudgeReadResponse(const DdpHeader& h, uint32_t length) const {
  const auto refuse = [&](const TerminateCause& cause, std::string detail) {
    return unexpected(MakeViolation(cause, h, length, std::move(detail)));
  };
  const PendingRead* read = reads_.oldest();
  if (read == nullptr) return refuse(cause::kUnexpectedOpcode, "RDMA Read Response without a request");
  const ReadRequest& wanted = read->request;
  const uint32_t missing = wanted.size - read->received;
  if (h.last && length < missing) {
    return refuse(cause::kUnspecified, Format("RDMA Read Response ends %u bytes early", missing - length));
  }
  if (length == 0) return Placement{.kind = Placement::Kind::kPlace};
  if (h.stag != wanted.sink_stag)
    return refuse(cause::kTaggedInvalidSTag, DescribeRange(h, h.to, length, h.stag));
  if (h.to + length < h.to) return refuse(cause::kTaggedToWrap, DescribeRange(h, h.to, length, h.stag));
  if (h.to != wanted.sink_to + read->received || length > missing) {
    return refuse(cause::kTaggedBounds, DescribeRange(h, h.to, length, h.stag));
  }
  const auto place = stags_.Access(h.stag, h.to, length, Rights::kLocal);
  if (!place) return refuse(TaggedCause(place.error()), DescribeRange(h, h.to, length, h.stag));
  return Placement{.kind = Placement::Kind::kPlace, .place = *place};
}

Result<Placement, Violation> SegmentJudge::JudgeReadRequest(const DdpHeader& h, uint32_t length) const {
  const auto refuse = [&](const TerminateCause& cause, std::string detail) {
    return unexpected(MakeViolation(cause, h, length, std::move(detail)));
  };
  if (h.mo != 0) return refuse(cause::kInvalidMo, Format("RDMA Read Request at MO %u", h.mo));
  if (reads_wanted_ >= ird_) return refuse(cause::kNoBuffer, Format("more RDMA Reads than IRD %u", ird_));
  if (length > kReadRequestSize)
    return refuse(cause::kTooLong, Format("RDMA Read Request of %u bytes", length));
  if (length < kReadRequestSize || !h.last)
    return refuse(cause::kUnspecified, Format("RDMA Read Request of %u bytes", length));
  return Placement{};
}

bool SegmentJudge::ExpectsPlacement(const DdpHeader* current) const {
  const bool ends_read = current != nullptr &&
                         current->opcode == static_cast<uint8_t>(RdmapOpcode::kReadResponse) && current->last;
  return stags_.open_to_writes() || reads_.in_flight() > (ends_read ? 1u : 0u);
}

uint64_t SegmentJudge::RoomBehind(const DdpHeader& h, uint32_t length) const {
  const PendingRead* read = reads_.oldest();
  if (h.opcode != static_cast<uint8_t>(RdmapOpcode::kReadResponse) || read == nullptr) return 0;
  return std::min<uint64_t>(stags_.RoomAt(h.stag, h.to + length),
                            read->request.size - read->received - length);
}

Result<SegmentOutcome, Violation> SegmentJudge::HandleSegment(const DdpHeader& h, uint32_t length,
                                                              Bytes body) {
  switch (static_cast<RdmapOpcode>(h.opcode)) {
    case RdmapOpcode::kWrite:
      return segment::None{};
    case RdmapOpcode::kReadResponse: {
      PendingRead* read = reads_.oldest();
      read->received += length;
      if (!h.last) return segment::None{};
      const segment::ReadDone done{.id = read->id, .length = read->received, .silent = read->silent};
      reads_.FinishOldest();
      return done;
    }
    case RdmapOpcode::kReadRequest:
      return FinishReadRequest(h, length, body);
    case RdmapOpcode::kTerminate:
      return segment::Terminated{.message = h.mo == 0 && h.last ? ParseTerminate(body) : std::nullopt};
    default:
      return FinishSend(h, length);
  }
}

Result<SegmentOutcome, Violation> SegmentJudge::FinishSend(const DdpHeader& h, uint32_t length) {
  message_offset_ += length;
  if (!h.last) return segment::None{};
  segment::MessageEnd end{.length = std::exchange(message_offset_, 0)};
  ++expected_msn_[kSendQueue];
  if (std::exchange(rtr_send_, false) && end.length == 0) return segment::ReadyToReceive{};
  buffers_.Consume();
  const OpcodeInfo& info = InfoOf(static_cast<RdmapOpcode>(h.opcode));
  end.solicited = info.solicited;
  if (info.invalidates) {
    // RFC 5040, 5.3: the peer can invalidate only an STag associated with the stream. This RNIC also requires
    // that the region is open to the peer.
    if (!stags_.InvalidateByPeer(h.stag)) {
      return unexpected(
          MakeViolation(cause::kCannotInvalidate, h, length, Format("STag 0x%08x", h.stag.value())));
    }
    end.invalidate = h.stag;
  }
  return end;
}

bool SegmentJudge::IsUsualSend(const DdpHeader& h, uint32_t length, uint32_t ahead) const {
  const auto opcode = static_cast<RdmapOpcode>(h.opcode);
  const bool send = opcode == RdmapOpcode::kSend || opcode == RdmapOpcode::kSendSe;
  const bool whole = h.last && h.mo == 0 && message_offset_ == 0;
  return !h.tagged && send && whole && h.queue == kSendQueue && h.msn == expected_msn_[kSendQueue] + ahead &&
         h.ddp_version == kDdpVersion && h.rdmap_version <= kRdmapVersion && !rtr_send_ &&
         !buffers_.empty() && length <= buffers_.limit();
}

void SegmentJudge::TakeUsualSend() {
  ++expected_msn_[kSendQueue];
  buffers_.Consume();
}

Result<SegmentOutcome, Violation> SegmentJudge::FinishReadRequest(const DdpHeader& h, uint32_t length,
                                                                  Bytes body) {
  ++expected_msn_[kReadRequestQueue];
  ++reads_wanted_;
  segment::ReadWanted wanted{.request = ParseReadRequest(body.first<kReadRequestSize>())};
  const ReadRequest& r = wanted.request;
  // RFC 5040, 5.2.1: the source of a zero-length Read is not validated.
  if (r.size == 0) return wanted;
  const auto source = stags_.Access(r.source_stag, r.source_to, r.size, Rights::kRemoteRead);
  if (!source) {
    Violation v = MakeViolation(ReadCause(source.error()), h, length,
                                DescribeRange(h, r.source_to, r.size, r.source_stag));
    v.answer.read_request = r;
    return unexpected(std::move(v));
  }
  wanted.source = *source;
  return wanted;
}

}  // namespace sdp::iwarp
