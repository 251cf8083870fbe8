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

constexpr int kPeer = static_cast<int>(stats::NoteDirection::kIn);
constexpr int kUs = static_cast<int>(stats::NoteDirection::kOut);

constexpr uint8_t kFin = 0x01, kSyn = 0x02, kPsh = 0x08, kAck = 0x10;
constexpr size_t kMpaLengthSize = 2, kMpaCrcSize = 4;
constexpr uint32_t kMaxUlpdu = 60000;     // leaves room for everything in an IP packet
constexpr uint32_t kMaxSegments = 64;     // of one message; a liar may name any length
constexpr size_t kMaxConnections = 4096;  // remembered
constexpr size_t kMaxPendingReads = 4096;

template <typename T>
void Put(std::string* out, T value) {
  std::array<std::byte, sizeof(T)> bytes;
  StoreBe<T>(bytes.data(), value);
  out->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
void Put(std::string* out, Bytes bytes) { out->append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); }

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
  Connection& connection = connections_[record.connection];
  connection.address[kUs] = record.sdp_local;
  connection.address[kPeer] = record.sdp_peer;
  connection.connecting = record.role == stats::Role::kConnecting;
}

std::string Capture::Add(const NotedMessage& message) {
  const MessageNote& note = message.note;
  time_ns_ = note.time_ns;
  if (note.kind == NoteKind::kOpened || note.kind == NoteKind::kOpenedSdp) {
    if (connections_.size() >= kMaxConnections) connections_.clear();
    stats::NamesNote names;
    std::memcpy(&names, note.bytes, sizeof names);
    Connection& connection = connections_[message.connection];
    for (const int end : {kUs, kPeer}) {
      stats::Address& address = connection.address[end];
      address.family = (note.flags & stats::kNoteIpv6) != 0 ? 6 : 4;
      address.port = end == kUs ? names.local_port : names.peer_port;
      std::memcpy(address.ip, end == kUs ? names.local_ip : names.peer_ip, sizeof address.ip);
    }
    connection.connecting = (note.flags & stats::kNoteConnecting) != 0;
    return "";
  }
  const auto found = connections_.find(message.connection);
  if (found == connections_.end()) return "";
  Connection& connection = found->second;
  if (note.kind == NoteKind::kPrivateData) {
    connection.private_data[static_cast<int>(note.direction)].assign(note.bytes, note.bytes + note.size);
    return "";
  }
  if (!connection.started) Start(connection);
  switch (note.kind) {
    case NoteKind::kSend:
      AddSend(connection, note);
      break;
    case NoteKind::kRdmaRead:
      AddReadRequest(connection, note);
      break;
    case NoteKind::kRdmaReadDone:
      if (connection.reads.empty()) break;
      AddTagged(connection, kPeer, static_cast<uint8_t>(RdmapOpcode::kReadResponse), STag(connection.reads.front().work.local_stag),
                connection.reads.front().work.local_to, connection.reads.front().length);
      connection.reads.pop_front();
      break;
    case NoteKind::kRdmaWrite: {
      stats::RdmaNote work;
      std::memcpy(&work, note.bytes, sizeof work);
      AddTagged(connection, kUs, static_cast<uint8_t>(RdmapOpcode::kWrite), STag(work.remote_stag), work.remote_to, note.length);
      break;
    }
    case NoteKind::kClosed:
      AddPacket(connection, kUs, kFin | kAck, {});
      connections_.erase(found);
      break;
    default:
      break;
  }
  return std::exchange(out_, {});
}

void Capture::Start(Connection& connection) {
  connection.started = true;
  const int client = connection.connecting ? kUs : kPeer;
  const int server = client == kUs ? kPeer : kUs;
  AddPacket(connection, client, kSyn, {});
  ++connection.sequence[client];
  AddPacket(connection, server, kSyn | kAck, {});
  ++connection.sequence[server];
  AddPacket(connection, client, kAck, {});
  for (const int end : {client, server}) {
    // Revision 1: nothing is known of the enhanced set-up's words.
    std::array<std::byte, iwarp::kMaxMpaFrame> frame;
    const size_t size = iwarp::SerializeMpaFrame({.kind = end == client ? iwarp::MpaFrameKind::kRequest : iwarp::MpaFrameKind::kReply,
                                                  .revision = 1,
                                                  .private_data = connection.private_data[end]},
                                                 frame);
    AddPacket(connection, end, kPsh | kAck, Bytes(frame).first(size));
  }
}

