// FPDU framing: arbitrary streams with and without markers. The first byte chooses, the rest is the stream.
// The same stream in two different splits has to read the same.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "verbs/softiwarp/proto/fpdu_reader.h"

using namespace sdp;
using namespace sdp::iwarp;

namespace {

struct Trace {
  std::vector<uint32_t> steps;
  std::vector<std::byte> payload;
  friend bool operator==(const Trace&, const Trace&) = default;
};

Trace Read(Bytes raw, bool markers, size_t step) {
  Trace trace;
  MarkerSieve sieve;
  FpduReader reader(/*check_crc=*/false, markers ? &sieve : nullptr);
  std::vector<std::byte> clean(step);
  std::vector<MutableBytes> parts(MarkerSieve::kMaxParts);
  while (!raw.empty()) {
    MutableBytes target(clean);
    const MutableBytes whole(clean);
    std::span<const MutableBytes> read(&target, 1);
    if (markers) read = std::span(parts).first(sieve.Split(std::span(&whole, 1), parts));
    size_t taken = 0;
    for (const MutableBytes& part : read) {
      const size_t n = std::min(part.size(), raw.size() - taken);
      if (n > 0) std::memcpy(part.data(), raw.data() + taken, n);
      taken += n;
    }
    raw = raw.subspan(taken);
    Bytes input = Bytes(clean).first(markers ? sieve.HandleRead(taken) : taken);
    for (;;) {
      Bytes payload;
      const FpduReader::Step s = reader.Next(&input, &payload);
      if (s == FpduReader::Step::kNeedMore) break;
      if (s == FpduReader::Step::kPayload) {
        trace.payload.insert(trace.payload.end(), payload.begin(), payload.end());
        continue;
      }
      trace.steps.push_back(static_cast<uint32_t>(s) << 16 | reader.ulpdu_length());
      SDP_CHECK(reader.payload_left() <= kMaxUlpdu);
      if (s != FpduReader::Step::kHeader && s != FpduReader::Step::kEnd) return trace;
    }
  }
  return trace;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Bytes raw = std::as_bytes(std::span(data + 1, size - 1));
  const bool markers = (data[0] & 1) != 0;
  SDP_CHECK(Read(raw, markers, 1 + (data[0] >> 1)) == Read(raw, markers, 4096));
  return 0;
}
