// The protocol's state as bytes and back. One function per class names each field once, for both directions
// (core/base/archive.h). State that follows from other state is not stored. A Reader's bytes may come from
// anywhere, so every field that could make the thawed state unsafe is checked against the others.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_FREEZE_H_
#define SDP_VERBS_SOFTIWARP_PROTO_FREEZE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "core/base/archive.h"
#include "verbs/softiwarp/proto/receive_stream.h"
#include "verbs/softiwarp/proto/send_queue.h"

namespace sdp::iwarp {

// Frozen has access to the state of every part. No memory may be registered, and no Read of ours outstanding.
struct Frozen {
  static constexpr uint32_t kLargestBuffer = 1u << 26;

  template <typename Archive>
  static void Visit(Archive& ar, ReceiveBuffers& b) {
    ar.Number(b.size_);
    ar.Require(b.size_ <= kLargestBuffer);
    auto runs = static_cast<uint32_t>(b.runs_.size());
    ar.Number(runs);
    if constexpr (Archive::kReads) {
      ar.Require(runs <= ar.left() / 8);
      for (; runs > 0 && ar.ok(); --runs) b.runs_.PushBack({});
    }
    for (size_t i = 0; i < b.runs_.size(); ++i) {
      ar.Number(b.runs_[i].size);
      ar.Number(b.runs_[i].count);
      ar.Require(b.runs_[i].size <= kLargestBuffer && b.runs_[i].count > 0);
    }
  }

  template <typename Archive>
  static void Visit(Archive& ar, SegmentJudge& j) {
    ar.Flag(j.rtr_send_);
    ar.Number(j.reads_wanted_);
    ar.Number(j.message_offset_);
    for (uint32_t& msn : j.expected_msn_) ar.Number(msn);
  }

  template <typename Archive>
  static void Visit(Archive& ar, FpduReader& r) {
    using Phase = FpduReader::Phase;
    ar.Number(r.marker_phase_.clean_left_);
    ar.Enum(r.phase_, Phase::kTrailer);
    ar.Flag(r.marker_wrong_);
    ar.Number(r.ulpdu_length_);
    ar.Number(r.have_);
    ar.Number(r.payload_length_);
    ar.Number(r.payload_left_);
    ar.Number(r.crc_);
    ar.Number(r.raw_offset_);
    ar.Octets(r.head_);
    ar.Octets(r.trailer_);
    const size_t header_size = DdpHeaderSize(r.head_[kMpaLengthSize]);
    if (r.phase_ == Phase::kHead) {
      ar.Require(r.have_ <= kMpaLengthSize || r.have_ < kMpaLengthSize + header_size);
    } else {
      ar.Require(r.ulpdu_length_ == header_size + r.payload_length_ && r.payload_left_ <= r.payload_length_);
      ar.Require(r.ulpdu_length_ == LoadBe<uint16_t>(r.head_.data()));
    }
    if (r.phase_ == Phase::kTrailer) ar.Require(r.have_ < r.trailer_size() && r.payload_left_ == 0);
  }

  // The markers read and the markers that the reader still expects must agree.
  template <typename Archive>
  static void Visit(Archive& ar, MarkerSieve& s, const FpduReader& r) {
    ar.Number(s.phase_);
    MarkerBytes begun{};
    if (s.phase_ < kMarkerSize) std::copy_n(s.fresh_[0].begin(), s.phase_, begun.begin());
    ar.Octets(begun);
    if constexpr (Archive::kReads) s.fresh_[0] = begun;
    auto waiting = static_cast<uint32_t>(s.markers_.size());
    ar.Number(waiting);
    if constexpr (Archive::kReads) {
      ar.Require(waiting <= 2);
      for (; waiting > 0 && ar.ok(); --waiting) s.markers_.PushBack({});
    }
    for (size_t i = 0; i < s.markers_.size(); ++i) ar.Octets(s.markers_[i]);
    const uint32_t left = r.marker_phase_.clean_left_;
    ar.Require(s.phase_ < kMarkerInterval && left <= kCleanInterval);
    if (!ar.ok()) return;
    using Phase = FpduReader::Phase;
    const size_t head = kMpaLengthSize + DdpHeaderSize(r.head_[kMpaLengthSize]);
    const uint32_t passed = kCleanInterval - left;  // clean octets since the last marker
    const auto covered =
        static_cast<uint32_t>(r.phase_ == Phase::kHead ? 0 : head + r.payload_length_ - r.payload_left_);
    const uint32_t gathered = r.phase_ == Phase::kPayload ? 0 : r.have_;
    const uint32_t sieved = s.phase_ < kMarkerSize ? kCleanInterval : s.phase_ - kMarkerSize;
    ar.Require((passed - covered) % 4 == 0);
    ar.Require(passed + gathered == s.markers_.size() * kCleanInterval + sieved);
  }

