#include "verbs/softiwarp/wire/read_request.h"

#include "core/base/byte_order.h"

namespace sdp::iwarp {

ReadRequest ParseReadRequest(std::span<const std::byte, kReadRequestSize> bytes) {
  const BoundedReader<kReadRequestSize> in(bytes);
  ReadRequest r;
  r.sink_stag = STag(in.Load<uint32_t, 0>());
  r.sink_to = in.Load<uint64_t, 4>();
  r.size = in.Load<uint32_t, 12>();
  r.source_stag = STag(in.Load<uint32_t, 16>());
  r.source_to = in.Load<uint64_t, 20>();
  return r;
}

void SerializeReadRequest(const ReadRequest& request, std::span<std::byte, kReadRequestSize> out) {
  BoundedWriter<kReadRequestSize> w(out);
  w.Store<uint32_t, 0>(request.sink_stag.value());
  w.Store<uint64_t, 4>(request.sink_to);
  w.Store<uint32_t, 12>(request.size);
  w.Store<uint32_t, 16>(request.source_stag.value());
  w.Store<uint64_t, 20>(request.source_to);
}

}  // namespace sdp::iwarp
