// What a fuzzer's bytes mean to sdp_engine_fuzz: numbers, and the peer's messages.
#ifndef SDP_TEST_FUZZ_SDP_ENGINE_INPUT_H_
#define SDP_TEST_FUZZ_SDP_ENGINE_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/types.h"
#include "core/wire/message.h"

namespace sdp::engine {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return at_ == size_; }
  uint8_t Byte() { return at_ < size_ ? data_[at_++] : 0; }
  uint32_t Number() {
    // Mostly small, at times anything.
    const uint8_t first = Byte();
    if (first < 240) return first;
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | Byte();
    return value;
  }
  Bytes Rest(size_t limit) {
    const size_t n = std::min(limit, size_ - at_);
    const Bytes bytes(reinterpret_cast<const std::byte*>(data_ + at_), n);
    at_ += n;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

inline wire::Body MakeBody(Input* in) {
  switch (in->Byte() % 18) {
    case 0:
      return wire::SrcAvail{.len = in->Number(), .stag = STag(1), .va = in->Number()};
    case 1:
      return wire::SinkAvail{.len = in->Number(), .stag = STag(1), .va = 0, .non_discards = in->Number()};
    case 2:
      return wire::DisConn{};
    case 3:
      return wire::AbortConn{};
    case 4:
      return wire::SendSm{};
    case 5:
      return wire::RdmaWrCompl{in->Number()};
    case 6:
      return wire::RdmaRdCompl{in->Number()};
    case 7:
      return wire::ModeChange{.mode = static_cast<uint8_t>(in->Byte() % 4),
                              .receivers_source = in->Byte() % 2 == 1};
    case 8:
      return wire::SrcAvailCancel{};
    case 9:
      return wire::SinkAvailCancel{};
    case 10:
      return wire::SinkCancelAck{};
    case 11:
      return wire::ChRcvBuf{in->Number()};
    case 12:
      return wire::ChRcvBufAck{in->Number()};
    case 13:
      return wire::SuspComm{static_cast<uint16_t>(in->Number())};
    case 14:
      return wire::SuspCommAck{};
    case 15:
      return wire::HelloAck{.max_adverts = 1, .act_rcv_sz = in->Number(), .loc_ird = 1, .loc_ord = 1};
    default:
      return wire::Data{};
  }
}

}  // namespace sdp::engine

#endif  // SDP_TEST_FUZZ_SDP_ENGINE_INPUT_H_
