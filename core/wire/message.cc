#include "core/wire/message.h"

#include <type_traits>

#include "core/base/check.h"

namespace sdp::wire {
namespace {

template <typename Header>
Result<Body, WireError> ParseBody(Bytes prefix, uint64_t payload) {
  if constexpr (Header::kSize == 0) {
    return Body(Header{});
  } else {
    const BoundedReader<Header::kSize> r(prefix.subspan(Bsdh::kSize).first<Header::kSize>());
    const Header header = Header::Parse(r);
    if constexpr (std::is_same_v<Header, SrcAvail> || std::is_same_v<Header, SinkAvail>) {
      if (header.len == 0 || header.len > kMaxSize) return unexpected(WireError::kAdvertisedLength);
    }
    if constexpr (std::is_same_v<Header, SrcAvail>) {
      // 6.3.2.2: the advertised buffer includes the bytes that travel as payload.
      if (payload > header.len) return unexpected(WireError::kAdvertisedLength);
    }
    if constexpr (std::is_same_v<Header, ModeChange>) {
      if (header.mode > ModeChange::kPipelined) return unexpected(WireError::kReservedMode);
    }
    if constexpr (std::is_same_v<Header, SuspComm>) {
      if (!SuspComm::HasConstants(r)) return unexpected(WireError::kSuspCommConstant);
    }
    return Body(header);
  }
}

template <typename Header>
Result<Message, WireError> ParseAs(const Bsdh& bsdh, Bytes prefix, uint64_t length, bool may_have_payload) {
  constexpr size_t kHeaders = Bsdh::kSize + Header::kSize;
  if (length < kHeaders || prefix.size() < kHeaders) return unexpected(WireError::kShort);
  if (bsdh.len != length || (!may_have_payload && length != kHeaders)) return unexpected(WireError::kLength);
  auto body = ParseBody<Header>(prefix, length - kHeaders);
  if (!body) return unexpected(body.error());
  return Message{bsdh, *body};
}

std::string Number(const char* name, uint64_t value) {
  return std::string(" ") + name + "=" + std::to_string(value);
}

std::string Describe(const Hello& h) {
  return Number("max_adverts", h.max_adverts) + Number("maj_v", h.maj_v) + Number("min_v", h.min_v) +
         Number("des_rem_rcv_sz", h.des_rem_rcv_sz) + Number("local_rcv_sz", h.local_rcv_sz) +
         Number("ird", h.loc_ird) + Number("ord", h.loc_ord);
}
std::string Describe(const HelloAck& h) {
  return Number("max_adverts", h.max_adverts) + Number("maj_v", h.maj_v) + Number("min_v", h.min_v) +
         Number("act_rcv_sz", h.act_rcv_sz) + Number("ird", h.loc_ird) + Number("ord", h.loc_ord);
}
std::string Describe(const SrcAvail& h) {
  return Number("len", h.len) + Number("stag", h.stag.value()) + Number("va", h.va);
}
std::string Describe(const SinkAvail& h) {
  return Number("len", h.len) + Number("stag", h.stag.value()) + Number("va", h.va) +
         Number("non_discards", h.non_discards);
}
std::string Describe(const RdmaWrCompl& h) { return Number("len", h.len); }
std::string Describe(const RdmaRdCompl& h) { return Number("len", h.len); }
std::string Describe(const ModeChange& h) {
  return Number("mode", h.mode) + Number("s", h.receivers_source ? 1 : 0);
}
std::string Describe(const ChRcvBuf& h) { return Number("des_sz", h.des_sz); }
std::string Describe(const ChRcvBufAck& h) { return Number("act_sz", h.act_sz); }
std::string Describe(const SuspComm& h) { return Number("port", h.port); }
template <Mid kMid>
std::string Describe(const Bare<kMid>&) {
  return {};
}

}  // namespace

size_t Message::header_size() const {
  return Bsdh::kSize + std::visit([](const auto& h) { return std::decay_t<decltype(h)>::kSize; }, body);
}

Result<Message, WireError> Parse(Bytes prefix, uint64_t length) {
  if (length < Bsdh::kSize || prefix.size() < Bsdh::kSize) return unexpected(WireError::kShort);
  const Bsdh bsdh = Bsdh::Parse(prefix.first<Bsdh::kSize>());
  switch (bsdh.mid) {
#define SDP_PARSE_CASE(name, value, header, payload)                      \
  case Mid::k##name:                                                      \
    static_assert(name::kMid == Mid::k##name && name::kSize == (header)); \
    return ParseAs<name>(bsdh, prefix, length, payload);
    SDP_MID_LIST(SDP_PARSE_CASE)
#undef SDP_PARSE_CASE
  }
  return unexpected(IsExperimental(static_cast<uint8_t>(bsdh.mid)) ? WireError::kExperimentalMid
                                                                   : WireError::kReservedMid);
}

size_t SerializeTo(const Message& message, MutableBytes out) {
  const size_t size = message.header_size();
  SDP_CHECK(out.size() >= size);
  return std::visit(
      [&](const auto& header) {
        using Header = std::decay_t<decltype(header)>;
        Bsdh bsdh = message.bsdh;
        bsdh.mid = Header::kMid;
        bsdh.SerializeTo(out.first<Bsdh::kSize>());
        if constexpr (Header::kSize != 0) {
          header.SerializeTo(
              BoundedWriter<Header::kSize>(out.subspan(Bsdh::kSize).template first<Header::kSize>()));
        }
        return size;
      },
      message.body);
}

const char* ToString(WireError error) {
  switch (error) {
    case WireError::kShort:
      return "short message";
    case WireError::kLength:
      return "Len does not match";
    case WireError::kReservedMid:
      return "reserved MID";
    case WireError::kExperimentalMid:
      return "experimental MID";
    case WireError::kAdvertisedLength:
      return "impossible advertised length";
    case WireError::kReservedMode:
      return "reserved mode";
    case WireError::kSuspCommConstant:
      return "wrong SuspComm constant";
  }
  return "?";
}

const char* ToString(Mid mid) {
  switch (mid) {
#define SDP_NAME_CASE(name, value, header, payload) \
  case Mid::k##name:                                \
    return #name;
    SDP_MID_LIST(SDP_NAME_CASE)
#undef SDP_NAME_CASE
  }
  return "?";
}

std::string ToString(const Message& message) {
  const Bsdh& b = message.bsdh;
  std::string text =
      ToString(std::visit([](const auto& h) { return std::decay_t<decltype(h)>::kMid; }, message.body));
  text += Number("bufs", b.bufs);
  if (b.flags & kOobPres) text += " OOB_PRES";
  if (b.flags & kOobPend) text += " OOB_PEND";
  if (b.flags & kReqPipe) text += " REQ_PIPE";
  text += Number("mseq", b.mseq.value()) + Number("ack", b.mseq_ack.value());
  text += std::visit([](const auto& h) { return Describe(h); }, message.body);
  if (const uint64_t headers = message.header_size(); b.len > headers)
    text += Number("payload", b.len - headers);
  return text;
}

}  // namespace sdp::wire
