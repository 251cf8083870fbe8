// The headers of a program that sdp-run is asked to start.
#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "preload/elf_facts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto facts = sdp::ReadElf([&](uint64_t offset, std::span<std::byte> out) -> size_t {
    if (offset >= size) return 0;
    size_t count = std::min<size_t>(out.size(), size - static_cast<size_t>(offset));
    std::memcpy(out.data(), data + offset, count);
    return count;
  });
  if (facts) SDP_CHECK(facts->interpreter.size() <= size);
  return 0;
}
