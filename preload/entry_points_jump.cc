// Jumps: the thread does not come back to the calls that it was in (socket/call_mark.h, guard.h), nor to handlers that wait there (critical.h).
// glibc has one function for all of them, and one that checks first.
#include "preload/critical.h"
#include "preload/entry_points.h"

extern "C" {

void SDP_ENTRY(longjmp)(jmp_buf environment, int value) noexcept {
  sdp::preload::Critical::BeforeJump();
  sdp::preload::Jumps::Note();
  sdp::preload::real.longjmp(environment, value);
  __builtin_unreachable();
}

void SDP_ENTRY(__longjmp_chk)(jmp_buf environment, int value) noexcept {
  sdp::preload::Critical::BeforeJump();
  sdp::preload::Jumps::Note();
  sdp::preload::real.__longjmp_chk(environment, value);
  __builtin_unreachable();
}

}  // extern "C"

SDP_ENTRY_ALIAS(siglongjmp, longjmp);
SDP_ENTRY_ALIAS(_longjmp, longjmp);
