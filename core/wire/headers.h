// The extended headers of SDP messages (SDP 6.2 to 6.5), as values. The layouts are the draft's figures;
// every number is big-endian. Rsvd bits are sent as zero and never read.
#ifndef SDP_CORE_WIRE_HEADERS_H_
#define SDP_CORE_WIRE_HEADERS_H_

#include <cstdint>

#include "core/base/byte_order.h"
#include "core/base/types.h"
#include "core/wire/mid.h"

namespace sdp::wire {

inline constexpr uint8_t kMajorVersion = 1;
inline constexpr uint8_t kMinorVersion = 1;
// The largest advertised buffer (6.3.2.1) and Private Buffer (6.2.1.5), in bytes.
inline constexpr uint32_t kMaxSize = 1u << 31;

// HH (6.2.1, figure 5) and, without DesRemRcvSz, HAH (6.2.2, figure 6).
//
//  |         MaxAdverts (16)       |    Rsvd (8)   |MinV(4)|MajV(4)|
//  |                          DesRemRcvSz (32)                     |   HH only
//  |                LocalRcvSz, in HAH: ActRcvSz (32)              |
//  |           LocIRD (16)         |            LocORD (16)        |
struct Hello {
  static constexpr Mid kMid = Mid::kHello;
  static constexpr size_t kSize = 16;

  uint16_t max_adverts = 0;
  uint8_t min_v = kMinorVersion;  // 4 bits
  uint8_t maj_v = kMajorVersion;  // 4 bits
  uint32_t des_rem_rcv_sz = 0;
  uint32_t local_rcv_sz = 0;
  uint16_t loc_ird = 0;
  uint16_t loc_ord = 0;

  static Hello Parse(const BoundedReader<kSize>& r) {
    const auto versions = r.Load<uint8_t, 3>();
    return {r.Load<uint16_t, 0>(),
            static_cast<uint8_t>(versions >> 4),
            static_cast<uint8_t>(versions & 15),
            r.Load<uint32_t, 4>(),
            r.Load<uint32_t, 8>(),
            r.Load<uint16_t, 12>(),
            r.Load<uint16_t, 14>()};
  }
  void SerializeTo(BoundedWriter<kSize> w) const {
    w.Store<uint16_t, 0>(max_adverts);
    w.Store<uint8_t, 2>(0);
    w.Store<uint8_t, 3>(static_cast<uint8_t>(min_v << 4 | (maj_v & 15)));
    w.Store<uint32_t, 4>(des_rem_rcv_sz);
    w.Store<uint32_t, 8>(local_rcv_sz);
    w.Store<uint16_t, 12>(loc_ird);
    w.Store<uint16_t, 14>(loc_ord);
  }
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct HelloAck {
  static constexpr Mid kMid = Mid::kHelloAck;
  static constexpr size_t kSize = 12;

  uint16_t max_adverts = 0;
  uint8_t min_v = kMinorVersion;
  uint8_t maj_v = kMajorVersion;
  uint32_t act_rcv_sz = 0;
  uint16_t loc_ird = 0;
  uint16_t loc_ord = 0;

  static HelloAck Parse(const BoundedReader<kSize>& r) {
    const auto versions = r.Load<uint8_t, 3>();
    return {r.Load<uint16_t, 0>(),
            static_cast<uint8_t>(versions >> 4),
            static_cast<uint8_t>(versions & 15),
            r.Load<uint32_t, 4>(),
            r.Load<uint16_t, 8>(),
            r.Load<uint16_t, 10>()};
  }
  void SerializeTo(BoundedWriter<kSize> w) const {
    w.Store<uint16_t, 0>(max_adverts);
    w.Store<uint8_t, 2>(0);
    w.Store<uint8_t, 3>(static_cast<uint8_t>(min_v << 4 | (maj_v & 15)));
    w.Store<uint32_t, 4>(act_rcv_sz);
    w.Store<uint16_t, 8>(loc_ird);
    w.Store<uint16_t, 10>(loc_ord);
  }
  friend bool operator==(const HelloAck&, const HelloAck&) = default;
};

// SrcAH (6.3.2, figure 7), and the start of SinkAH.
//
//  |                              Len                              |
//  |                              STag                             |
//  |                           VA (32-63)                          |   VA: one big-endian 64-bit number,
//  |                           VA (0-31)                           |   bit 63 is the most significant
struct SrcAvail {
  static constexpr Mid kMid = Mid::kSrcAvail;
  static constexpr size_t kSize = 16;

