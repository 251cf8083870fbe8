#include "verbs/softiwarp/proto/receive_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/byte_order.h"
#include "core/base/check.h"

namespace sdp::iwarp {
namespace {

// The size of a read into a chunk when the following bytes could be placed directly. That much wakes the
// reader and shows what comes, and leaves little to copy.
constexpr size_t kSip = 2048;
// Reads stop using a chunk with less room than this, so that they stay large.
constexpr uint32_t kRoomInSmall = 2048;
constexpr uint32_t kRoomInBig = 64 * 1024;
constexpr size_t kBulkThreshold = 12 * 1024;
constexpr size_t kNextHeader = kMpaLengthSize + kUntaggedHeaderSize;
constexpr size_t kLongestPad = 3;
constexpr size_t kLongestGap = kLongestPad + kCrcSize + kMpaLengthSize + kTaggedHeaderSize;
// A message in several pieces, but no longer than this, is copied into one.
constexpr uint32_t kShortMessage = 256;
// With segments smaller than the message by more than this factor, kMaxMessagePieces would not suffice.
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

std::span<const MutableBytes> ReceiveStream::PrepareRead() {
  SDP_DCHECK(!reading_ && read_left_ == 0 && unparsed_.empty());
  const MutableBytes direct = DirectTarget();
  targets_ = &only_target_;
  target_count_ = 0;
  direct_ = !direct.empty();
  bool message_over = true;
  if (direct_) {
    if (many_targets_ == nullptr) many_targets_ = std::make_unique<std::array<MutableBytes, kMaxTargets>>();
    targets_ = many_targets_->data();
    targets_[target_count_++] = direct;
    message_over = segment_.placement.kind != Placement::Kind::kPlace || segment_.header.last ||
                   LookAhead(direct.data() + direct.size());
  }
  const size_t wanted = ChunkBytesWanted(message_over);
  if (!EnsureChunk(target_count_ / 2 * kLongestGap + wanted)) return {};
  // The targets between the places hold the end of a segment and the header of the next.
  uint32_t at = fill_;
  uint32_t payload = reader_.payload_length();
  for (size_t i = 1; i < target_count_; i += 2) {
    const uint32_t gap = PadSize(kTaggedHeaderSize + payload) + kCrcSize + kMpaLengthSize + kTaggedHeaderSize;
    targets_[i] = MutableBytes(chunk_->data() + at, gap);
    at += gap;
    payload = static_cast<uint32_t>(targets_[i + 1].size());
  }
  targets_[target_count_++] =
      MutableBytes(chunk_->data() + at, std::min<size_t>(wanted, chunk_->capacity - at));
  reading_ = true;
  return {targets_, target_count_};
}

void ReceiveStream::HandleRead(size_t clean) {
  SDP_DCHECK(reading_);
  reading_ = false;
  next_target_ = 0;
  read_left_ = clean;
  unparsed_ = Bytes(chunk_->data() + fill_, 0);
  bool full = false;  // the last target, which lies in the chunk
  for (size_t i = 0; i < target_count_ && clean > 0; ++i) {
    const size_t n = std::min(clean, targets_[i].size());
    if (!direct_ || i % 2 == 1)
      fill_ = static_cast<uint32_t>(targets_[i].data() - chunk_->data() + static_cast<ptrdiff_t>(n));
    full = n == targets_[i].size() && n >= kBulkThreshold;
    clean -= n;
  }
  // More bytes wait, so the call's next read is already a large one.
  bulk_ = bulk_ || (full && !direct_);
}

std::optional<ReceiveEvent> ReceiveStream::TakePart() {
  const MutableBytes target = targets_[next_target_];
  const size_t n = std::min(read_left_, target.size());
  if (direct_ && next_target_ % 2 == 1 && reader_.payload_left() > 0) {
    return TakeBack();  // the bytes are payload that belongs to the next target
  } else if (!direct_ || next_target_ % 2 == 1) {
    unparsed_ = target.first(n);
  } else if (segment_.dropping || n > reader_.payload_left() || NextPlace() != target.data()) {
    return TakeBack();
  } else {
    const auto size = static_cast<uint32_t>(n);
    reader_.HandlePlaced(size);
    placed_ += size;
    if (segment_.placement.kind == Placement::Kind::kPlace) {
      segment_.place += size;
    } else {
      message_.HandlePlaced(size);
    }
  }
  ++next_target_;
  read_left_ -= n;
  return std::nullopt;
}

std::optional<ReceiveEvent> ReceiveStream::TakeBack() {
  Chunk* const chunk = chunks_.Take(read_left_);
  if (chunk == nullptr) {
    failed_ = true;
    return OutOfMemory{};
  }
  uint32_t size = 0;
  for (; read_left_ > 0; ++next_target_) {
    const MutableBytes target = targets_[next_target_];
    const size_t n = std::min(read_left_, target.size());
    std::memcpy(chunk->data() + size, target.data(), n);
    size += static_cast<uint32_t>(n);
    read_left_ -= n;
  }
  DropChunk();
  chunk_ = chunk;
  fill_ = size;
  unparsed_ = Bytes(chunk->data(), size);
  return std::nullopt;
}

std::optional<ReceiveStream::UsualSend> ReceiveStream::FindUsualSend(const std::byte* first, uint64_t there,
                                                                     uint32_t ahead) const {
  const uint32_t ulpdu = LoadBe<uint16_t>(first);
  const uint32_t fpdu = kMpaLengthSize + ulpdu + PadSize(ulpdu) + kCrcSize;
  if (ulpdu < kUntaggedHeaderSize || there < fpdu) return std::nullopt;
  const uint32_t length = ulpdu - kUntaggedHeaderSize;
  const DdpHeader header = ParseDdpHeader(first + kMpaLengthSize);
  if (!judge_.IsUsualSend(header, length, ahead)) return std::nullopt;
  const bool solicited = static_cast<RdmapOpcode>(header.opcode) == RdmapOpcode::kSendSe;
  return UsualSend{.fpdu = fpdu, .length = length, .solicited = solicited};
}

bool ReceiveStream::PollUsualSend(ReceivedMessage* out) {
  if (unparsed_.empty() && read_left_ > 0 && !direct_) (void)TakePart();
  if (unparsed_.size() < kUsualPrefix || !ready_for_usual() || crowded()) return false;
  const auto usual = FindUsualSend(unparsed_.data(), unparsed_.size(), 0);
  if (!usual) return false;
  TakeUsualSend();
  lent_ += usual->length;
  out->end = {.length = usual->length, .solicited = usual->solicited};
  out->body.count = usual->length > 0 ? 1 : 0;
  if (usual->length > 0) {
    RefChunk(chunk_);
    out->body.pieces[0] = {unparsed_.data() + kUsualPrefix, usual->length, chunk_};
  }
  unparsed_ = unparsed_.subspan(usual->fpdu);
  return true;
}

bool ReceiveStream::PollEvent(ReceiveEvent* out) {
  while (!failed_) {
    Bytes payload;
    std::optional<ReceiveEvent> event;
    switch (reader_.Next(&unparsed_, &payload)) {
      case FpduReader::Step::kNeedMore:
        if (read_left_ == 0) return false;
        event = TakePart();
        break;
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
  if (total > 0) bulk_ = total >= kBulkThreshold;  // a read without bytes says nothing about the size
  if (chunk_ != nullptr && chunk_->refs == 1) DropChunk();
}

void ReceiveStream::Release(const Piece& piece) {
  Chunk* const chunk = piece.chunk;
  lent_ -= piece.length;
  chunks_.Unref(chunk);
  // If only our own reference is left, drop the chunk: an idle connection holds none.
  const bool in_use = reading_ || read_left_ > 0 || !unparsed_.empty();
  if (chunk == chunk_ && chunk != nullptr && chunk->refs == 1 && !in_use) DropChunk();
}

void ReceiveStream::HandleDeregister(STag stag) {
  if (reader_.payload_left() == 0 && held_.empty()) return;
  if (segment_.placement.kind != Placement::Kind::kPlace || segment_.header.stag != stag || segment_.dropping)
    return;
  segment_.dropping = true;
  DropHeld();
  segment_.verdict =
      std::make_unique<Violation>(MakeViolation(cause::kTaggedInvalidSTag, segment_.header,
                                                reader_.payload_length(), "invalidated while data came in"));
}

void ReceiveStream::HandleMove(STag stag, const std::byte* from, std::byte* to) {
  if (segment_.placement.kind != Placement::Kind::kPlace || segment_.header.stag != stag || segment_.dropping)
    return;
  segment_.place = to + (segment_.place - from);
}

MutableBytes ReceiveStream::DirectTarget() {
  // With CRC no payload is placed before the FPDU has been checked.
  const uint32_t left = reader_.payload_left();
  if (options_.crc || segment_.dropping || left < options_.worth_placing) return {};
  if (std::byte* place = NextPlace()) return {place, left};
  return {};
}

std::byte* ReceiveStream::NextPlace() {
  switch (segment_.placement.kind) {
    case Placement::Kind::kPlace:
      return segment_.place;
    case Placement::Kind::kMessage:
      return message_.gather_place();
    case Placement::Kind::kBody:
      return nullptr;
  }
  return nullptr;
}

bool ReceiveStream::LookAhead(std::byte* place) {
  if (sieve_ != nullptr) return false;
  const uint32_t usual = reader_.payload_length();
  uint64_t room = judge_.RoomBehind(segment_.header, usual);
  while (room >= options_.worth_placing && target_count_ < kMaxTargets - 1) {
    const auto next = static_cast<size_t>(std::min<uint64_t>(usual, room));
    targets_[target_count_ + 1] = MutableBytes(place, next);
    target_count_ += 2;
    place += next;
    room -= next;
  }
  return room == 0;
}

size_t ReceiveStream::ChunkBytesWanted(bool message_over) const {
  if (direct_ && !message_over) return kLongestPad + kCrcSize + kNextHeader;
  // The rest of a large segment is read alone: then the next message begins with a chunk that is free again.
  if (!direct_ && reader_.payload_left() >= options_.worth_placing)
    return reader_.payload_left() + reader_.trailer_size();
  const bool between = !direct_ || segment_.placement.kind == Placement::Kind::kPlace;
  return between && judge_.ExpectsPlacement(direct_ ? &segment_.header : nullptr) ? kSip : kUsualRead;
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
  segment_.header = ParseDdpHeader(reader_.header());
  segment_.dropping = false;
  body_size_ = 0;
  auto judged = judge_.HandleHeader(segment_.header, reader_.payload_length());
  if (!judged) {
    segment_.placement = {};
    segment_.dropping = true;
    if (!options_.crc) return Report(std::move(judged.error()));
    // A damaged header would be blamed on the peer, so the CRC is checked first.
    segment_.verdict = std::make_unique<Violation>(std::move(judged.error()));
    return std::nullopt;
  }
  segment_.placement = *judged;
  segment_.place = segment_.placement.place;
  if (segment_.placement.kind == Placement::Kind::kMessage) {
    const uint32_t length = reader_.payload_length();
    segment_.limit = std::max(buffers_.limit(), segment_.header.mo + length);
    const bool fine =
        !segment_.header.last && segment_.header.mo == 0 && length < segment_.limit / kFinelySplit;
    if (!message_.StartSegment(length, segment_.limit, fine || (!segment_.header.last && crowded()))) {
      failed_ = true;
      return OutOfMemory{};
    }
  }
  return std::nullopt;
}

std::optional<ReceiveEvent> ReceiveStream::ConsumePayload(Bytes payload) {
  if (segment_.dropping) return std::nullopt;
  switch (segment_.placement.kind) {
    case Placement::Kind::kMessage:
      if (message_.Append(chunk_, payload, segment_.limit)) return std::nullopt;
      failed_ = true;
      return OutOfMemory{};
    case Placement::Kind::kPlace:
      if (options_.crc) {
        RefChunk(chunk_);
        held_.push_back({payload.data(), static_cast<uint32_t>(payload.size()), chunk_});
      } else {
        std::memcpy(segment_.place, payload.data(), payload.size());
        segment_.place += payload.size();
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
  if (segment_.verdict) return Report(std::move(*std::exchange(segment_.verdict, nullptr)));
  PlaceHeld();
  auto outcome =
      judge_.HandleSegment(segment_.header, reader_.payload_length(), Bytes(body_).first(body_size_));
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
    std::memcpy(segment_.place, piece.data, piece.length);
    segment_.place += piece.length;
  }
  DropHeld();
}

void ReceiveStream::DropHeld() {
  for (const Piece& piece : held_) chunks_.Unref(piece.chunk);
  held_.clear();
}

}  // namespace sdp::iwarp
