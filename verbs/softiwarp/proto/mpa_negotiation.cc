#include "verbs/softiwarp/proto/mpa_negotiation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace sdp::iwarp {
namespace {

constexpr uint8_t kLowestRevision = 1;
constexpr uint8_t kHighestRevision = 2;

// Returns our limit, lowered to the peer's offer; kIrdOrdOpen leaves ours unchanged.
uint16_t Lowered(uint16_t ours, uint16_t peers) {
  return peers == kIrdOrdOpen ? ours : std::min(ours, peers);
}

}  // namespace

MpaNegotiation::MpaNegotiation(const MpaOptions& options, Bytes private_data, uint16_t ird, uint16_t ord,
                               Time now)
    : options_(options), deadline_(now + options.timeout) {
  SDP_CHECK(private_data.size() <= max_private_data(options.revision));
  agreement_ = {
      .role = MpaRole::kInitiator, .receive_markers = options.want_markers, .revision = options.revision};
  agreement_.ird = std::min(ird, static_cast<uint16_t>(kIrdOrdOpen - 1));
  agreement_.ord = std::min(ord, static_cast<uint16_t>(kIrdOrdOpen - 1));
  MpaFrame request{.kind = MpaFrameKind::kRequest,
                   .markers = options.want_markers,
                   .crc = options.want_crc,
                   .revision = options.revision,
                   .private_data = private_data};
  if (options.revision >= 2) {
    words_ = MpaWords{.ird = agreement_.ird, .ord = agreement_.ord};
    if (options.peer_to_peer) {
      words_->peer_to_peer = true;
      words_->rtr_write = !options.rtr_by_read;
      words_->rtr_read = agreement_.ord > 0;  // with ORD 0 this side cannot offer a Read
    }
    request.words = words_;
  }
  Send(request);
}

MpaNegotiation::MpaNegotiation(const MpaOptions& options, Time now)
    : options_(options), deadline_(now + options.timeout) {
  agreement_ = {.role = MpaRole::kResponder, .receive_markers = options.want_markers};
}

void MpaNegotiation::HandleBytes(Bytes bytes) {
  if (state_ == MpaState::kRequested && !bytes.empty())
    return Fail("the peer sent more before our MPA Reply");
  if (state_ != MpaState::kWaiting) return;
  const size_t n = std::min(bytes.size(), input_room());
  std::memcpy(input_.data() + input_size_, bytes.data(), n);
  input_size_ += n;
  const bool initiator = agreement_.role == MpaRole::kInitiator;
  const auto parsed = ParseMpaFrame(Bytes(input_).first(input_size_),
                                    initiator ? MpaFrameKind::kReply : MpaFrameKind::kRequest);
  if (!parsed) {
    switch (parsed.error()) {
      case MpaFrameError::kIncomplete:
        return;
      case MpaFrameError::kBadKey:
        return Fail(initiator ? "no MPA Reply: wrong key" : "no MPA Request: wrong key");
      case MpaFrameError::kBadLength:
        return Fail("MPA frame with more than 512 bytes of private data");
      case MpaFrameError::kWordsMissing:
        return Fail("enhanced MPA frame without IRD and ORD");
    }
  }
  behind_reply_ = Bytes(input_).first(input_size_).subspan(parsed->size);
  if (!behind_reply_.empty() && !initiator) return Fail("bytes behind the MPA frame");
  peer_private_data_ = parsed->frame.private_data;
  initiator ? HandleReply(parsed->frame) : HandleRequest(parsed->frame);
}

void MpaNegotiation::HandleEof() {
  if (state_ != MpaState::kWaiting && state_ != MpaState::kRequested) return;
  End(input_size_ == 0 ? "closed by the peer before any MPA frame"
                       : "closed by the peer during MPA start-up");
}

void MpaNegotiation::HandleTime(Time now) {
  if (state_ == MpaState::kWaiting && now >= deadline_) End("MPA start-up timed out");
}

void MpaNegotiation::HandleSent(size_t n) {
  sent_ += n;
  SDP_CHECK(sent_ <= output_size_);
}