  uint32_t len = 0;  // of the whole buffer, including the part that travels as payload; 1 to 2^31
  STag stag{};
  uint64_t va = 0;

  static SrcAvail Parse(const BoundedReader<kSize>& r) {
    return {r.Load<uint32_t, 0>(), STag(r.Load<uint32_t, 4>()), r.Load<uint64_t, 8>()};
  }
  void SerializeTo(BoundedWriter<kSize> w) const {
    w.Store<uint32_t, 0>(len);
    w.Store<uint32_t, 4>(stag.value());
    w.Store<uint64_t, 8>(va);
  }
  friend bool operator==(const SrcAvail&, const SrcAvail&) = default;
};

// SinkAH (6.3.3, figure 8): SrcAH's fields, then NonDiscards (32). This is the longest extended header.
struct SinkAvail {
  static constexpr Mid kMid = Mid::kSinkAvail;
  static constexpr size_t kSize = 20;

  uint32_t len = 0;  // 1 to 2^31
  STag stag{};
  uint64_t va = 0;
  uint32_t non_discards = 0;

  static SinkAvail Parse(const BoundedReader<kSize>& r) {
    return {r.Load<uint32_t, 0>(), STag(r.Load<uint32_t, 4>()), r.Load<uint64_t, 8>(),
            r.Load<uint32_t, 16>()};
  }
  void SerializeTo(BoundedWriter<kSize> w) const {
    w.Store<uint32_t, 0>(len);
    w.Store<uint32_t, 4>(stag.value());
    w.Store<uint64_t, 8>(va);
    w.Store<uint32_t, 16>(non_discards);
  }
  friend bool operator==(const SinkAvail&, const SinkAvail&) = default;
};

// RWCH (6.3.6, figure 9): Len (32) is the number of bytes moved by RDMA Write for the oldest SinkAvail.
struct RdmaWrCompl {
  static constexpr Mid kMid = Mid::kRdmaWrCompl;
  static constexpr size_t kSize = 4;

  uint32_t len = 0;

  static RdmaWrCompl Parse(const BoundedReader<kSize>& r) { return {r.Load<uint32_t, 0>()}; }
  void SerializeTo(BoundedWriter<kSize> w) const { w.Store<uint32_t, 0>(len); }
  friend bool operator==(const RdmaWrCompl&, const RdmaWrCompl&) = default;
};

// RRCH (6.3.7, figure 10): Len (32) is the number of bytes moved by RDMA Read for the oldest SrcAvail,
// without its payload.
struct RdmaRdCompl {
  static constexpr Mid kMid = Mid::kRdmaRdCompl;
  static constexpr size_t kSize = 4;

  uint32_t len = 0;

  static RdmaRdCompl Parse(const BoundedReader<kSize>& r) { return {r.Load<uint32_t, 0>()}; }
  void SerializeTo(BoundedWriter<kSize> w) const { w.Store<uint32_t, 0>(len); }
  friend bool operator==(const RdmaRdCompl&, const RdmaRdCompl&) = default;
};

// MCH (6.3.8, figure 11).
//
//  |                          Rsvd (28)                    |Mode(3)|S|
struct ModeChange {
  static constexpr Mid kMid = Mid::kModeChange;
  static constexpr size_t kSize = 4;
  static constexpr uint8_t kBuffered = 0, kCombined = 1, kPipelined = 2;  // figure 12; 3 to 7 are reserved