  // `ended`: no more bytes will be read, so that only the counts matter.
  template <typename Archive>
  static void Visit(Archive& ar, ReceiveStream& s, bool ended) {
    ar.Number(s.fpdus_);
    ar.Number(s.placed_);
    if (ended) return;
    Visit(ar, s.judge_);
    Visit(ar, s.reader_);
    if (s.sieve_ != nullptr) Visit(ar, *s.sieve_, s.reader_);
    auto body_size = static_cast<uint32_t>(s.body_size_);
    ar.Number(body_size);
    ar.Require(body_size <= s.body_.size());
    if constexpr (Archive::kReads) s.body_size_ = ar.ok() ? body_size : 0;
    ar.Octets(MutableBytes(s.body_).first(s.body_size_));
    ar.Flag(s.bulk_);
    if constexpr (Archive::kReads) {
      if (ar.ok()) Resume(ar, s);
    } else {
      const MessageAssembler& m = s.message_;
      uint32_t size = m.gathered_;
      for (size_t i = 0; i < m.count_; ++i) size += (*m.pieces_)[i].length;
      ar.Number(size);
      for (size_t i = 0; i < m.count_; ++i) ar.Append(Bytes((*m.pieces_)[i].data, (*m.pieces_)[i].length));
      if (m.gather_ != nullptr) ar.Append(Bytes(m.gather_->data(), m.gathered_));
    }
  }

  // Judges the current segment again, which changes no state. Then reads the bytes of its message.
  static void Resume(Reader& ar, ReceiveStream& s) {
    const FpduReader& r = s.reader_;
    const uint32_t consumed = r.payload_length_ - r.payload_left_;
    uint32_t expected = s.judge_.message_offset_;
    uint32_t to_come = 0;
    if (r.phase_ != FpduReader::Phase::kHead) {
      s.segment_.header = ParseDdpHeader(r.header());
      if (auto judged = s.judge_.HandleHeader(s.segment_.header, r.payload_length_)) {
        s.segment_.placement = *judged;
        s.segment_.place = judged->place;
        ar.Require(s.segment_.placement.kind != Placement::Kind::kBody ||
                   s.body_size_ == std::min<size_t>(consumed, s.body_.size()));
        // Only registered memory has a place, and no memory is registered.
        ar.Require(s.segment_.placement.kind != Placement::Kind::kPlace || r.payload_length_ == 0);
      } else {
        s.segment_.dropping = true;
        s.segment_.verdict = std::make_unique<Violation>(std::move(judged.error()));
      }
      if (!s.segment_.dropping && s.segment_.placement.kind == Placement::Kind::kMessage) {
        s.segment_.limit = std::max(s.buffers_.limit(), s.segment_.header.mo + r.payload_length_);
        expected += consumed;
        to_come = r.payload_left_;
      }
    }
    uint32_t size = 0;
    ar.Number(size);
    ar.Require(size == expected);
    const Bytes bytes = ar.Take(size);
    if (!ar.ok() || bytes.empty()) return;
    Chunk* const chunk = s.chunks_.Take(bytes.size() + to_come);
    ar.Require(chunk != nullptr);
    if (chunk == nullptr) return;
    std::memcpy(chunk->data(), bytes.data(), bytes.size());
    s.message_.gather_ = chunk;
    s.message_.gathered_ = size;
  }

  template <typename Archive>
  static void Visit(Archive& ar, Frame& f) {
    ar.Octets(f.prefix);
    ar.Octets(f.trailer);
    ar.Number(f.prefix_size);
    ar.Number(f.trailer_size);
    ar.Number(f.marker_phase);
    ar.Number(f.payload_size);
    ar.Number(f.payload_gone);
    ar.Number(f.message_size);
    ar.Number(f.raw_size);
    ar.Number(f.raw_sent);
    ar.Flag(f.last);
    ar.Require(f.prefix_size <= kMaxPrefix && f.trailer_size <= kMaxTrailer && f.payload_size <= kMaxUlpdu);
    ar.Require(f.marker_phase < kCleanInterval && f.raw_sent > 0 && f.raw_sent < f.raw_size);
    ar.Require(f.payload_gone <= f.payload_size && f.message_size >= f.payload_size &&
               f.message_size - f.payload_size <= kMaxUlpHeader);
  }

