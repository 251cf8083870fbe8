// Takes apart the FPDUs of one connection, which may arrive split anywhere (RFC 5044, section 4): length, DDP
// header, payload, pad, CRC. FpduReader checks CRC and markers and keeps no payload: the caller keeps what a
// call does not consume.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_FPDU_READER_H_
#define SDP_VERBS_SOFTIWARP_PROTO_FPDU_READER_H_

#include <array>
#include <cstdint>

#include "core/base/types.h"
#include "verbs/softiwarp/proto/crc32c.h"
#include "verbs/softiwarp/proto/markers.h"
#include "verbs/softiwarp/wire/ddp_header.h"

namespace sdp::iwarp {

inline constexpr size_t kMpaLengthSize = 2;
inline constexpr uint32_t kMaxUlpdu = 65535;
// The longest ULPDU that this RNIC sends (RFC 5044, section 3: DDP MUST NOT post more).
inline constexpr uint32_t kMaxSentUlpdu = 64768;
inline constexpr uint32_t kSmallestUlpdu = 128;

// The zero octets after the ULPDU that make the FPDU a multiple of four.
[[nodiscard]] constexpr uint32_t PadSize(uint32_t ulpdu_length) {
  return (4 - (kMpaLengthSize + ulpdu_length) % 4) % 4;
}

class FpduReader {
 public:
  enum class Step : uint8_t {
    kNeedMore,   // all input is consumed
    kHeader,     // header() is complete; payload_left() bytes follow
    kPayload,    // *payload is a part of the payload
    kEnd,        // the FPDU is complete and valid
    kTooShort,   // error: the ULPDU cannot hold its DDP header
    kBadCrc,     // error
    kBadMarker,  // error: a marker and the FPDU's start disagree
  };

  // `sieve` has the stream's markers and outlives this; nullptr without markers.
  FpduReader(bool check_crc, MarkerSieve* sieve) : check_crc_(check_crc), sieve_(sieve) {}

  // Consumes from the front of *input. After an error the caller cannot continue with the stream.
  Step Next(Bytes* input, Bytes* payload);
  // Notes that the next `n` bytes of the payload were read into their place directly. Never with CRC.
  void HandlePlaced(uint32_t n);

  // Valid from kHeader to the end of the FPDU.
  [[nodiscard]] const std::byte* header() const { return head_.data() + kMpaLengthSize; }
  [[nodiscard]] uint16_t ulpdu_length() const { return ulpdu_length_; }
  [[nodiscard]] uint32_t payload_length() const { return payload_length_; }
  [[nodiscard]] uint32_t payload_left() const { return phase_ == Phase::kPayload ? payload_left_ : 0; }
  [[nodiscard]] uint32_t trailer_size() const { return PadSize(ulpdu_length_) + kCrcSize; }
  // Returns false while an FPDU is incomplete: the stream must not end there.
  [[nodiscard]] bool at_boundary() const { return phase_ == Phase::kHead && have_ == 0; }

 private:
  friend struct Frozen;
  enum class Phase : uint8_t { kHead, kPayload, kTrailer };
  static constexpr size_t kMaxHead = kMpaLengthSize + kUntaggedHeaderSize;

  // Gathers until have_ == wanted; returns true when reached.
  bool Gather(std::byte* to, size_t wanted, Bytes* input);
  Step ReadHead(Bytes* input);
  Step ReadTrailer(Bytes* input);
  // Passes `n` bytes of the FPDU, and the markers before each, into CRC and marker check. `bytes` is nullptr
  // for bytes placed directly.
  void Cover(const std::byte* bytes, uint32_t n);
  void TakeMarkerIfDue();

  const bool check_crc_;
  MarkerSieve* const sieve_;
  MarkerPhase marker_phase_;
  Phase phase_ = Phase::kHead;
  bool marker_wrong_ = false;
  uint16_t ulpdu_length_ = 0;
  uint8_t have_ = 0;  // octets gathered of head or trailer
  uint32_t payload_length_ = 0;
  uint32_t payload_left_ = 0;
  uint32_t crc_ = kCrcStart;
  uint32_t raw_offset_ = 0;  // octets from the length field on, markers included
  std::array<std::byte, kMaxHead> head_{};
  std::array<std::byte, 8> trailer_{};
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_FPDU_READER_H_
