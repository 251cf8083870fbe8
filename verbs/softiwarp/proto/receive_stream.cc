#include "verbs/softiwarp/proto/receive_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace sdp::iwarp {
namespace {

// Less payload than this is copied: not worth a read of its own.
constexpr uint32_t kWorthPlacing = 4096;
// What a sleeping read takes when the rest could be placed directly: enough to be woken, little to copy.
constexpr size_t kSleepingSip = 2048;
// A chunk with less room than this is not read into any more, so that reads stay large.
constexpr uint32_t kRoomInSmall = 2048;
constexpr uint32_t kRoomInBig = 64 * 1024;
constexpr size_t kBulkThreshold = 12 * 1024;
constexpr size_t kNextHeader = kMpaLengthSize + kUntaggedHeaderSize;
// A message in several pieces, but no longer than this, is copied into one.
constexpr uint32_t kShortMessage = 256;
// Segments smaller than a message by more than this factor would not fit kMaxMessagePieces.
constexpr uint32_t kFinelySplit = kMaxMessagePieces - 1;

}  // namespace

ReceiveStream::ReceiveStream(const ReceiveOptions& options, StagTable& stags, ReceiveBuffers& buffers,
                             ReadQueue& reads)
    : options_(options),
      buffers_(buffers),
      judge_(stags, buffers, reads, options.ird, options.rtr_send),
      sieve_(options.markers ? std::make_unique<MarkerSieve>() : nullptr),
      reader_(options.crc, sieve_.get()),
      message_(chunks_) {}

std::span<const MutableBytes> ReceiveStream::PrepareRead(ReadKind kind) {
  SDP_DCHECK(!reading_ && unparsed_.empty());
  const MutableBytes direct = kind == ReadKind::kAtOnce ? DirectTarget() : MutableBytes{};
  const size_t wanted = ChunkBytesWanted(kind, !direct.empty());
  if (!EnsureChunk(wanted)) return {};
  target_count_ = 0;
  direct_ = !direct.empty();
  if (direct_) targets_[target_count_++] = direct;
  targets_[target_count_++] =
      MutableBytes(chunk_->data() + fill_, std::min<size_t>(wanted, chunk_->capacity - fill_));
  reading_ = true;
  return std::span(targets_).first(target_count_);
}

void ReceiveStream::HandleRead(size_t clean) {
  SDP_DCHECK(reading_);
  reading_ = false;
  if (direct_) {
    const auto n = static_cast<uint32_t>(std::min(clean, targets_[0].size()));
    reader_.HandlePlaced(n);
    placed_ += n;
    clean -= n;
    if (placement_.kind == Placement::Kind::kPlace) {
      place_ += n;
    } else {
      message_.HandlePlaced(n);
    }
  }
  unparsed_ = Bytes(chunk_->data() + fill_, clean);
  fill_ += static_cast<uint32_t>(clean);
}

bool ReceiveStream::PollEvent(ReceiveEvent* out) {
  while (!failed_) {
    Bytes payload;
    std::optional<ReceiveEvent> event;
    switch (reader_.Next(&unparsed_, &payload)) {
      case FpduReader::Step::kNeedMore:
        return false;
      case FpduReader::Step::kHeader:
        event = BeginSegment();
        break;
      case FpduReader::Step::kPayload:
        event = ConsumePayload(payload);
        break;
      case FpduReader::Step::kEnd:
        event = EndSegment();
        break;
      case FpduReader::Step::kTooShort:
        event = Report(MakeMpaViolation(cause::kFpduStart,
                                        "ULPDU of " + std::to_string(reader_.ulpdu_length()) + " bytes"));
        break;
      case FpduReader::Step::kBadCrc:
        event = Report(MakeMpaViolation(cause::kBadCrc, "FPDU " + std::to_string(fpdus_ + 1)));
        break;
      case FpduReader::Step::kBadMarker:
        event = Report(MakeMpaViolation(cause::kFpduStart, "a marker points elsewhere"));
        break;
    }
    if (event) {
      *out = std::move(*event);
      return true;
    }
  }
  return false;
}

void ReceiveStream::FinishReading(size_t total) {
  bulk_ = total >= kBulkThreshold;
  if (chunk_ != nullptr && chunk_->refs == 1) DropChunk();
}

void ReceiveStream::Release(const Piece& piece) {
  Chunk* const chunk = piece.chunk;
  lent_ -= piece.length;
  chunks_.Unref(chunk);
  // Only our own reference is left: an idle connection holds no chunk. While a read sleeps in it, it stays.
  if (chunk == chunk_ && chunk != nullptr && chunk->refs == 1 && !reading_ && unparsed_.empty()) DropChunk();
}

void ReceiveStream::HandleDeregister(STag stag) {
  if (reader_.payload_left() == 0 && held_.empty()) return;
  if (placement_.kind != Placement::Kind::kPlace || header_.stag != stag || dropping_) return;
  dropping_ = true;
  DropHeld();
  verdict_ = MakeViolation(cause::kTaggedInvalidSTag, header_, reader_.payload_length(),
                           "invalidated while data came in");
}

void ReceiveStream::HandleMove(STag stag, const std::byte* from, std::byte* to) {
  if (placement_.kind != Placement::Kind::kPlace || header_.stag != stag || dropping_) return;
  place_ = to + (place_ - from);
}