  template <typename Archive>
  static void Visit(Archive& ar, SendQueue::Message& m) {
    uint64_t id = m.id.value();
    uint32_t stag = m.stag.value();
    ar.Number(id);
    ar.Number(m.to);
    ar.Number(stag);
    m.id = WorkId(id);
    m.stag = STag(stag);
    ar.Number(m.msn);
    ar.Number(m.size);
    ar.Number(m.done);
    ar.Enum(m.opcode, RdmapOpcode::kTerminate);
    ar.Number(m.header_size);
    ar.Flag(m.signaled);
    ar.Flag(m.silent);
    ar.Octets(m.header);
    ar.Require(m.header_size <= kMaxUlpHeader && m.header_size <= m.size && m.done <= m.size);
    ar.Require(m.done == 0 || (m.done >= m.header_size && m.done < m.size));
  }

  // Payload is copied as one run of bytes, wherever it lay.
  template <typename Archive>
  static void Visit(Archive& ar, SendQueue& q) {
    auto count = static_cast<uint32_t>(q.messages_.size());
    ar.Number(count);
    if constexpr (Archive::kReads) {
      ar.Require(count <= ar.left() / kMaxUlpHeader);
      for (; count > 0 && ar.ok(); --count) q.messages_.PushBack({});
    }
    for (size_t i = 0; i < q.messages_.size(); ++i) {
      Visit(ar, q.messages_[i]);
      ar.Require(i == 0 || q.messages_[i].done == 0);
    }
    ar.Flag(q.has_partial_);
    ar.Require(!q.has_partial_ || !q.messages_.empty());
    if (q.has_partial_ && ar.ok()) Visit(ar, q.partial_);
    ar.Number(q.marker_phase_);
    ar.Require(q.marker_phase_ < kCleanInterval);
    for (uint32_t& msn : q.next_msn_) ar.Number(msn);
    ar.Number(q.fpdus_);
    if (!ar.ok()) return;

    // Derive from the messages how many payload and header bytes are left to send.
    uint64_t payload = 0;
    uint64_t headers = 0;
    uint32_t begun = q.messages_.empty() ? 0 : q.messages_.front().done;
    if (q.has_partial_) {
      const Frame& f = q.partial_;
      const uint32_t markers =
          q.options_.markers ? kMarkerSize * MarkersIn(f.marker_phase, f.clean_size()) : 0;
      const uint64_t end = uint64_t{begun} + f.message_size;
      ar.Require(f.raw_size == f.clean_size() + markers && f.payload_gone == q.PayloadSent(f));
      ar.Require(end <= q.messages_.front().size && f.last == (end == q.messages_.front().size));
      if (!ar.ok()) return;
      payload += f.payload_size - f.payload_gone;
      headers += f.message_size - f.payload_size;
      begun = static_cast<uint32_t>(end);
    }
    for (size_t i = 0; i < q.messages_.size(); ++i) {
      const SendQueue::Message& m = q.messages_[i];
      const uint32_t offset = i == 0 ? begun : 0;
      ar.Require(offset == 0 || offset >= m.header_size);
      payload += m.size - std::max<uint32_t>(offset, m.header_size);
      if (offset == 0 && (i > 0 || !q.has_partial_)) headers += m.header_size;
    }
    if constexpr (Archive::kReads) {
      const Bytes bytes = ar.Take(payload);
      if (!ar.ok()) return;
      q.unsent_ = payload + headers;
      for (Bytes left = bytes; !left.empty() && ar.ok();) ar.Require(Restore(q, &left));
    } else {
      for (size_t i = 0; i < q.payload_.size(); ++i)
        ar.Append(Bytes(q.payload_[i].data, q.payload_[i].length));
    }
  }

  // Turns up to kBigChunk bytes of `left` into payload that the queue owns. Returns false if memory is
  // lacking.
  static bool Restore(SendQueue& q, Bytes* left) {
    const Bytes part = left->first(std::min<size_t>(left->size(), kBigChunk));
    Chunk* const chunk = TakeChunk(part.size());
    if (chunk == nullptr) return false;
    std::memcpy(chunk->data(), part.data(), part.size());
    q.payload_.PushBack({.data = chunk->data(),
                         .chunk = chunk,
                         .length = static_cast<uint32_t>(part.size()),
                         .borrowed = false,
                         .source = STag()});
    *left = left->subspan(part.size());
    return true;
  }
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_FREEZE_H_
