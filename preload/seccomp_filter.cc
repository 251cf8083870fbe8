#include "preload/seccomp_filter.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

namespace sdp::preload {
namespace {

std::optional<uint32_t> Compute(uint16_t operation, uint32_t a, uint32_t b) {
  switch (operation) {
    case BPF_ADD:
      return a + b;
    case BPF_SUB:
      return a - b;
    case BPF_MUL:
      return a * b;
    case BPF_DIV:
      return b == 0 ? std::nullopt : std::optional(a / b);
    case BPF_AND:
      return a & b;
    case BPF_OR:
      return a | b;
    case BPF_XOR:
      return a ^ b;
    case BPF_LSH:
      return a << (b & 31);
    case BPF_RSH:
      return a >> (b & 31);
    case BPF_NEG:
      return 0 - a;
    default:
      return std::nullopt;
  }
}

bool Holds(uint16_t operation, uint32_t a, uint32_t b) {
  switch (operation) {
    case BPF_JEQ:
      return a == b;
    case BPF_JGT:
      return a > b;
    case BPF_JGE:
      return a >= b;
    default:
      return (a & b) != 0;
  }
}

// Returns whether the kernel accepts the instruction in a filter with `behind` more instructions after it.
bool IsInstruction(const sock_filter& instruction, size_t behind) {
  const uint16_t code = instruction.code;
  const uint32_t k = instruction.k;
  const bool by_x = BPF_SRC(code) == BPF_X;
  const auto is = [code](unsigned whole) { return code == whole; };
  switch (BPF_CLASS(code)) {
    case BPF_LD:
      if (is(BPF_LD | BPF_W | BPF_ABS)) return k < sizeof(seccomp_data) && k % sizeof(uint32_t) == 0;
      return is(BPF_LD | BPF_IMM) || is(BPF_LD | BPF_W | BPF_LEN) ||
             (is(BPF_LD | BPF_MEM) && k < BPF_MEMWORDS);
    case BPF_LDX:
      return is(BPF_LDX | BPF_IMM) || is(BPF_LDX | BPF_W | BPF_LEN) ||
             (is(BPF_LDX | BPF_MEM) && k < BPF_MEMWORDS);
    case BPF_ST:
    case BPF_STX:
      return is(BPF_CLASS(code)) && k < BPF_MEMWORDS;
    case BPF_ALU:
      if (is(BPF_ALU | BPF_NEG)) return true;
      if (!is(BPF_ALU | BPF_OP(code) | BPF_SRC(code)) || BPF_OP(code) > BPF_XOR) return false;
      if (BPF_OP(code) == BPF_NEG || BPF_OP(code) == BPF_MOD) return false;
      if (BPF_OP(code) == BPF_DIV) return by_x || k != 0;
      return by_x || (BPF_OP(code) != BPF_LSH && BPF_OP(code) != BPF_RSH) || k < 32;
    case BPF_JMP:
      if (is(BPF_JMP | BPF_JA)) return k < behind;
      if (!is(BPF_JMP | BPF_OP(code) | BPF_SRC(code)) || BPF_OP(code) == BPF_JA || BPF_OP(code) > BPF_JSET)
        return false;
      return instruction.jt < behind && instruction.jf < behind;
    case BPF_RET:
      return is(BPF_RET | BPF_K) || is(BPF_RET | BPF_A);
    default:
      return is(BPF_MISC | BPF_TAX) || is(BPF_MISC | BPF_TXA);
  }
}

}  // namespace

bool IsFilter(std::span<const sock_filter> filter) {
  if (filter.empty() || filter.size() > BPF_MAXINSNS || BPF_CLASS(filter.back().code) != BPF_RET)
    return false;
  for (size_t i = 0; i < filter.size(); ++i) {
    if (!IsInstruction(filter[i], filter.size() - i - 1)) return false;
  }
  return true;
}

// Terminates, since jumps only go forward.
uint32_t RunFilter(std::span<const sock_filter> filter, const seccomp_data& call) {
  uint32_t a = 0;
  uint32_t x = 0;
  std::array<uint32_t, BPF_MEMWORDS> memory{};
  for (size_t i = 0; i < filter.size(); ++i) {
    const sock_filter& instruction = filter[i];
    const uint16_t code = instruction.code;
    const uint32_t k = instruction.k;
    const bool in_memory = k < memory.size();
    switch (BPF_CLASS(code)) {
      case BPF_LD:
        if (BPF_MODE(code) == BPF_ABS && k <= sizeof call - sizeof a) {
          std::memcpy(&a, reinterpret_cast<const std::byte*>(&call) + k, sizeof a);
        } else if (BPF_MODE(code) == BPF_IMM) {
          a = k;
        } else if (BPF_MODE(code) == BPF_MEM && in_memory) {
          a = memory[k];
        } else if (BPF_MODE(code) == BPF_LEN) {
          a = sizeof call;
        } else {
          return SECCOMP_RET_KILL_PROCESS;
        }
        break;
      case BPF_LDX:
        if (BPF_MODE(code) == BPF_IMM) {
          x = k;
        } else if (BPF_MODE(code) == BPF_MEM && in_memory) {
          x = memory[k];
        } else if (BPF_MODE(code) == BPF_LEN) {
          x = sizeof call;
        } else {
          return SECCOMP_RET_KILL_PROCESS;
        }
        break;
      case BPF_ST:
      case BPF_STX:
        if (!in_memory) return SECCOMP_RET_KILL_PROCESS;
        memory[k] = BPF_CLASS(code) == BPF_ST ? a : x;
        break;
      case BPF_ALU: {
        if (BPF_OP(code) == BPF_DIV && BPF_SRC(code) == BPF_X && x == 0)
          return SECCOMP_RET_KILL_THREAD;  // the kernel ends the filter with 0
        const auto result = Compute(BPF_OP(code), a, BPF_SRC(code) == BPF_X ? x : k);
        if (!result) return SECCOMP_RET_KILL_PROCESS;
        a = *result;
        break;
      }
      case BPF_JMP:
        if (BPF_OP(code) == BPF_JA) {
          i += k;
        } else {
          i += Holds(BPF_OP(code), a, BPF_SRC(code) == BPF_X ? x : k) ? instruction.jt : instruction.jf;
        }
        break;
      case BPF_RET:
        return BPF_RVAL(code) == BPF_A ? a : k;
      default:
        if (BPF_MISCOP(code) == BPF_TAX) {
          x = a;
        } else {
          a = x;
        }
        break;
    }
  }
  return SECCOMP_RET_KILL_PROCESS;
}

}  // namespace sdp::preload
