// A stream read with memory to land in, in calls and reads of all sizes, brings the same as without: the same
// messages, the same end. Nothing outside that memory changes, and none of it is used when the call is over.
//
// Input: four bytes of options and of how it is read; then what the peer sends, as commands: segments of
// Sends, right or wrong in a detail, the same again and again, or bytes as they stand.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/base/byte_order.h"
#include "core/base/check.h"
#include "verbs/softiwarp/proto/receive_stream.h"
#include "verbs/softiwarp/wire/ddp_header.h"
#include "verbs/softiwarp/wire/opcode_table.h"

using namespace sdp;
using namespace sdp::iwarp;

namespace {

void Fixed(MutableBytes out) { std::fill(out.begin(), out.end(), std::byte{0x11}); }

constexpr size_t kMostBytes = 1 << 18;

struct Peer {
  std::vector<std::byte> raw;
  uint32_t msn = 1;
  uint32_t mo = 0;

  void Segment(uint8_t opcode, uint32_t size, bool last, bool tagged = false) {
    const DdpHeader header{
        .tagged = tagged, .last = last, .opcode = opcode, .stag = STag(1), .msn = msn, .mo = mo};
    std::array<std::byte, kMpaLengthSize + kUntaggedHeaderSize> prefix{};
    const auto ulpdu = static_cast<uint16_t>(header.size() + size);
    StoreBe<uint16_t>(prefix.data(), ulpdu);
    SerializeDdpHeader(header, prefix.data() + kMpaLengthSize);
    raw.insert(raw.end(), prefix.begin(),
               prefix.begin() + static_cast<ptrdiff_t>(kMpaLengthSize + header.size()));
    for (uint32_t i = 0; i < size; ++i) raw.push_back(static_cast<std::byte>(raw.size() * 7 + i / 251));
    raw.resize(raw.size() + PadSize(ulpdu) + kCrcSize);
    if (tagged) return;
    mo = last ? 0 : mo + size;
    if (last) ++msn;
  }
};

Peer Interpret(const uint8_t* data, size_t size) {
  Peer peer;
  uint32_t length = 100;
  for (size_t i = 0; i + 2 < size && peer.raw.size() < kMostBytes; i += 3) {
    const auto value = static_cast<uint32_t>(data[i + 1] << 8 | data[i + 2]);
    switch (data[i] % 8) {
      case 0:
        length = value % 5000;
        [[fallthrough]];
      case 1:
        peer.Segment(static_cast<uint8_t>(RdmapOpcode::kSend), length, true);
        break;
      case 2:
        for (uint32_t k = 0; k < value % 40; ++k)
          peer.Segment(static_cast<uint8_t>(RdmapOpcode::kSend), length, true);
        break;
      case 3:
        peer.Segment(static_cast<uint8_t>(RdmapOpcode::kSend), value % 2000, false);
        break;
      case 4:  // RTRs and the like
        peer.Segment(static_cast<uint8_t>(RdmapOpcode::kWrite), 0, true, true);
        break;
      case 5:
        peer.Segment(static_cast<uint8_t>(data[i + 1] % 16), data[i + 2], true);
        break;
      case 6:
        peer.mo += value % 3;
        break;
      case 7:
        peer.raw.push_back(static_cast<std::byte>(data[i + 1]));
        break;
    }
  }
  return peer;
}

struct Outcome {
  std::vector<std::vector<std::byte>> messages;
  std::string end;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

class Receiver {
 public:
  explicit Receiver(uint32_t worth) : stream_({.ird = 1, .worth_placing = worth}, stags_, buffers_, reads_) {
    buffers_.Post(100000);
  }

  ReceiveStream& stream() { return stream_; }
  Outcome& outcome() { return outcome_; }

