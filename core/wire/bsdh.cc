#include "core/wire/bsdh.h"

#include "core/base/byte_order.h"

namespace sdp::wire {

Bsdh Bsdh::Parse(std::span<const std::byte, kSize> bytes) {
  const BoundedReader<kSize> r(bytes);
  return {.bufs = r.Load<uint16_t, 0>(),
          .flags = r.Load<uint8_t, 2>(),
          .mid = static_cast<Mid>(r.Load<uint8_t, 3>()),
          .len = r.Load<uint32_t, 4>(),
          .mseq = MSeq(r.Load<uint32_t, 8>()),
          .mseq_ack = MSeq(r.Load<uint32_t, 12>())};
}

void Bsdh::SerializeTo(std::span<std::byte, kSize> out) const {
  BoundedWriter<kSize> w(out);
  w.Store<uint16_t, 0>(bufs);
  w.Store<uint8_t, 2>(flags);
  w.Store<uint8_t, 3>(static_cast<uint8_t>(mid));
  w.Store<uint32_t, 4>(len);
  w.Store<uint32_t, 8>(mseq.value());
  w.Store<uint32_t, 12>(mseq_ack.value());
}

}  // namespace sdp::wire