void MpaNegotiation::HandleRequest(const MpaFrame& frame) {
  if (frame.revision < kLowestRevision || frame.revision > std::min(options_.revision, kHighestRevision)) {
    return Fail("MPA revision " + std::to_string(frame.revision) + " is not spoken here");
  }
  agreement_.revision = frame.revision;
  agreement_.crc = frame.crc || options_.want_crc;
  agreement_.send_markers = frame.markers;
  words_ = frame.words;
  if (words_ && words_->peer_to_peer) {
    // The peer offers kinds and this side chooses one. If the peer offers none, an RDMA Write asks least of
    // both.
    if (words_->rtr_write) {
      agreement_.rtr = Rtr::kWrite;
    } else if (words_->rtr_read) {
      agreement_.rtr = Rtr::kRead;
    } else if (words_->rtr_send) {
      agreement_.rtr = Rtr::kSend;
    } else {
      agreement_.rtr = Rtr::kWrite;
    }
  }
  state_ = MpaState::kRequested;
}

void MpaNegotiation::Accept(Bytes private_data, uint16_t ird, uint16_t ord) {
  if (state_ != MpaState::kRequested) return;
  MpaFrame reply{.kind = MpaFrameKind::kReply,
                 .markers = options_.want_markers,
                 .crc = agreement_.crc,
                 .revision = agreement_.revision,
                 .private_data = private_data};
  agreement_.ird = std::min(ird, static_cast<uint16_t>(kIrdOrdOpen - 1));
  agreement_.ord = std::min(ord, static_cast<uint16_t>(kIrdOrdOpen - 1));
  if (words_) {
    agreement_.ord = Lowered(agreement_.ord, words_->ird);
    // The peer's Reads need no more room than it asks for. Its RTR may be a Read.
    agreement_.ird = Lowered(agreement_.ird, words_->ord);
    if (agreement_.rtr == Rtr::kRead) agreement_.ird = std::max<uint16_t>(agreement_.ird, 1);
    reply.words = MpaWords{.ird = agreement_.ird,
                           .ord = agreement_.ord,
                           .peer_to_peer = words_->peer_to_peer,
                           .rtr_send = agreement_.rtr == Rtr::kSend,
                           .rtr_write = agreement_.rtr == Rtr::kWrite,
                           .rtr_read = agreement_.rtr == Rtr::kRead};
  }
  Send(reply);
  state_ = MpaState::kEstablished;
}

void MpaNegotiation::Reject(Bytes private_data) {
  if (state_ != MpaState::kRequested) return;
  MpaFrame reply{.kind = MpaFrameKind::kReply,
                 .markers = options_.want_markers,
                 .crc = agreement_.crc,
                 .reject = true,
                 .revision = agreement_.revision,
                 .private_data = private_data};
  if (words_) reply.words = MpaWords{};
  Send(reply);
  state_ = MpaState::kRejected;
}

void MpaNegotiation::HandleReply(const MpaFrame& frame) {
  if (frame.revision != options_.revision) {
    return Fail("MPA Reply has revision " + std::to_string(frame.revision) + ", ours is " +
                std::to_string(options_.revision));
  }
  if (frame.reject) {
    state_ = MpaState::kRejected;
    return;
  }
  agreement_.crc = frame.crc || options_.want_crc;
  agreement_.send_markers = frame.markers;
  if (words_) {
    if (!frame.words) return Fail("MPA Reply without IRD and ORD");
    const MpaWords& theirs = *frame.words;
    if (theirs.ord != kIrdOrdOpen && theirs.ord > agreement_.ird) {
      // RFC 6581, section 8: tell the peer with a Terminate.
      return Fail("the peer wants ORD " + std::to_string(theirs.ord) + ", our IRD is " +
                      std::to_string(agreement_.ird),
                  cause::kInsufficientIrd);
    }
    agreement_.ord = Lowered(agreement_.ord, theirs.ird);
    agreement_.ird = Lowered(agreement_.ird, theirs.ord);
    if (words_->peer_to_peer && theirs.peer_to_peer) {
      if (words_->rtr_write && theirs.rtr_write) {
        agreement_.rtr = Rtr::kWrite;
      } else if (words_->rtr_read && theirs.rtr_read && agreement_.ord > 0) {
        agreement_.rtr = Rtr::kRead;
      } else {
        return Fail("the peer takes none of our RTR messages", cause::kNoMatchingRtr);
      }
    }
  }
  state_ = MpaState::kEstablished;
}

void MpaNegotiation::End(std::string why) {
  failure_ = std::move(why);
  state_ = MpaState::kFailed;
}

void MpaNegotiation::Fail(std::string why, std::optional<TerminateCause> terminate) {
  terminate_ = terminate;
  peer_is_wrong_ = true;
  End(std::move(why));
}

void MpaNegotiation::Send(const MpaFrame& frame) {
  output_size_ = SerializeMpaFrame(frame, output_);
  sent_ = 0;
}

}  // namespace sdp::iwarp
