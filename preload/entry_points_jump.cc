// Jumps. The thread does not return to the calls that it was in (socket/call_mark.h, guard.h), nor to
// handlers that wait there (critical.h). glibc has one function for all jumps, and one that checks first.
#include <csetjmp>
#include <csignal>
#include <cstdint>

#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/entry_points.h"

namespace sdp::preload {
namespace {

#ifdef __x86_64__

// glibc keeps the stack pointer rotated and combined with a secret of the process.
uintptr_t StackPointerIn(const __jmp_buf_tag& environment) {
  constexpr int kStackPointer = 6;
  auto value = static_cast<uintptr_t>(environment.__jmpbuf[kStackPointer]);
  asm("ror $17, %0\n\txor %%fs:0x30, %0" : "+r"(value));
  return value;
}

// Returns the target's stack pointer, or 0 if this C library stores it in another way.
[[gnu::noinline]] uintptr_t JumpsTo(const __jmp_buf_tag& environment) {
  jmp_buf here;
  if (setjmp(here) != 0) return 0;
  constexpr uintptr_t kFrame = 4096;
  const uintptr_t distance =
      StackPointerIn(here[0]) - reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) + kFrame;
  return distance <= 2 * kFrame ? StackPointerIn(environment) : 0;
}

#else

uintptr_t JumpsTo(const __jmp_buf_tag&) { return 0; }

#endif

// Returns whether the jump leaves a call in which the thread sleeps. Stacks grow downwards, so the frames
// that the jump leaves are below its target. A handler may have a stack of its own.
bool LeavesSleep(const __jmp_buf_tag& environment) {
  const uintptr_t mark = Jumps::innermost();
  if (mark == 0 || Confined()) return true;
  const uintptr_t target = JumpsTo(environment);
  if (target < reinterpret_cast<uintptr_t>(__builtin_frame_address(0)))
    return true;  // the target is on another stack
  stack_t other{};
  const bool apart = sigaltstack(nullptr, &other) == 0 && (other.ss_flags & SS_ONSTACK) != 0;
  const auto lies_there = [&](uintptr_t place) {
    return place - reinterpret_cast<uintptr_t>(other.ss_sp) < other.ss_size;
  };
  if (apart && !lies_there(target)) return true;
  return target >= mark && !(apart && !lies_there(mark));
}

void BeforeJump(const __jmp_buf_tag& environment) {
  const bool leaves = LeavesSleep(environment);
  Critical::BeforeJump();
  Jumps::Note(leaves);
}

}  // namespace

void SDP_ENTRY(longjmp)(jmp_buf environment, int value) noexcept {
  BeforeJump(*environment);
  real.longjmp(environment, value);
  __builtin_unreachable();
}

void SDP_ENTRY(__longjmp_chk)(jmp_buf environment, int value) noexcept {
  BeforeJump(*environment);
  real.__longjmp_chk(environment, value);
  __builtin_unreachable();
}

SDP_ENTRY_ALIAS(siglongjmp, longjmp);
SDP_ENTRY_ALIAS(_longjmp, longjmp);

}  // namespace sdp::preload
