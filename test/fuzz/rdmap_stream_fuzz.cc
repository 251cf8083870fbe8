// The whole receiving side from several states: registered memory, Reads in flight, a message under way. CRC
// is not checked, so that the fuzzer gets past it. Only advertised memory may change.
//
// Input: one byte of options, one that chooses the split, then the stream. STags are fixed, so that seeds can
// name them.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "verbs/softiwarp/proto/receive_stream.h"

using namespace sdp;
using namespace sdp::iwarp;

namespace {

void Fixed(MutableBytes out) { std::fill(out.begin(), out.end(), std::byte{0x11}); }

constexpr uint32_t kStagHigh = 0x11111000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint8_t options = data[0];
  const size_t step = 1 + data[1] * 37;
  Bytes raw = std::as_bytes(std::span(data + 2, size - 2));

  // Fences around each region.
  std::vector<std::byte> memory(4096, std::byte{0x5a});
  StagTable stags(Fixed);
  const STag writable = *stags.Register(MutableBytes(memory).subspan(1024, 512), Rights::kRemoteWrite);
  const STag readable = *stags.Register(MutableBytes(memory).subspan(2048, 512), Rights::kRemoteRead);
  const STag sink = *stags.Register(MutableBytes(memory).subspan(3072, 512), Rights::kLocal);
  SDP_CHECK((writable.value() & ~0xfffu) == kStagHigh);
  (void)readable;
  ReceiveBuffers buffers(2000);
  buffers.Post(options & 3);
  ReadQueue reads;
  if ((options & 4) != 0) {
    reads.Post(
        {.id = WorkId(1),
         .request = {
             .sink_stag = sink, .sink_to = reinterpret_cast<uint64_t>(memory.data()) + 3072, .size = 100}});
    reads.StartNext(1);
  }
  ReceiveStream stream({.markers = (options & 8) != 0,
                        .rtr_send = (options & 16) != 0,
                        .ird = 1,
                        .worth_placing = (options & 32) != 0 ? 4u : 4096u},
                       stags, buffers, reads);

  // Addresses differ from run to run: "@@@@@@" and a 16-bit offset in the input stand for a TO in the memory.
  std::vector<std::byte> patched(raw.begin(), raw.end());
  const uint64_t base = reinterpret_cast<uint64_t>(memory.data());
  for (size_t i = 0; i + 8 <= patched.size(); ++i) {
    static constexpr std::array<std::byte, 6> kHere{std::byte{'@'}, std::byte{'@'}, std::byte{'@'},
                                                    std::byte{'@'}, std::byte{'@'}, std::byte{'@'}};
    if (std::memcmp(patched.data() + i, kHere.data(), kHere.size()) != 0) continue;
    const uint64_t to =
        base + (static_cast<uint64_t>(patched[i + 6]) << 8 | static_cast<uint64_t>(patched[i + 7]));
    for (size_t k = 0; k < 8; ++k) patched[i + k] = static_cast<std::byte>(to >> (56 - 8 * k));
    i += 7;
  }
  raw = patched;

  std::vector<MutableBytes> split(MarkerSieve::kMaxParts);
  bool ended = false;
  for (int round = 1; !raw.empty() && !ended; ++round) {
    std::span<const MutableBytes> parts = stream.PrepareRead();
    SDP_CHECK(!parts.empty());
    if (stream.sieve() != nullptr) parts = std::span(split).first(stream.sieve()->Split(parts, split));
    size_t taken = 0;
    for (const MutableBytes& part : parts) {
      const size_t n = std::min({part.size(), raw.size() - taken, step - taken});
      if (n > 0) std::memcpy(part.data(), raw.data() + taken, n);
      taken += n;
    }
    raw = raw.subspan(taken);
    stream.HandleRead(stream.sieve() != nullptr ? stream.sieve()->HandleRead(taken) : taken);
    ReceiveEvent event;
    const auto poll = [&] {
      ReceivedMessage usual;
      if (round % 2 == 0 || !stream.PollUsualSend(&usual)) return stream.PollEvent(&event);
      event = usual;
      return true;
    };
    while (poll()) {
      SDP_CHECK(!ended);
      if (auto* message = std::get_if<ReceivedMessage>(&event)) {
        size_t total = 0;
        for (size_t i = 0; i < message->body.count; ++i) {
          const Piece& piece = message->body.pieces[i];
          total += piece.length;
          volatile std::byte touch = piece.length > 0 ? piece.data[piece.length - 1] : std::byte{};
          (void)touch;
          if ((options & 64) == 0) stream.Release(piece);
        }
        SDP_CHECK(total == message->end.length && total <= 2000);
      } else if (auto* wanted = std::get_if<segment::ReadWanted>(&event)) {
        if (wanted->request.size > 0) {
          SDP_CHECK(wanted->source >= memory.data() + 2048 &&
                    wanted->source + wanted->request.size <= memory.data() + 2560);
        }
        if ((options & 128) == 0) stream.HandleReadResponseSent();
      } else if (std::holds_alternative<Violation>(event) ||
                 std::holds_alternative<segment::Terminated>(event)) {
        ended = true;
      }
    }
    stream.FinishReading(taken);
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    const bool open = (i >= 1024 && i < 1536) || (i >= 3072 && i < 3172 && (options & 4) != 0);
    SDP_CHECK(open || memory[i] == std::byte{0x5a});
  }
  return 0;
}