MutableBytes ReceiveStream::DirectTarget() {
  // With CRC nothing is placed before the FPDU has been checked.
  const uint32_t left = reader_.payload_left();
  if (options_.crc || dropping_ || left < kWorthPlacing) return {};
  if (placement_.kind == Placement::Kind::kPlace) return {place_, left};
  if (placement_.kind != Placement::Kind::kMessage) return {};
  if (std::byte* place = message_.gather_place()) return {place, left};
  return {};
}

size_t ReceiveStream::ChunkBytesWanted(ReadKind kind, bool direct) const {
  if (direct && placement_.kind == Placement::Kind::kPlace && !header_.last)
    return reader_.trailer_size() + kNextHeader;
  if (kind == ReadKind::kSleeping && reader_.payload_left() >= kWorthPlacing) return kSleepingSip;
  return kBigChunk;
}

bool ReceiveStream::EnsureChunk(size_t wanted) {
  if (chunk_ != nullptr) {
    if (chunk_->refs == 1) fill_ = 0;
    const uint32_t room = chunk_->capacity == kSmallChunk ? kRoomInSmall : kRoomInBig;
    const bool outgrown = bulk_ && chunk_->capacity == kSmallChunk && wanted > kSmallChunk;
    if (!outgrown && chunk_->capacity - fill_ >= std::min<size_t>(wanted, room)) return true;
    DropChunk();
  }
  chunk_ = chunks_.Take(bulk_ && wanted > kSmallChunk ? kBigChunk : kSmallChunk);
  return chunk_ != nullptr;
}

void ReceiveStream::DropChunk() {
  chunks_.Unref(std::exchange(chunk_, nullptr));
  fill_ = 0;
}

std::optional<ReceiveEvent> ReceiveStream::BeginSegment() {
  header_ = ParseDdpHeader(reader_.header());
  dropping_ = false;
  body_size_ = 0;
  auto judged = judge_.HandleHeader(header_, reader_.payload_length());
  if (!judged) {
    placement_ = {};
    dropping_ = true;
    if (!options_.crc) return Report(std::move(judged.error()));
    // A damaged header would be blamed on the peer: the CRC speaks first.
    verdict_ = std::move(judged.error());
    return std::nullopt;
  }
  placement_ = *judged;
  place_ = placement_.place;
  if (placement_.kind == Placement::Kind::kMessage) {
    const uint32_t length = reader_.payload_length();
    limit_ = std::max(buffers_.limit(), header_.mo + length);
    const bool fine = !header_.last && header_.mo == 0 && length < limit_ / kFinelySplit;
    if (!message_.StartSegment(length, limit_, fine || (!header_.last && crowded()))) {
      failed_ = true;
      return OutOfMemory{};
    }
  }
  return std::nullopt;
}

std::optional<ReceiveEvent> ReceiveStream::ConsumePayload(Bytes payload) {
  if (dropping_) return std::nullopt;
  switch (placement_.kind) {
    case Placement::Kind::kMessage:
      if (message_.Append(chunk_, payload, limit_)) return std::nullopt;
      failed_ = true;
      return OutOfMemory{};
    case Placement::Kind::kPlace:
      if (options_.crc) {
        RefChunk(chunk_);
        held_.push_back({payload.data(), static_cast<uint32_t>(payload.size()), chunk_});
      } else {
        std::memcpy(place_, payload.data(), payload.size());
        place_ += payload.size();
      }
      return std::nullopt;
    case Placement::Kind::kBody:
      const size_t n = std::min(payload.size(), body_.size() - body_size_);
      std::memcpy(body_.data() + body_size_, payload.data(), n);
      body_size_ += n;
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<ReceiveEvent> ReceiveStream::EndSegment() {
  if (verdict_) return Report(*std::exchange(verdict_, std::nullopt));
  PlaceHeld();
  auto outcome = judge_.HandleSegment(header_, reader_.payload_length(), Bytes(body_).first(body_size_));
  if (!outcome) return Report(std::move(outcome.error()));
  ++fpdus_;
  if (auto* end = std::get_if<segment::MessageEnd>(&*outcome)) {
    if (end->invalidate) HandleDeregister(*end->invalidate);
    return Deliver(*end);
  }
  if (auto* wanted = std::get_if<segment::ReadWanted>(&*outcome)) return *wanted;
  if (auto* done = std::get_if<segment::ReadDone>(&*outcome)) return *done;
  if (auto* terminated = std::get_if<segment::Terminated>(&*outcome)) {
    failed_ = true;
    return *terminated;
  }
  return std::nullopt;
}

ReceiveEvent ReceiveStream::Deliver(const segment::MessageEnd& end) {
  lent_ += end.length;
  if (end.length == 0) message_.Drop();  // segments without payload may have begun to gather
  const bool scattered = message_.pieces() > 1 && end.length <= kShortMessage;
  if ((scattered || (end.length > 0 && crowded())) && !message_.CopyOut(end.length)) {
    failed_ = true;
    return OutOfMemory{};
  }
  return ReceivedMessage{.body = message_.Finish(), .end = end};
}

std::optional<ReceiveEvent> ReceiveStream::Report(Violation violation) {
  failed_ = true;
  message_.Drop();
  DropHeld();
  return violation;
}

void ReceiveStream::PlaceHeld() {
  for (const Piece& piece : held_) {
    std::memcpy(place_, piece.data, piece.length);
    place_ += piece.length;
  }
  DropHeld();
}

void ReceiveStream::DropHeld() {
  for (const Piece& piece : held_) chunks_.Unref(piece.chunk);
  held_.clear();
}

}  // namespace sdp::iwarp
