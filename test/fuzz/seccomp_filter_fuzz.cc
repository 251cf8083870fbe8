// A program for a seccomp filter, and a system call. The interpreter ends and stays inside the program,
// whatever that is; and for what the kernel takes for a filter it answers what the kernel would, whose rules
// (seccomp_check_filter, bpf_check_classic and the meaning of each instruction) are told here a second time:
// by whole instruction codes, where the interpreter takes codes apart.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/base/check.h"
#include "preload/seccomp_filter.h"

namespace {

// All that the kernel knows in a filter of system calls.
constexpr uint16_t kCodes[] = {
    0x20, 0x80, 0x81, 0x00, 0x01, 0x60, 0x61, 0x02, 0x03,  // loads and stores
    0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x54, 0x5c,
    0x44, 0x4c, 0xa4, 0xac, 0x64, 0x6c, 0x74, 0x7c, 0x84,  // computes
    0x07, 0x87,                                            // between A and X
    0x05, 0x15, 0x1d, 0x35, 0x3d, 0x25, 0x2d, 0x45, 0x4d,  // jumps
    0x06, 0x16,                                            // answers
};
constexpr size_t kMemory = 16;
constexpr size_t kCallSize = 64;
static_assert(sizeof(seccomp_data) == kCallSize);

bool IsConditional(uint16_t code) { return (code & 7) == 5 && code != 0x05; }

// Would the kernel take it? But for reads of memory that was not written, which it refuses, and which read 0
// here.
bool IsFilter(const std::vector<sock_filter>& program) {
  if (program.empty() || program.size() > 4096) return false;
  for (size_t at = 0; at < program.size(); ++at) {
    const auto& [code, jt, jf, k] = program[at];
    if (std::find(std::begin(kCodes), std::end(kCodes), code) == std::end(kCodes)) return false;
    if (code == 0x20 && (k >= kCallSize || k % 4 != 0)) return false;
    if ((code == 0x60 || code == 0x61 || code == 0x02 || code == 0x03) && k >= kMemory) return false;
    if (code == 0x34 && k == 0) return false;
    if ((code == 0x64 || code == 0x74) && k >= 32) return false;
    const size_t behind = program.size() - at - 1;
    if (code == 0x05 && k >= behind) return false;
    if (IsConditional(code) && (jt >= behind || jf >= behind)) return false;
  }
  return program.back().code == 0x06 || program.back().code == 0x16;
}

// Of a filter. Backwards jumps there are none: from each place the answer is that of a later one.
uint32_t Answer(const std::vector<sock_filter>& program, const uint8_t* call) {
  uint64_t a = 0, x = 0;  // below 2^32 after each instruction
  uint64_t memory[kMemory] = {};
  for (size_t next = 0;;) {
    const auto& [code, jt, jf, k32] = program[next++];
    const uint64_t k = k32;
    bool jumps = false;
    switch (code) {
      case 0x20: {
        uint32_t word;
        std::memcpy(&word, call + k, 4);
        a = word;
        break;
      }
      case 0x80:
        a = kCallSize;
        break;
      case 0x81:
        x = kCallSize;
        break;
      case 0x00:
        a = k;
        break;
      case 0x01:
        x = k;
        break;
      case 0x60:
        a = memory[k];
        break;
      case 0x61:
        x = memory[k];
        break;
      case 0x02:
        memory[k] = a;
        break;
      case 0x03:
        memory[k] = x;
        break;
      case 0x04:
        a += k;
        break;
      case 0x0c:
        a += x;
        break;
      case 0x14:
        a += (uint64_t{1} << 32) - k;
        break;
      case 0x1c:
        a += (uint64_t{1} << 32) - x;
        break;
      case 0x24:
        a *= k;
        break;
      case 0x2c:
        a *= x;
        break;
      case 0x34:
        a /= k;
        break;
      case 0x3c:
        if (x == 0) return 0;
        a /= x;
        break;
      case 0x54:
        a &= k;
        break;
      case 0x5c:
        a &= x;
        break;
      case 0x44:
        a |= k;
        break;
      case 0x4c:
        a |= x;
        break;
      case 0xa4:
        a ^= k;
        break;
      case 0xac:
        a ^= x;
        break;
      case 0x64:
        a <<= k;
        break;
      case 0x6c:
        a <<= x % 32;
        break;
      case 0x74:
        a >>= k;
        break;
      case 0x7c:
        a >>= x % 32;
        break;
      case 0x84:
        a = ~a + 1;
        break;
      case 0x07:
        x = a;
        break;
      case 0x87:
        a = x;
        break;
      case 0x05:
        next += k;
        break;
      case 0x15:
        jumps = a == k;
        break;
      case 0x1d:
        jumps = a == x;
        break;
      case 0x25:
        jumps = a > k;
        break;
      case 0x2d:
        jumps = a > x;
        break;
      case 0x35:
        jumps = a >= k;
        break;
      case 0x3d:
        jumps = a >= x;
        break;
      case 0x45:
        jumps = (a & k) != 0;
        break;
      case 0x4d:
        jumps = (a & x) != 0;
        break;
      case 0x06:
        return k32;
      case 0x16:
        return static_cast<uint32_t>(a);
    }
    a &= 0xffffffff;
    if (IsConditional(code)) next += jumps ? jt : jf;
  }
}

// The nearest program that is a filter.
void MakeFilter(std::vector<sock_filter>* program) {
  for (size_t at = 0; at < program->size(); ++at) {
    sock_filter& it = (*program)[at];
    const size_t behind = program->size() - at - 1;
    if (behind == 0) it.code = it.code % 2 == 0 ? 0x06 : 0x16;
    if (std::find(std::begin(kCodes), std::end(kCodes), it.code) == std::end(kCodes))
      it.code = kCodes[it.code % std::size(kCodes)];
    if (behind == 0) continue;
    if (it.code == 0x20) it.k = it.k % kCallSize / 4 * 4;
    if (it.code == 0x60 || it.code == 0x61 || it.code == 0x02 || it.code == 0x03) it.k %= kMemory;
    if (it.code == 0x34 && it.k == 0) it.k = 1;
    if (it.code == 0x64 || it.code == 0x74) it.k %= 32;
    if (it.code == 0x05) it.k = static_cast<uint32_t>(it.k % behind);
    if (!IsConditional(it.code)) continue;
    it.jt = static_cast<uint8_t>(it.jt % behind);
    it.jf = static_cast<uint8_t>(it.jf % behind);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kCallSize) return 0;
  seccomp_data call;
  std::memcpy(&call, data, kCallSize);
  std::vector<sock_filter> program((size - kCallSize) / sizeof(sock_filter));
  if (!program.empty()) std::memcpy(program.data(), data + kCallSize, program.size() * sizeof(sock_filter));
  const uint32_t answer = sdp::preload::RunFilter(program, call);
  SDP_CHECK(sdp::preload::IsFilter(program) == IsFilter(program));
  if (program.empty() || program.size() > 4096) return 0;
  if (IsFilter(program)) SDP_CHECK(answer == Answer(program, data));
  const size_t one = static_cast<uint32_t>(call.nr) % program.size();
  const sock_filter as_it_was = program[one];
  MakeFilter(&program);
  SDP_CHECK(IsFilter(program) && sdp::preload::IsFilter(program));
  SDP_CHECK(sdp::preload::RunFilter(program, call) == Answer(program, data));
  program[one] = as_it_was;  // all but a filter, perhaps
  SDP_CHECK(sdp::preload::IsFilter(program) == IsFilter(program));
  return 0;
}
