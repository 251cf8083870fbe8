#include "preload/stats_recorder.h"

#include <algorithm>
#include <cstring>

#include "core/wire/bsdh.h"
#include "preload/stats_segment.h"

namespace sdp::stats {
namespace {

// Returns the size of the headers of a message that begins with `bytes`. What follows is payload, which must
// not be noted.
size_t HeaderSize(const std::byte* bytes, size_t size) {
  if (size < wire::Bsdh::kSize) return size;
  switch (static_cast<wire::Mid>(bytes[3])) {
#define SDP_SIZE_CASE(name, value, header, payload) \
  case wire::Mid::k##name:                          \
    return std::min<size_t>(size, wire::Bsdh::kSize + (header));
    SDP_MID_LIST(SDP_SIZE_CASE)
#undef SDP_SIZE_CASE
  }
  return wire::Bsdh::kSize;
}

// Copies the headers of a message that comes in pieces, and returns their size.
uint8_t Gather(std::span<const Bytes> pieces, std::byte (&out)[kNotedBytes]) {
  size_t size = 0;
  for (const Bytes& piece : pieces) {
    const size_t n = std::min(piece.size(), kNotedBytes - size);
    if (n != 0) std::memcpy(out + size, piece.data(), n);
    size += n;
    if (size == kNotedBytes) break;
  }
  const size_t headers = HeaderSize(out, size);
  std::memset(out + headers, 0, size - headers);
  return static_cast<uint8_t>(headers);
}

uint8_t Flags(bool solicited, bool invalidates) {
  return static_cast<uint8_t>((solicited ? kNoteSolicited : 0) | (invalidates ? kNoteInvalidates : 0));
}

}  // namespace

void MessageRecorder::Attach(StatsSegment* segment, Slot* slot, const ConnectionRecord& record) {
  segment_ = segment;
  trace_until_ = segment->trace_until();
  connection_ = record.connection;
  recent_ = slot->recent;
  over_ = false;
  for (size_t i = 0; i < kRecentMessages; ++i) StoreNote(&recent_[i], 0, 0, {});
  TraceNames(NoteKind::kOpened, record, record.local, record.peer);
  TraceNames(NoteKind::kOpenedSdp, record, record.sdp_local, record.sdp_peer);
  if (early_ == nullptr) return;
  const auto early = std::move(early_);
  for (const MessageNote& note : *early) {
    ++count_;
    StoreNote(&recent_[count_ % kRecentMessages], count_, connection_, note);
    Trace(note);
  }
}

void MessageRecorder::Detach() {
  if (recent_ != nullptr) {
    MessageNote note;
    note.time_ns = Clock(CLOCK_REALTIME);
    note.kind = NoteKind::kClosed;
    Trace(note);
  }
  ForgetAfterFork();
}

void MessageRecorder::ForgetAfterFork() {
  recent_ = nullptr;
  over_ = true;
  early_.reset();
}

void MessageRecorder::NotePrivateData(NoteDirection direction, Bytes data) {
  MessageNote note;
  note.kind = NoteKind::kPrivateData;
  note.direction = direction;
  // Behind the message may be padding, or what the library adds (asked_port.h).
  if (data.size() >= wire::Bsdh::kSize)
    data = data.first(std::min<size_t>(data.size(), wire::Bsdh::Parse(data.first<wire::Bsdh::kSize>()).len));
  note.length = static_cast<uint32_t>(data.size());
  note.size = static_cast<uint8_t>(HeaderSize(data.data(), std::min(data.size(), kNotedBytes)));
  if (note.size != 0) std::memcpy(note.bytes, data.data(), note.size);
  Note(note);
}

void MessageRecorder::NoteReceived(std::span<const Bytes> pieces, uint32_t length, bool solicited,
                                   std::optional<STag> invalidated) {
  if (!pieces.empty() &&
      NoteData(NoteDirection::kIn, pieces.front(), length, solicited, invalidated.has_value()))
    return;
  NoteAny(NoteDirection::kIn, pieces, length, solicited, invalidated);
}

void MessageRecorder::NoteSent(Bytes header, std::span<const Bytes> payload, bool solicited,
                               std::optional<STag> invalidated) {
  auto length = static_cast<uint32_t>(header.size());
  for (const Bytes& piece : payload) length += static_cast<uint32_t>(piece.size());
  if (NoteData(NoteDirection::kOut, header, length, solicited, invalidated.has_value())) return;
  NoteAny(NoteDirection::kOut, {&header, 1}, length, solicited, invalidated);
}

// Counts as Count() does.
inline bool MessageRecorder::NoteData(NoteDirection direction, Bytes first_piece, uint32_t length,
                                      bool solicited, bool invalidates) {
  if (first_piece.size() < wire::Bsdh::kSize || static_cast<wire::Mid>(first_piece[3]) != wire::Mid::kData)
    return false;
  if (recent_ == nullptr || invalidates) return false;
  if (trace_until_->load(std::memory_order_relaxed) != 0) [[unlikely]]
    return false;
  if (length > wire::Bsdh::kSize)
    ++(direction == NoteDirection::kIn ? transfers_.in : transfers_.out)[kBcopy];
  ++count_;
  noted_at_ns_ = Clock(CLOCK_REALTIME_COARSE);
  StoreDataNote(&recent_[count_ % kRecentMessages], count_, connection_, noted_at_ns_, direction,
                Flags(solicited, false), length, first_piece.data());
  return true;
}

// Not inlined, so that it costs the common path no registers.
__attribute__((noinline)) void MessageRecorder::NoteAny(NoteDirection direction,
                                                        std::span<const Bytes> pieces, uint32_t length,
                                                        bool solicited, std::optional<STag> invalidated) {
  MessageNote note;
  note.kind = NoteKind::kSend;
  note.direction = direction;
  note.flags = Flags(solicited, invalidated.has_value());
  note.length = length;
  note.invalidated = invalidated ? invalidated->value() : 0;
  note.size = Gather(pieces, note.bytes);
  Note(note);
}

void MessageRecorder::NoteRdma(NoteKind kind, uint32_t length, const RdmaNote& work) {
  MessageNote note;
  note.kind = kind;
  note.direction = NoteDirection::kOut;
  note.size = sizeof work;
  note.length = length;
  std::memcpy(note.bytes, &work, sizeof work);
  Note(note);
}

void MessageRecorder::NoteReadDone() {
  MessageNote note;
  note.kind = NoteKind::kRdmaReadDone;
  note.direction = NoteDirection::kIn;
  Note(note);
}

void MessageRecorder::Count(const MessageNote& note) {
  auto& same_way = note.direction == NoteDirection::kIn ? transfers_.in : transfers_.out;
  auto& other_way = note.direction == NoteDirection::kIn ? transfers_.out : transfers_.in;
  switch (note.kind) {
    case NoteKind::kRdmaReadDone:
      ++transfers_.in[kReadZcopy];
      return;
    case NoteKind::kRdmaWrite:
      ++transfers_.out[kWriteZcopy];
      return;
    case NoteKind::kSend:
      break;
    default:
      return;
  }
  if (note.size < wire::Bsdh::kSize) return;
  const bool payload = note.length > note.size;
  switch (static_cast<wire::Mid>(note.bytes[3])) {
    case wire::Mid::kData:
    case wire::Mid::kSrcAvail:
      if (payload) ++same_way[kBcopy];
      return;
    case wire::Mid::kSinkAvail:
      if (payload) ++same_way[kTransaction];
      return;
    case wire::Mid::kRdmaRdCompl:
      // The sender of this message has read, so data went the other way. Our own reads are counted when they
      // complete.
      if (note.direction == NoteDirection::kIn) ++other_way[kReadZcopy];
      return;
    case wire::Mid::kRdmaWrCompl:
      if (note.direction == NoteDirection::kIn) ++same_way[kWriteZcopy];
      return;
    case wire::Mid::kModeChange:
      ++transfers_.mode_changes;
      return;
    default:
      return;
  }
}

void MessageRecorder::Note(MessageNote& note) {
  Count(note);
  if (recent_ == nullptr) {
    if (over_) return;
    if (early_ == nullptr) early_ = std::make_unique<std::vector<MessageNote>>();
    note.time_ns = Clock(CLOCK_REALTIME);
    if (early_->size() < kMaxEarly) early_->push_back(note);
    return;
  }
  const bool traced = trace_until_->load(std::memory_order_relaxed) != 0;
  note.time_ns = Clock(traced ? CLOCK_REALTIME : CLOCK_REALTIME_COARSE);
  ++count_;
  StoreNote(&recent_[count_ % kRecentMessages], count_, connection_, note);
  if (traced) [[unlikely]]
    Trace(note);
}

void MessageRecorder::Trace(const MessageNote& note) const {
  if (trace_until_->load(std::memory_order_relaxed) != 0) segment_->Trace(note, connection_);
}

void MessageRecorder::TraceNames(NoteKind kind, const ConnectionRecord& record, const Address& local,
                                 const Address& peer) const {
  NamesNote names;
  std::memcpy(names.local_ip, local.ip, sizeof names.local_ip);
  std::memcpy(names.peer_ip, peer.ip, sizeof names.peer_ip);
  names.local_port = local.port;
  names.peer_port = peer.port;
  MessageNote note;
  note.time_ns = Clock(CLOCK_REALTIME);
  note.kind = kind;
  note.size = sizeof names;
  note.flags = static_cast<uint8_t>((local.family == 6 ? kNoteIpv6 : 0) |
                                    (record.role == Role::kConnecting ? kNoteConnecting : 0));
  note.length = static_cast<uint32_t>(record.fd);
  std::memcpy(note.bytes, &names, sizeof names);
  Trace(note);
}

std::vector<MessageNote> MessageRecorder::Recent() const {
  std::vector<MessageNote> notes;
  if (recent_ == nullptr) return notes;
  for (uint32_t i = 1; i <= kRecentMessages; ++i) {
    const MessageEntry& entry = recent_[(count_ + i) % kRecentMessages];
    if (entry.tag_and_connection.load(std::memory_order_relaxed) == 0) continue;
    uint64_t words[kNoteWords];
    for (size_t word = 0; word < kNoteWords; ++word)
      words[word] = entry.words[word].load(std::memory_order_relaxed);
    MessageNote& note = notes.emplace_back();
    std::memcpy(static_cast<void*>(&note), words, sizeof note);
  }
  return notes;
}

}  // namespace sdp::stats