  uint8_t mode = kCombined;
  // S: if set, the receiver of this message changes its send half-connection, otherwise its receive half.
  bool receivers_source = false;

  static ModeChange Parse(const BoundedReader<kSize>& r) {
    const auto last = r.Load<uint8_t, 3>();
    return {static_cast<uint8_t>(last >> 1 & 7), (last & 1) != 0};
  }
  void SerializeTo(BoundedWriter<kSize> w) const {
    w.Store<uint32_t, 0>(static_cast<uint32_t>((mode & 7) << 1 | (receivers_source ? 1 : 0)));
  }
  friend bool operator==(const ModeChange&, const ModeChange&) = default;
};

// CRBH (6.4.1, figure 13): DesSz (32).
struct ChRcvBuf {
  static constexpr Mid kMid = Mid::kChRcvBuf;
  static constexpr size_t kSize = 4;

  uint32_t des_sz = 0;

  static ChRcvBuf Parse(const BoundedReader<kSize>& r) { return {r.Load<uint32_t, 0>()}; }
  void SerializeTo(BoundedWriter<kSize> w) const { w.Store<uint32_t, 0>(des_sz); }
  friend bool operator==(const ChRcvBuf&, const ChRcvBuf&) = default;
};

// CRBAH (6.4.2, figure 14): ActSz (32).
struct ChRcvBufAck {
  static constexpr Mid kMid = Mid::kChRcvBufAck;
  static constexpr size_t kSize = 4;

  uint32_t act_sz = 0;

  static ChRcvBufAck Parse(const BoundedReader<kSize>& r) { return {r.Load<uint32_t, 0>()}; }
  void SerializeTo(BoundedWriter<kSize> w) const { w.Store<uint32_t, 0>(act_sz); }
  friend bool operator==(const ChRcvBufAck&, const ChRcvBufAck&) = default;
};

// SuspCH (6.5.1, figure 15).
//
//  |                         Constant1 (32) = 0                    |
//  |    Destination TCP Port (16)  |       Constant2 (16) = 1      |
struct SuspComm {
  static constexpr Mid kMid = Mid::kSuspComm;
  static constexpr size_t kSize = 8;
  static constexpr uint32_t kConstant1 = 0;
  static constexpr uint16_t kConstant2 = 1;

  uint16_t port = 0;

  static SuspComm Parse(const BoundedReader<kSize>& r) { return {r.Load<uint16_t, 4>()}; }
  static bool HasConstants(const BoundedReader<kSize>& r) {
    return r.Load<uint32_t, 0>() == kConstant1 && r.Load<uint16_t, 6>() == kConstant2;
  }
  void SerializeTo(BoundedWriter<kSize> w) const {
    w.Store<uint32_t, 0>(kConstant1);
    w.Store<uint16_t, 4>(port);
    w.Store<uint16_t, 6>(kConstant2);
  }
  friend bool operator==(const SuspComm&, const SuspComm&) = default;
};

// Messages without an extended header.
template <Mid kTheMid>
struct Bare {
  static constexpr Mid kMid = kTheMid;
  static constexpr size_t kSize = 0;

  friend bool operator==(const Bare&, const Bare&) = default;
};
using DisConn = Bare<Mid::kDisConn>;
using AbortConn = Bare<Mid::kAbortConn>;
using SendSm = Bare<Mid::kSendSm>;
using SrcAvailCancel = Bare<Mid::kSrcAvailCancel>;
using SinkAvailCancel = Bare<Mid::kSinkAvailCancel>;
using SinkCancelAck = Bare<Mid::kSinkCancelAck>;
using SuspCommAck = Bare<Mid::kSuspCommAck>;
using Data = Bare<Mid::kData>;  // without payload: a gratuitous update of credit (6.3.1)

}  // namespace sdp::wire

#endif  // SDP_CORE_WIRE_HEADERS_H_
