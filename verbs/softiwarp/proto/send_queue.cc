#include "verbs/softiwarp/proto/send_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/byte_order.h"
#include "core/base/check.h"
#include "verbs/softiwarp/proto/crc32c.h"
#include "verbs/softiwarp/proto/markers.h"

namespace sdp::iwarp {
namespace {

// BuildBatch begins no further frame with less room than this in the arena: prefix, inline payload, trailer
// and markers have to fit.
constexpr size_t kArenaReserve = 1536;

// Returns how many clean octets the first `raw` octets of a frame contain.
uint32_t CleanIn(uint32_t phase, uint32_t raw) {
  uint32_t clean = 0;
  while (raw > 0) {
    if (phase == 0) raw -= std::min(raw, kMarkerSize);
    const uint32_t run = std::min(raw, kCleanInterval - phase);
    clean += run;
    raw -= run;
    phase = (phase + run) % kCleanInterval;
  }
  return clean;
}

}  // namespace

void SendQueue::Post(const OutgoingMessage& m) {
  SDP_CHECK(m.header.size() <= kMaxUlpHeader);
  Message out;
  out.id = m.id;
  out.to = m.to;
  out.stag = m.stag;
  out.opcode = m.opcode;
  out.signaled = m.signaled;
  out.silent = m.silent;
  out.done = 0;
  out.header_size = static_cast<uint8_t>(m.header.size());
  if (!m.header.empty()) std::memcpy(out.header.data(), m.header.data(), m.header.size());
  const OpcodeInfo& info = InfoOf(m.opcode);
  out.msn = info.tagged ? 0 : next_msn_[info.queue]++;
  out.size = out.header_size;
  for (const Bytes& bytes : m.payload) {
    if (bytes.empty()) continue;
    payload_.PushBack({.data = bytes.data(),
                       .chunk = nullptr,
                       .length = static_cast<uint32_t>(bytes.size()),
                       .borrowed = m.source == STag(),
                       .source = m.source});
    out.size += static_cast<uint32_t>(bytes.size());
  }
  unsent_ += out.size;
  messages_.PushBack(out);
}

size_t SendQueue::FrameDirectly(uint32_t size, std::span<std::byte, kDirectPrefix> prefix) const {
  DdpHeader header;
  header.last = true;
  header.opcode = static_cast<uint8_t>(RdmapOpcode::kSend);
  header.queue = kSendQueue;
  header.msn = next_msn_[kSendQueue];
  const auto ulpdu = static_cast<uint32_t>(kUntaggedHeaderSize + size);
  StoreBe<uint16_t>(prefix.data(), static_cast<uint16_t>(ulpdu));
  SerializeDdpHeader(header, prefix.data() + kMpaLengthSize);
  return PadSize(ulpdu) + kCrcSize;
}

void SendQueue::BuildBatch(SendBatch* batch) {
  Cursor cursor;
  uint16_t phase = marker_phase_;
  size_t index = 0;
  uint32_t offset = messages_.empty() ? 0 : messages_.front().done;
  if (has_partial_) {
    batch->frames_[batch->frame_count_++] = partial_;
    if (!AddFrame(partial_, &cursor, batch)) return;
    offset += partial_.message_size;
    if (partial_.last) {
      ++index;
      offset = 0;
    }
  }
  while (index < messages_.size() && batch->frame_count_ < SendBatch::kMaxFrames &&
         batch->arena_.size() - batch->arena_used_ >= kArenaReserve) {
    Frame& frame = batch->frames_[batch->frame_count_++];
    MakeFrame(messages_[index], offset, cursor, phase, &frame);
    phase = static_cast<uint16_t>((phase + frame.clean_size()) % kCleanInterval);
    if (!AddFrame(frame, &cursor, batch)) return;
    offset += frame.message_size;
    if (frame.last) {
      ++index;
      offset = 0;
    }
  }
}

void SendQueue::MakeFrame(const Message& m, uint32_t offset, Cursor cursor, uint16_t phase, Frame* f) {
  const OpcodeInfo& info = InfoOf(m.opcode);
  const size_t header_size = info.tagged ? kTaggedHeaderSize : kUntaggedHeaderSize;
  const auto room = static_cast<uint32_t>(options_.max_ulpdu - header_size);
  f->message_size = std::min(m.size - offset, room);
  f->last = offset + f->message_size == m.size;
  const uint32_t ulp_header = offset == 0 ? m.header_size : 0;
  f->payload_size = f->message_size - ulp_header;
  f->payload_gone = 0;
  f->raw_sent = 0;
  f->marker_phase = phase;

  const auto ulpdu = static_cast<uint32_t>(header_size + f->message_size);
  std::byte* p = f->prefix.data();
  StoreBe<uint16_t>(p, static_cast<uint16_t>(ulpdu));
  DdpHeader h;
  h.tagged = info.tagged;
  h.last = f->last;
  h.opcode = static_cast<uint8_t>(m.opcode);
  h.stag = m.stag;
  if (info.tagged) {
    h.to = m.to + offset;
  } else {
    h.queue = info.queue;
    h.msn = m.msn;
    h.mo = offset;
  }
  p += kMpaLengthSize + SerializeDdpHeader(h, p + kMpaLengthSize);
  if (ulp_header > 0) std::memcpy(p, m.header.data(), ulp_header);
  f->prefix_size = static_cast<uint8_t>(kMpaLengthSize + header_size + ulp_header);

  const uint32_t pad = PadSize(ulpdu);
  f->trailer = {};
  f->trailer_size = static_cast<uint8_t>(pad + kCrcSize);
  f->raw_size = f->clean_size() + (options_.markers ? kMarkerSize * MarkersIn(phase, f->clean_size()) : 0);
  if (!options_.crc) return;
  // The CRC covers everything except the field itself, which comes last.
  uint32_t crc = kCrcStart;
  uint32_t left = f->raw_size - kCrcSize;
  Walk(*f, &cursor, [&](Bytes run, bool) {
    const Bytes covered = run.first(std::min<size_t>(run.size(), left));
    crc = ExtendCrc32c(crc, covered);
    left -= static_cast<uint32_t>(covered.size());
    return true;
  });
  StoreCrc32c(crc, f->trailer.data() + pad);
}

// Calls fn(run, is_payload) for each run of octets of the frame in order, including markers, without payload
// that is gone. The cursor moves over the frame's payload. Stops and returns false when fn returns false.
template <typename Fn>
bool SendQueue::Walk(const Frame& f, Cursor* cursor, Fn&& fn) const {
  uint32_t phase = f.marker_phase;
  uint32_t raw = 0;  // octets from the length field on
  MarkerBytes marker;
  const auto pass = [&](Bytes bytes, bool payload) {
    while (options_.markers && !bytes.empty()) {
      if (phase == 0) {
        marker = {};
        StoreBe<uint16_t>(marker.data() + 2, static_cast<uint16_t>(raw));
        if (!fn(Bytes(marker), false)) return false;
        if (raw > 0) raw += kMarkerSize;
      }
      const size_t n = std::min<size_t>(bytes.size(), kCleanInterval - phase);
      if (!fn(bytes.first(n), payload)) return false;
      raw += static_cast<uint32_t>(n);
      phase = static_cast<uint32_t>((phase + n) % kCleanInterval);
      bytes = bytes.subspan(n);
    }
    return bytes.empty() || fn(bytes, payload);
  };
  if (!pass(Bytes(f.prefix).first(f.prefix_size), false)) return false;
  if (f.payload_gone > 0) {
    // Counted but not read: the link has these octets, and their memory may have another owner.
    static constexpr std::byte kNowhere{};
    for (uint32_t gone = f.payload_gone; gone > 0;) {
      const uint32_t n = options_.markers ? std::min(gone, kCleanInterval - phase) : gone;
      if (!pass(Bytes(&kNowhere, n), false)) return false;
      gone -= n;
    }
  }
  for (uint32_t left = f.payload_size - f.payload_gone; left > 0;) {
    const Payload& payload = payload_[cursor->index];
    const uint32_t n = std::min(left, payload.length - cursor->offset);
    const Bytes bytes(payload.data + cursor->offset, n);
    left -= n;
    cursor->offset += n;
    if (cursor->offset == payload.length) *cursor = {.index = cursor->index + 1, .offset = 0};
    if (!pass(bytes, true)) return false;
  }
  return pass(Bytes(f.trailer).first(f.trailer_size), false);
}

bool SendQueue::AddFrame(const Frame& f, Cursor* cursor, SendBatch* batch) {
  uint32_t skip = f.raw_sent;
  const bool inline_payload = f.payload_size <= SendBatch::kInline;
  return Walk(f, cursor, [&](Bytes run, bool payload) {
    if (skip >= run.size()) {
      skip -= static_cast<uint32_t>(run.size());
      return true;
    }
    run = run.subspan(skip);
    skip = 0;
    return payload && (!inline_payload || IsUnread(run.data())) ? batch->AddReference(run)
                                                                : batch->AddCopy(run);
  });
}

void SendQueue::HandleSent(const SendBatch& batch, size_t raw) {
  for (size_t i = 0; i < batch.frame_count_; ++i) {
    const Frame& frame = batch.frames_[i];
    const uint32_t left = frame.raw_size - frame.raw_sent;
    if (raw >= left) {
      raw -= left;
      CompleteFrame(frame);
      continue;
    }
    if (raw == 0 && frame.raw_sent == 0) return;
    // The link has a part of this frame.
    if (!has_partial_)
      marker_phase_ = static_cast<uint16_t>((frame.marker_phase + frame.clean_size()) % kCleanInterval);
    if (!has_partial_ || i > 0) partial_ = frame;
    has_partial_ = true;
    partial_.raw_sent += static_cast<uint32_t>(raw);
    const uint32_t payload = PayloadSent(partial_);
    Trim(payload - partial_.payload_gone);
    partial_.payload_gone = payload;
    return;
  }
}

uint32_t SendQueue::PayloadSent(const Frame& f) const {
  const uint32_t clean = options_.markers ? CleanIn(f.marker_phase, f.raw_sent) : f.raw_sent;
  return clean > f.prefix_size ? std::min(clean - f.prefix_size, f.payload_size) : 0;
}

void SendQueue::CompleteFrame(const Frame& frame) {
  Trim(frame.payload_size - frame.payload_gone);
  unsent_ -= frame.message_size - frame.payload_size;
  if (has_partial_) {
    has_partial_ = false;
  } else {
    marker_phase_ = static_cast<uint16_t>((frame.marker_phase + frame.clean_size()) % kCleanInterval);
  }
  ++fpdus_;
  Message& message = messages_.front();
  message.done += frame.message_size;
  if (!frame.last) return;
  if (!message.silent && (message.signaled || message.opcode == RdmapOpcode::kReadResponse))
    Report(message, false);
  messages_.PopFront();
  if (messages_.empty()) UnrefChunk(std::exchange(copies_, nullptr));
}

void SendQueue::Trim(uint32_t bytes) {
  unsent_ -= bytes;
  while (bytes > 0) {
    Payload& front = payload_.front();
    const uint32_t n = std::min(bytes, front.length);
    front.data += n;
    front.length -= n;
    bytes -= n;
    if (front.length > 0) return;
    UnrefChunk(front.chunk);
    payload_.PopFront();
  }
}

bool SendQueue::PollDone(SendDone* out) {
  if (done_.empty()) return false;
  *out = done_.front();
  done_.PopFront();
  return true;
}

uint64_t SendQueue::Detach(bool* failed) {
  uint64_t copied = 0;
  for (size_t i = 0; i < payload_.size(); ++i) {
    Payload& payload = payload_[i];
    if (!payload.borrowed) continue;
    if (!CopyOut(&payload)) *failed = true;
    copied += payload.length;
  }
  return copied;
}

uint64_t SendQueue::DetachSource(STag source, bool* failed) {
  uint64_t copied = 0;
  for (size_t i = 0; i < payload_.size(); ++i) {
    Payload& payload = payload_[i];
    if (payload.source != source) continue;
    if (!CopyOut(&payload)) *failed = true;
    copied += payload.length;
  }
  return copied;
}

bool SendQueue::CopyOut(Payload* payload) {
  if (copies_ == nullptr || copies_->capacity - copies_used_ < payload->length) {
    UnrefChunk(copies_);
    copies_ = TakeChunk(payload->length);
    copies_used_ = 0;
    if (copies_ == nullptr) return false;
  }
  std::byte* to = copies_->data() + copies_used_;
  if (!IsUnread(payload->data)) {
    std::memcpy(to, payload->data, payload->length);
  } else if (!unread_->Read(payload->data, MutableBytes(to, payload->length))) {
    return false;
  }
  copies_used_ += payload->length;
  RefChunk(copies_);
  payload->data = to;
  payload->chunk = copies_;
  payload->borrowed = false;
  payload->source = STag();
  return true;
}

void SendQueue::Terminate(Bytes terminate) {
  // Complete the frame that the link has in part; otherwise the peer would not find the Terminate after it.
  const uint32_t kept = has_partial_ ? partial_.payload_size - partial_.payload_gone : 0;
  size_t entries = 0;
  for (uint32_t left = kept; left > 0; ++entries) {
    payload_[entries].length = std::min(payload_[entries].length, left);
    left -= payload_[entries].length;
  }
  while (payload_.size() > entries) {
    UnrefChunk(payload_.back().chunk);
    payload_.PopBack();
  }
  bool failed = false;
  for (size_t i = 0; i < entries; ++i) {
    if (payload_[i].chunk == nullptr && !CopyOut(&payload_[i])) failed = true;
  }
  FlushMessages();
  if (failed) {
    Abandon();
    return;
  }
  unsent_ = 0;
  if (has_partial_) {
    Message rest{};
    rest.silent = true;
    rest.size = partial_.message_size;
    partial_.last = true;
    messages_.PushBack(rest);
    unsent_ = kept + partial_.message_size - partial_.payload_size;
  }
  Post({.silent = true, .opcode = RdmapOpcode::kTerminate, .header = terminate});
}

void SendQueue::Abandon() {
  FlushMessages();
  while (!payload_.empty()) {
    UnrefChunk(payload_.front().chunk);
    payload_.PopFront();
  }
  has_partial_ = false;
  unsent_ = 0;
  UnrefChunk(std::exchange(copies_, nullptr));
}

void SendQueue::FlushMessages() {
  while (!messages_.empty()) {
    if (!messages_.front().silent) Report(messages_.front(), true);
    messages_.PopFront();
  }
}

void SendQueue::Report(const Message& message, bool flushed) {
  done_.PushBack({.id = message.id, .opcode = message.opcode, .flushed = flushed});
}

}  // namespace sdp::iwarp
