#include "verbs/softiwarp/soft_connector.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace sdp::iwarp {
namespace {

using verbs::ConnectState;
using verbs::LinkEnd;

// An unanswered RTR is repeated after this interval, then after twice as long each time.
constexpr Duration kFirstRtrInterval = std::chrono::milliseconds(20);

MpaOptions ToMpaOptions(const SoftOptions& options) {
  return {.want_crc = options.want_crc,
          .want_markers = options.want_markers,
          .peer_to_peer = options.peer_to_peer,
          .rtr_by_read = options.rtr_by_read,
          .revision = options.revision,
          .timeout = options.startup_timeout};
}

bool MayBeLocal(const SoftOptions& options) {
  return options.local_link && !options.want_crc && !options.want_markers;
}

bool IsPlain(const MpaAgreement& agreement) {
  return !agreement.crc && !agreement.send_markers && !agreement.receive_markers;
}

// The negotiation copies what these return.
std::vector<std::byte> Joined(Bytes private_data, Bytes more) {
  std::vector<std::byte> all(private_data.begin(), private_data.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::vector<std::byte> WithOffer(Bytes private_data, const LocalMeeting* meeting) {
  return meeting != nullptr ? Joined(private_data, meeting->offer().Serialize()) : Joined(private_data, {});
}

// Without markers no receiver resynchronises on segment boundaries, so an FPDU may span as many segments as
// its length field allows. With markers the peer means to resynchronise, so each FPDU fits one segment (RFC
// 5044, 4.5).
uint32_t MaxUlpdu(const SoftOptions& options, bool send_markers, uint32_t segment_size) {
  uint32_t size = kMaxSentUlpdu;
  if (send_markers && segment_size > 0) {
    const uint32_t markers = (segment_size + kMarkerInterval - 1) / kMarkerInterval;
    const uint32_t overhead = kMpaLengthSize + kCrcSize + kMarkerSize * markers + segment_size % 4;
    size = std::min<uint32_t>(size, segment_size > overhead ? segment_size - overhead : 0);
  }
  if (options.max_ulpdu > 0) size = std::min(size, options.max_ulpdu);
  return std::max(size, kSmallestUlpdu);
}

}  // namespace

SoftConnector::SoftConnector(int fd, const SoftOptions& options, Bytes private_data,
                             const verbs::QpOptions& qp, Time now)
    : link_(fd),
      options_(options),
      meeting_(MayBeLocal(options) ? LocalMeeting::Open(fd) : nullptr),
      qp_options_(qp),
      negotiation_(ToMpaOptions(options), WithOffer(private_data, meeting_.get()), qp.ird, qp.ord, now),
      waited_(Duration::zero()),
      send_deadline_(now + options.startup_timeout) {}

SoftConnector::SoftConnector(int fd, const SoftOptions& options, Time now)
    : link_(fd),
      options_(options),
      negotiation_(ToMpaOptions(options), now),
      send_deadline_(now + options.startup_timeout) {}

ConnectState SoftConnector::Step(Time now) {
  if (cause_.end == LinkEnd::kOpen && !established_) {
    const bool sends = !negotiation_.output().empty();
    SendOutput();
    const size_t room = negotiation_.input_room();
    if (!sends) ReadInput();  // there is no answer yet
    if (!waited_) waited_ = negotiation_.input_room() == room ? options_.deferral : Duration::zero();
    bool late = now >= send_deadline_ && !negotiation_.output().empty();
    if (negotiation_.state() == MpaState::kWaiting) {
      negotiation_.HandleTime(now + *waited_);
      late = late || negotiation_.state() == MpaState::kFailed;
    }
    if (late) Fail(LinkEnd::kReset, "MPA start-up timed out", ETIMEDOUT);
  }
  if (cause_.end != LinkEnd::kOpen) return ConnectState::kFailed;
  switch (negotiation_.state()) {
    case MpaState::kWaiting:
      return ConnectState::kInProgress;
    case MpaState::kRequested:
      if (memory_ == nullptr && why_not_local_.empty()) AnswerOffer();
      return ConnectState::kRequested;
    case MpaState::kRejected:
      // This side is the responder, and its rejection is complete once the frame has left.
      return negotiation_.output().empty() ? ConnectState::kRejected : ConnectState::kInProgress;
    case MpaState::kFailed:
      if (negotiation_.terminate()) {
        memory_.reset();
        qp_ = MakeQueuePair();
        qp_->TerminateStream(*negotiation_.terminate(), negotiation_.failure());
        cause_ = qp_->cause();
        qp_.reset();
      } else {
        Fail(LinkEnd::kReset, negotiation_.failure());
        cause_.local = negotiation_.peer_is_wrong();
      }
      return ConnectState::kFailed;
    case MpaState::kEstablished:
      break;
  }
  if (!negotiation_.output().empty()) return ConnectState::kInProgress;
  if (!established_ && memory_ != nullptr && !same_memory_) {
    if (const ConnectState heard = HearAnswer(now); heard != ConnectState::kEstablished) return heard;
  }
  if (!std::exchange(established_, true)) {
    TakeAnswer();
    if (cause_.end != LinkEnd::kOpen) return ConnectState::kFailed;
    qp_ = MakeQueuePair();
    if (open_ && !negotiation_.behind_reply().empty()) qp_->HandleEarly(negotiation_.behind_reply());
    if (RtrWayOf(peer_private_data()) == RtrWay::kConfirmed) BeginConfirmation(now);
    qp_->Flush();  // the RTR, if any, opens the peer's direction
  }
  return confirming_ ? StepConfirmation(now) : ConnectState::kEstablished;
}

// The kernel's siw sends the MPA Reply first and then hands its socket from the MPA start-up to the queue
// pair. siw does not look for bytes that came meanwhile: an early RTR lies there until further bytes come.
// The peer's RNIC answers a zero-length RDMA Read without its program.
void SoftConnector::BeginConfirmation(Time now) {
  const MpaAgreement agreement = this->agreement();
  if (agreement.role != MpaRole::kInitiator || agreement.rtr == Rtr::kNone || qp_->facts().ord == 0) return;
  confirming_ = true;
  if (agreement.rtr != Rtr::kRead) qp_->PostRtr(Rtr::kRead);
  rtr_interval_ = kFirstRtrInterval;
  next_rtr_ = now + rtr_interval_;
}

ConnectState SoftConnector::StepConfirmation(Time now) {
  qp_->Flush();
  if (qp_->ReadLink() == verbs::ReadStatus::kEnded && qp_->counters().fpdus_in == 0) {
    cause_ = qp_->cause();
    return ConnectState::kFailed;
  }
  if (qp_->counters().fpdus_in > 0) {
    confirming_ = false;
    return ConnectState::kEstablished;
  }
  if (now >= send_deadline_) {
    Fail(LinkEnd::kReset, "the peer's RNIC does not answer", ETIMEDOUT);
    return ConnectState::kFailed;
  }
  if (now >= next_rtr_) {
    qp_->PostRtr(Rtr::kWrite);
    qp_->Flush();
    rtr_interval_ *= 2;
    next_rtr_ = now + rtr_interval_;
  }
  return ConnectState::kInProgress;
}

void SoftConnector::SetEventFd(int fd) {
  link_.set_fd(fd);
  if (qp_) qp_->SetEventFd(fd);
}

verbs::Interest SoftConnector::interest() const {
  if (confirming_ && cause_.end == LinkEnd::kOpen) return qp_->interest();
  const bool over = cause_.end != LinkEnd::kOpen || established_;
  return {.read = !over && negotiation_.output().empty(),
          .write = !over && link_full_ && !negotiation_.output().empty()};
}

Time SoftConnector::deadline() const {
  if (confirming_ && cause_.end == LinkEnd::kOpen) return std::min(next_rtr_, send_deadline_);
  if (cause_.end != LinkEnd::kOpen || established_) return kNever;
  if (!negotiation_.output().empty() || memory_ != nullptr) return send_deadline_;
  return negotiation_.deadline() == kNever ? kNever
                                           : negotiation_.deadline() - waited_.value_or(Duration::zero());
}

void SoftConnector::Accept(Bytes private_data, const verbs::QpOptions& options) {
  qp_options_ = options;
  if (memory_ == nullptr && options_.local_link_only) {
    negotiation_.Reject({});
  } else {
    open_ = may_open() && RtrWayOf(private_data) == RtrWay::kNone;
    const Bytes same = same_memory_ ? std::as_bytes(std::span(kSameMemory)) : Bytes{};
    negotiation_.Accept(Joined(private_data, same), options.ird, options.ord);
  }
  SendOutput();
}

void SoftConnector::Reject(Bytes private_data) {
  negotiation_.Reject(private_data);
  SendOutput();
}

void SoftConnector::SendOutput() {
  link_full_ = false;
  while (!negotiation_.output().empty()) {
    const Bytes output = negotiation_.output();
    const iovec part{const_cast<std::byte*>(output.data()), output.size()};
    const LinkResult sent = link_.Write(std::span(&part, 1));
    if (sent.kind == LinkResult::Kind::kWouldBlock) {
      link_full_ = true;
      return;
    }
    if (sent.kind != LinkResult::Kind::kOk) {
      return Fail(LinkEnd::kReset,
                  std::string("connection lost during MPA start-up: ") + strerrordesc_np(sent.error),
                  sent.error);
    }
    negotiation_.HandleSent(sent.bytes);
  }
}

void SoftConnector::ReadInput() {
  const MpaState state = negotiation_.state();
  if (cause_.end != LinkEnd::kOpen || (state != MpaState::kWaiting && state != MpaState::kRequested)) return;
  std::array<std::byte, kMaxMpaFrame + 1> buffer;
  // One byte more than a frame shows a peer that does not wait for the answer.
  const MutableBytes room = MutableBytes(buffer).first(std::max<size_t>(negotiation_.input_room(), 1));
  const LinkResult read = link_.Read(std::span(&room, 1));
  switch (read.kind) {
    case LinkResult::Kind::kOk:
      return negotiation_.HandleBytes(room.first(read.bytes));
    case LinkResult::Kind::kEof:
      return negotiation_.HandleEof();
    case LinkResult::Kind::kError:
      return Fail(LinkEnd::kReset,
                  std::string("connection lost during MPA start-up: ") + strerrordesc_np(read.error),
                  read.error);
    case LinkResult::Kind::kWouldBlock:
      return;
  }
}

void SoftConnector::Fail(LinkEnd end, std::string text, int os_error) {
  if (cause_.end != LinkEnd::kOpen) return;
  cause_.end = end;
  cause_.text = std::move(text);
  cause_.os_error = os_error;
}

bool SoftConnector::may_open() const {
  const MpaAgreement& agreement = negotiation_.agreement();
  return memory_ == nullptr && IsPlain(agreement) && agreement.rtr != Rtr::kNone;
}

MpaAgreement SoftConnector::agreement() const {
  MpaAgreement agreement = negotiation_.agreement();
  agreement.open = same_memory_ || open_;
  if (agreement.open) agreement.rtr = Rtr::kNone;
  return agreement;
}

Bytes SoftConnector::peer_private_data() const {
  const Bytes all = negotiation_.peer_private_data();
  if (PeerHasSameMemory()) return all.first(all.size() - kSameMemory.size());
  return PeerOffer() ? all.first(all.size() - LocalOffer::kSize) : all;
}

bool SoftConnector::PeerHasSameMemory() const {
  const Bytes all = negotiation_.peer_private_data();
  return negotiation_.agreement().role == MpaRole::kInitiator && all.size() >= kSameMemory.size() &&
         std::memcmp(all.last(kSameMemory.size()).data(), kSameMemory.data(), kSameMemory.size()) == 0;
}

std::optional<LocalOffer> SoftConnector::PeerOffer() const {
  if (negotiation_.agreement().role != MpaRole::kResponder) return std::nullopt;
  return LocalOffer::Parse(negotiation_.peer_private_data());
}

void SoftConnector::AnswerOffer() {
  const MpaAgreement& agreement = negotiation_.agreement();
  // Without an RTR nothing says soon whether the peer has taken the memory.
  const bool plain = IsPlain(agreement);
  const std::optional<LocalOffer> offer = PeerOffer();
  if (!options_.local_link) {
    why_not_local_ = options_.why_not_local;
  } else if (!MayBeLocal(options_) || !plain || agreement.rtr == Rtr::kNone) {
    why_not_local_ = "MPA with CRC or markers, or without an RTR, is on TCP";
  } else if (offer) {
    memory_ = iwarp::AnswerOffer(*offer, link_.fd(), &same_memory_, &why_not_local_);
  } else {
    why_not_local_ =
        "the connecting end has offered none (SDP_LINK=tcp, no descriptor left, or another version)";
  }
}

void SoftConnector::TakeAnswer() {
  const std::unique_ptr<LocalMeeting> meeting = std::move(meeting_);
  if (negotiation_.agreement().role != MpaRole::kInitiator) return;
  if (PeerHasSameMemory()) return TakeSameMemory(meeting.get());
  open_ = may_open() && RtrWayOf(peer_private_data()) == RtrWay::kNone;
  if (!open_ && !negotiation_.behind_reply().empty()) return BlamePeer("bytes behind the MPA Reply");
  std::string why = "no local link to this peer, and no other is allowed";
  const auto outcome = meeting == nullptr || !IsPlain(negotiation_.agreement())
                           ? LocalMeeting::Outcome::kRefused
                           : meeting->Take(&memory_, &why);
  switch (outcome) {
    case LocalMeeting::Outcome::kShared:
      return;
    case LocalMeeting::Outcome::kFailed:
      why_not_local_ = why;
      break;
    case LocalMeeting::Outcome::kRefused:
      why_not_local_ = !options_.local_link ? options_.why_not_local
                       : meeting == nullptr
                           ? "no offer was made: TCP_USER_TIMEOUT is set, or no descriptor is left"
                           : "the accepting end has sent no memory: its side says why";
      break;
  }
  if (options_.local_link_only) Fail(LinkEnd::kFailed, std::move(why));
}

// The accepting end may have sent something by now: its doorbells came behind its Reply, and are taken.
void SoftConnector::TakeSameMemory(LocalMeeting* meeting) {
  if (meeting != nullptr && IsPlain(negotiation_.agreement())) memory_ = meeting->TakeOffered();
  same_memory_ = memory_ != nullptr;
  const Bytes behind = negotiation_.behind_reply();
  if (!same_memory_) return BlamePeer("the accepting end speaks of memory that was not offered");
  if (!std::all_of(behind.begin(), behind.end(), [](std::byte b) { return b == kDoorbell; }))
    return BlamePeer("bytes behind the MPA Reply");
  if (!behind.empty()) memory_->Reader(LocalEnd::kConnecting).Arm();
}

void SoftConnector::BlamePeer(std::string text) {
  Fail(LinkEnd::kReset, std::move(text));
  cause_.local = true;
}

ConnectState SoftConnector::HearAnswer(Time now) {
  std::byte first{};
  const LinkResult read = link_.Peek(&first);
  if (read.kind == LinkResult::Kind::kWouldBlock) {
    if (now < send_deadline_) return ConnectState::kInProgress;
    Fail(LinkEnd::kReset, "no RTR came", ETIMEDOUT);
  } else if (read.kind == LinkResult::Kind::kEof) {
    Fail(LinkEnd::kClosedByPeer, "the peer closed the connection before its RTR");
  } else if (read.kind == LinkResult::Kind::kError) {
    Fail(LinkEnd::kReset, std::string("connection lost during MPA start-up: ") + strerrordesc_np(read.error),
         read.error);
  }
  if (cause_.end != LinkEnd::kOpen) return ConnectState::kFailed;
  if (first != kDoorbell) {
    memory_->LetGo();  // the peer has not mapped it
    memory_.reset();
    why_not_local_ = "the connecting end has not taken the memory: its side says why";
  }
  if (memory_ == nullptr && options_.local_link_only) {
    Fail(LinkEnd::kFailed, "the peer has not taken the memory of the local link");
    return ConnectState::kFailed;
  }
  return ConnectState::kEstablished;
}

std::unique_ptr<SoftQp> SoftConnector::MakeQueuePair() const {
  const MpaAgreement agreement = this->agreement();
  const uint32_t segment_size = agreement.send_markers ? link_.SegmentSize() : 0;
  return std::make_unique<SoftQp>(link_.fd(), agreement, qp_options_,
                                  MaxUlpdu(options_, agreement.send_markers, segment_size), memory_,
                                  why_not_local_);
}

}  // namespace sdp::iwarp
