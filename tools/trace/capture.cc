#include "tools/trace/capture.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/byte_order.h"
#include "verbs/softiwarp/wire/mpa_frame.h"
#include "verbs/softiwarp/wire/opcode_table.h"
#include "verbs/softiwarp/wire/read_request.h"

namespace sdp::trace {
namespace {

using iwarp::RdmapOpcode;
using stats::MessageNote;
using stats::NoteKind;

constexpr int kClient = 0, kServer = 1;

constexpr uint8_t kFin = 0x01, kSyn = 0x02, kPsh = 0x08, kAck = 0x10;
constexpr size_t kMpaLengthSize = 2, kMpaCrcSize = 4;
constexpr uint32_t kMaxUlpdu = 65400;    // leaves room for everything in an IP packet
constexpr uint32_t kMaxSegments = 64;    // of one message; a liar may name any length
constexpr size_t kMaxRemembered = 4096;  // remembered
constexpr size_t kMaxPendingReads = 4096;

template <typename T>
void Put(std::string* out, T value) {
  std::array<std::byte, sizeof(T)> bytes;
  StoreBe<T>(bytes.data(), value);
  out->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
bool SameName(const stats::Address& a, const stats::Address& b) {
  return a.family == b.family && a.port == b.port && std::memcmp(a.ip, b.ip, a.family == 6 ? 16 : 4) == 0;
}

void Put(std::string* out, Bytes bytes) {
  out->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

std::string Capture::FileHeader() {
  std::string out;
  Put<uint32_t>(&out, 0xa1b23c4d);  // times in nanoseconds
  Put<uint16_t>(&out, 2);
  Put<uint16_t>(&out, 4);
  Put<uint64_t>(&out, 0);
  Put<uint32_t>(&out, 65535);
  Put<uint32_t>(&out, 101);  // LINKTYPE_RAW: IPv4 or IPv6
  return out;
}

void Capture::Introduce(const stats::ConnectionRecord& record) {
  Name(record.connection, record.sdp_local, record.sdp_peer, record.role == stats::Role::kConnecting);
}

void Capture::Name(uint32_t number, const stats::Address& us, const stats::Address& peer, bool connecting) {
  if (connections_.size() >= kMaxRemembered) connections_.clear();
  Connection connection{.stream = std::make_shared<Stream>(), .us = connecting ? kClient : kServer};
  connection.stream->end[connection.us].address = us;
  connection.stream->end[1 - connection.us].address = peer;
  connection.stream->end[kClient].sequence = 1000;
  connection.stream->end[kServer].sequence = 2000;
  for (const auto& [other_number, other] : connections_) {
    if (other_number == number || other.us == connection.us || other.second) continue;
    const End* const ends = other.stream->end;
    if (!SameName(ends[connection.us].address, us) || !SameName(ends[other.us].address, peer)) continue;
    connection.stream = other.stream;
    connection.second = true;
  }
  connections_[number] = std::move(connection);
}

std::string Capture::Add(const NotedMessage& message) {
  const MessageNote& note = message.note;
  time_ns_ = note.time_ns;
  if (note.kind == NoteKind::kOpened) return "";  // conventional names
  if (note.kind == NoteKind::kOpenedSdp) {
    stats::NamesNote names;
    std::memcpy(&names, note.bytes, sizeof names);
    stats::Address us, peer;
    us.family = peer.family = (note.flags & stats::kNoteIpv6) != 0 ? 6 : 4;
    us.port = names.local_port;
    peer.port = names.peer_port;
    std::memcpy(us.ip, names.local_ip, sizeof us.ip);
    std::memcpy(peer.ip, names.peer_ip, sizeof peer.ip);
    Name(message.connection, us, peer, (note.flags & stats::kNoteConnecting) != 0);
    return "";
  }
  const auto found = connections_.find(message.connection);
  if (found == connections_.end()) return "";
  const Connection connection = found->second;
  Stream& stream = *connection.stream;
  const int from = note.direction == stats::NoteDirection::kOut ? connection.us : 1 - connection.us;
  if (note.kind == NoteKind::kPrivateData) {
    if (!connection.second) stream.end[from].private_data.assign(note.bytes, note.bytes + note.size);
    const bool has_reply = !stream.end[kServer].private_data.empty();
    if (stream.end[kClient].private_data.empty() || !has_reply) return "";
  }
  if (!std::exchange(stream.started, true)) Start(stream);
  switch (note.kind) {
    case NoteKind::kSend:
      if (!connection.second) AddSend(stream, from, note);
      break;
    case NoteKind::kRdmaRead:
      AddReadRequest(stream, from, note);
      break;
    case NoteKind::kRdmaReadDone:
      AddReadResponse(stream, connection.us);
      break;
    case NoteKind::kRdmaWrite: {
      stats::RdmaNote work;
      std::memcpy(&work, note.bytes, sizeof work);
      AddTagged(stream, from, static_cast<uint8_t>(RdmapOpcode::kWrite), STag(work.remote_stag),
                work.remote_to, note.length);
      break;
    }
    case NoteKind::kClosed:
      AddPacket(stream, connection.us, kFin | kAck, {});
      connections_.erase(found);
      for (auto& [number, other] : connections_)
        other.second = other.second && other.stream != connection.stream;
      break;
    default:
      break;
  }
  return std::exchange(out_, {});
}

void Capture::Start(Stream& stream) {
  AddPacket(stream, kClient, kSyn, {});
  ++stream.end[kClient].sequence;
  AddPacket(stream, kServer, kSyn | kAck, {});
  ++stream.end[kServer].sequence;
  AddPacket(stream, kClient, kAck, {});
  for (const int end : {kClient, kServer}) {
    // Revision 1: nothing is known of the enhanced set-up's words.
    std::array<std::byte, iwarp::kMaxMpaFrame> frame;
    const size_t size = iwarp::SerializeMpaFrame(
        {.kind = end == kClient ? iwarp::MpaFrameKind::kRequest : iwarp::MpaFrameKind::kReply,
         .revision = 1,
         .private_data = stream.end[end].private_data},
        frame);
    AddPacket(stream, end, kPsh | kAck, Bytes(frame).first(size));
  }
}

void Capture::AddSend(Stream& stream, int from, const MessageNote& note) {
  const bool invalidates = (note.flags & stats::kNoteInvalidates) != 0;
  iwarp::DdpHeader header{.opcode = static_cast<uint8_t>(
                              iwarp::SendOpcode((note.flags & stats::kNoteSolicited) != 0, invalidates)),
                          .stag = STag(invalidates ? note.invalidated : 0),
                          .queue = iwarp::kSendQueue,
                          .msn = ++stream.end[from].send_msn};
  Bytes known = Bytes(note.bytes).first(std::min<size_t>(note.size, note.length));
  constexpr uint32_t kRoom = kMaxUlpdu - iwarp::kUntaggedHeaderSize;
  for (uint32_t i = 0; i < kMaxSegments && !header.last; ++i) {
    const uint32_t size = std::min(note.length - header.mo, kRoom);
    header.last = header.mo + size == note.length;
    AddFpdu(stream, from, header, known, size);
    known = {};
    header.mo += size;
  }
}

void Capture::AddTagged(Stream& stream, int from, uint8_t opcode, STag stag, uint64_t to, uint32_t length) {
  constexpr uint32_t kRoom = kMaxUlpdu - iwarp::kTaggedHeaderSize;
  iwarp::DdpHeader header{.tagged = true, .opcode = opcode, .stag = stag};
  uint32_t done = 0;
  for (uint32_t i = 0; i < kMaxSegments && !header.last; ++i) {
    const uint32_t size = std::min(length - done, kRoom);
    header.last = done + size == length;
    header.to = to + done;
    AddFpdu(stream, from, header, {}, size);
    done += size;
  }
}

void Capture::AddReadRequest(Stream& stream, int from, const MessageNote& note) {
  stats::RdmaNote work;
  std::memcpy(&work, note.bytes, sizeof work);
  std::deque<PendingRead>& reads = stream.end[from].reads;
  if (reads.size() < kMaxPendingReads) reads.push_back({work, note.length});
  std::array<std::byte, iwarp::kReadRequestSize> request;
  iwarp::SerializeReadRequest({.sink_stag = STag(work.local_stag),
                               .sink_to = work.local_to,
                               .size = note.length,
                               .source_stag = STag(work.remote_stag),
                               .source_to = work.remote_to},
                              request);
  AddFpdu(stream, from,
          {.last = true,
           .opcode = static_cast<uint8_t>(RdmapOpcode::kReadRequest),
           .queue = iwarp::kReadRequestQueue,
           .msn = ++stream.end[from].read_msn},
          request, request.size());
}

void Capture::AddReadResponse(Stream& stream, int reader) {
  std::deque<PendingRead>& reads = stream.end[reader].reads;
  if (reads.empty()) return;
  const PendingRead read = reads.front();
  reads.pop_front();
  AddTagged(stream, 1 - reader, static_cast<uint8_t>(RdmapOpcode::kReadResponse), STag(read.work.local_stag),
            read.work.local_to, read.length);
}

void Capture::AddFpdu(Stream& stream, int from, const iwarp::DdpHeader& header, Bytes known,
                      uint32_t length) {
  std::array<std::byte, iwarp::kUntaggedHeaderSize> ddp;
  const size_t ddp_size = iwarp::SerializeDdpHeader(header, ddp.data());
  const uint32_t ulpdu = static_cast<uint32_t>(ddp_size) + length;
  const uint32_t padded = (static_cast<uint32_t>(kMpaLengthSize) + ulpdu + 3) / 4 * 4;
  std::vector<std::byte> bytes(padded + kMpaCrcSize);
  StoreBe<uint16_t>(bytes.data(), static_cast<uint16_t>(ulpdu));
  std::copy(ddp.begin(), ddp.begin() + static_cast<ptrdiff_t>(ddp_size), bytes.begin() + kMpaLengthSize);
  std::copy(known.begin(), known.end(), bytes.begin() + static_cast<ptrdiff_t>(kMpaLengthSize + ddp_size));
  AddPacket(stream, from, kPsh | kAck, bytes);
}

void Capture::AddPacket(Stream& stream, int from, uint8_t flags, Bytes payload) {
  constexpr uint32_t kTcpHeader = 20;
  const int to = 1 - from;
  const stats::Address& source = stream.end[from].address;
  const stats::Address& target = stream.end[to].address;
  const bool v6 = source.family == 6;
  const auto length = static_cast<uint32_t>(payload.size());
  const uint32_t size = (v6 ? 40 : 20) + kTcpHeader + length;
  Put<uint32_t>(&out_, static_cast<uint32_t>(time_ns_ / 1'000'000'000));
  Put<uint32_t>(&out_, static_cast<uint32_t>(time_ns_ % 1'000'000'000));
  Put<uint32_t>(&out_, size);
  Put<uint32_t>(&out_, size);
  if (v6) {
    Put<uint32_t>(&out_, 0x60000000);
    Put<uint16_t>(&out_, static_cast<uint16_t>(kTcpHeader + length));
    Put<uint16_t>(&out_, 0x0640);  // TCP, hop limit 64
  } else {
    Put<uint16_t>(&out_, 0x4500);
    Put<uint16_t>(&out_, static_cast<uint16_t>(size));
    Put<uint32_t>(&out_, 0x00004000);  // not to be fragmented
    Put<uint32_t>(&out_, 0x40060000);  // time to live 64, TCP, no checksum
  }
  for (const stats::Address* address : {&source, &target})
    Put(&out_, std::as_bytes(std::span(address->ip)).first(v6 ? 16 : 4));
  Put<uint16_t>(&out_, source.port);
  Put<uint16_t>(&out_, target.port);
  Put<uint32_t>(&out_, stream.end[from].sequence);
  Put<uint32_t>(&out_, (flags & kAck) != 0 ? stream.end[to].sequence : 0);
  Put<uint8_t>(&out_, 0x50);
  Put<uint8_t>(&out_, flags);
  Put<uint16_t>(&out_, 0xffff);
  Put<uint32_t>(&out_, 0);
  Put(&out_, payload);
  stream.end[from].sequence += length;
}

}  // namespace sdp::trace