void Capture::AddSend(Connection& connection, const MessageNote& note) {
  const int from = static_cast<int>(note.direction);
  const bool invalidates = (note.flags & stats::kNoteInvalidates) != 0;
  iwarp::DdpHeader header{.opcode = static_cast<uint8_t>(iwarp::SendOpcode((note.flags & stats::kNoteSolicited) != 0, invalidates)),
                          .stag = STag(invalidates ? note.invalidated : 0),
                          .queue = iwarp::kSendQueue,
                          .msn = ++connection.send_msn[from]};
  Bytes known = Bytes(note.bytes).first(std::min<size_t>(note.size, note.length));
  constexpr uint32_t kRoom = kMaxUlpdu - iwarp::kUntaggedHeaderSize;
  for (uint32_t i = 0; i < kMaxSegments && !header.last; ++i) {
    const uint32_t size = std::min(note.length - header.mo, kRoom);
    header.last = header.mo + size == note.length;
    AddFpdu(connection, from, header, known, size);
    known = {};
    header.mo += size;
  }
}

void Capture::AddTagged(Connection& connection, int from, uint8_t opcode, STag stag, uint64_t to, uint32_t length) {
  constexpr uint32_t kRoom = kMaxUlpdu - iwarp::kTaggedHeaderSize;
  iwarp::DdpHeader header{.tagged = true, .opcode = opcode, .stag = stag};
  uint32_t done = 0;
  for (uint32_t i = 0; i < kMaxSegments && !header.last; ++i) {
    const uint32_t size = std::min(length - done, kRoom);
    header.last = done + size == length;
    header.to = to + done;
    AddFpdu(connection, from, header, {}, size);
    done += size;
  }
}

void Capture::AddReadRequest(Connection& connection, const MessageNote& note) {
  stats::RdmaNote work;
  std::memcpy(&work, note.bytes, sizeof work);
  if (connection.reads.size() < kMaxPendingReads) connection.reads.push_back({work, note.length});
  std::array<std::byte, iwarp::kReadRequestSize> request;
  iwarp::SerializeReadRequest({.sink_stag = STag(work.local_stag),
                               .sink_to = work.local_to,
                               .size = note.length,
                               .source_stag = STag(work.remote_stag),
                               .source_to = work.remote_to},
                              request);
  AddFpdu(connection, kUs,
          {.last = true,
           .opcode = static_cast<uint8_t>(RdmapOpcode::kReadRequest),
           .queue = iwarp::kReadRequestQueue,
           .msn = ++connection.read_msn},
          request, request.size());
}

void Capture::AddFpdu(Connection& connection, int from, const iwarp::DdpHeader& header, Bytes known, uint32_t length) {
  std::array<std::byte, iwarp::kUntaggedHeaderSize> ddp;
  const size_t ddp_size = iwarp::SerializeDdpHeader(header, ddp.data());
  const uint32_t ulpdu = static_cast<uint32_t>(ddp_size) + length;
  const uint32_t padded = (static_cast<uint32_t>(kMpaLengthSize) + ulpdu + 3) / 4 * 4;
  std::vector<std::byte> bytes(padded + kMpaCrcSize);
  StoreBe<uint16_t>(bytes.data(), static_cast<uint16_t>(ulpdu));
  std::copy(ddp.begin(), ddp.begin() + static_cast<ptrdiff_t>(ddp_size), bytes.begin() + kMpaLengthSize);
  std::copy(known.begin(), known.end(), bytes.begin() + static_cast<ptrdiff_t>(kMpaLengthSize + ddp_size));
  AddPacket(connection, from, kPsh | kAck, bytes);
}

void Capture::AddPacket(Connection& connection, int from, uint8_t flags, Bytes payload) {
  constexpr uint32_t kTcpHeader = 20;
  const int to = from == kUs ? kPeer : kUs;
  const stats::Address& source = connection.address[from];
  const stats::Address& target = connection.address[to];
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
  for (const stats::Address* address : {&source, &target}) Put(&out_, std::as_bytes(std::span(address->ip)).first(v6 ? 16 : 4));
  Put<uint16_t>(&out_, source.port);
  Put<uint16_t>(&out_, target.port);
  Put<uint32_t>(&out_, connection.sequence[from]);
  Put<uint32_t>(&out_, (flags & kAck) != 0 ? connection.sequence[to] : 0);
  Put<uint8_t>(&out_, 0x50);
  Put<uint8_t>(&out_, flags);
  Put<uint16_t>(&out_, 0xffff);
  Put<uint32_t>(&out_, 0);
  Put(&out_, payload);
  connection.sequence[from] += length;
}

}  // namespace sdp::trace