  size_t Read(Bytes raw, size_t n) {
    const std::span<const MutableBytes> parts =
        stream_.PrepareRead(n % 3 == 0 ? ReadKind::kSleeping : ReadKind::kAtOnce);
    SDP_CHECK(!parts.empty());
    size_t taken = 0;
    for (const MutableBytes& part : parts) {
      const size_t here = std::min({part.size(), raw.size() - taken, n - taken});
      if (here > 0) std::memcpy(part.data(), raw.data() + taken, here);
      taken += here;
    }
    stream_.HandleRead(taken);
    ReceiveEvent event;
    while (outcome_.end.empty() && stream_.PollEvent(&event)) {
      if (auto* message = std::get_if<ReceivedMessage>(&event)) {
        waiting_.push_back(*message);
      } else if (auto* violation = std::get_if<Violation>(&event)) {
        outcome_.end = violation->text;
      } else if (std::holds_alternative<segment::Terminated>(event)) {
        outcome_.end = "Terminate";
      } else if (std::holds_alternative<segment::ReadWanted>(event)) {
        stream_.HandleReadResponseSent();
      }
    }
    return taken;
  }

  // As Engine::Receive into `room`: what is behind the headers comes to lie there in order.
  void Take(MutableBytes room, size_t header) {
    size_t at = 0;
    for (const ReceivedMessage& message : waiting_) {
      std::vector<std::byte>& whole = outcome_.messages.emplace_back();
      for (size_t i = 0; i < message.body.count; ++i) {
        Bytes piece(message.body.pieces[i].data, message.body.pieces[i].length);
        const size_t head = std::min(header - std::min(header, whole.size()), piece.size());
        whole.insert(whole.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(head));
        piece = piece.subspan(head);
        const size_t here = std::min(piece.size(), room.size() - at);
        if (here > 0) std::memmove(room.data() + at, piece.data(), here);
        whole.insert(whole.end(), room.begin() + static_cast<ptrdiff_t>(at),
                     room.begin() + static_cast<ptrdiff_t>(at + here));
        whole.insert(whole.end(), piece.begin() + static_cast<ptrdiff_t>(here), piece.end());
        at += here;
        stream_.Release(message.body.pieces[i]);
      }
      SDP_CHECK(whole.size() == message.end.length);
    }
    waiting_.clear();
  }

 private:
  StagTable stags_{Fixed};
  ReceiveBuffers buffers_{1 << 20};
  ReadQueue reads_;
  ReceiveStream stream_;
  std::vector<ReceivedMessage> waiting_;
  Outcome outcome_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const uint32_t worth = 1 + data[0] % 64;
  const uint32_t header = data[1] % 24;
  std::minstd_rand random(1u + data[2] * 256u + data[3]);
  const auto pick = [&](size_t n) { return random() % n; };
  const size_t most = pick(3) == 0 ? 40 : pick(2) == 0 ? 3000 : 100000;
  const size_t largest = pick(2) == 0 ? 6000 : 60000;
  const Peer peer = Interpret(data + 4, size - 4);

  Receiver plain(worth);
  for (size_t at = 0; at < peer.raw.size() && plain.outcome().end.empty();) {
    const size_t taken = plain.Read(Bytes(peer.raw).subspan(at), SIZE_MAX);
    plain.Take({}, header);
    plain.stream().FinishReading(taken);
    at += taken;
  }

  Receiver landing(worth);
  for (size_t at = 0; at < peer.raw.size() && landing.outcome().end.empty();) {
    constexpr size_t kFence = 32;
    // Of its own each time, so that a sanitizer sees whoever uses it later.
    std::vector<std::byte> memory(1 + pick(largest) + 2 * kFence, std::byte{0x5a});
    const MutableBytes room = MutableBytes(memory).subspan(kFence, memory.size() - 2 * kFence);
    landing.stream().Land(room, header);
    size_t taken = 0;
    for (size_t reads = 1 + pick(4); reads > 0 && at < peer.raw.size() && landing.outcome().end.empty();
         --reads) {
      const size_t n = landing.Read(Bytes(peer.raw).subspan(at), 1 + pick(most));
      at += n;
      taken += n;
    }
    SDP_CHECK(landing.stream().EndLanding());
    landing.Take(room, header);
    landing.stream().FinishReading(taken);
    SDP_CHECK(std::all_of(memory.begin(), memory.begin() + kFence,
                          [](std::byte b) { return b == std::byte{0x5a}; }));
    SDP_CHECK(
        std::all_of(memory.end() - kFence, memory.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
  }
  SDP_CHECK(landing.outcome() == plain.outcome());
  return 0;
}
