// Whose sleep was left by a jump: by the place of the frames alone where nothing has been written over the
// mark.
#include "preload/socket/call_mark.h"

#include <setjmp.h>
#include <signal.h>

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

sigjmp_buf out;
Sleeper sleeper;
bool seen_by_handler;

bool JumpedOverFromHere() { return sleeper.JumpedOver(__builtin_frame_address(0)); }

// As a call of ours does it: the mark lies deeper than the call's own frame.
[[gnu::noinline]] void Sleep(void (*meanwhile)()) {
  const CallMark mark;
  sleeper.Set(&mark);
  meanwhile();
  sleeper.Clear();
}

// Asks before it sleeps, and writes nothing over what lies below its frame.
[[gnu::noinline]] bool Call(void (*meanwhile)()) {
  const bool jumped = sleeper.JumpedOver(__builtin_frame_address(0));
  if (meanwhile != nullptr) Sleep(meanwhile);
  return jumped;
}

// Always from the same depth; a jump out of it ends here.
[[gnu::noinline]] bool CallFromHere(void (*meanwhile)()) {
  if (sigsetjmp(out, 1) != 0) return false;
  return Call(meanwhile);
}

TEST_CASE("a call from the same place knows that the one before was jumped out of", "[jump]") {
  sleeper.Clear();
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(CallFromHere([] { siglongjmp(out, 1); }));
    CHECK(CallFromHere(nullptr));
    sleeper.Clear();
    CHECK_FALSE(CallFromHere([] {}));
  }
  CHECK_FALSE(CallFromHere(nullptr));
}

// Below the mark, over which nothing is written.
[[gnu::noinline]] bool CallFromBelow() {
  volatile char untouched[10'000];
  asm volatile("" : : "r"(untouched) : "memory");
  const bool jumped = Call(nullptr);
  asm volatile("" : : "r"(untouched) : "memory");
  return jumped;
}

TEST_CASE("a call from a deeper place knows of a jump that the library has heard of", "[jump]") {
  sleeper.Clear();
  CHECK_FALSE(CallFromHere([] {
    Jumps::Note(true);
    siglongjmp(out, 1);
  }));
  CHECK(CallFromBelow());
  sleeper.Clear();
}

TEST_CASE("a handler's call is none that comes behind a jump", "[jump]") {
  sleeper.Clear();
  const bool other_stack = GENERATE(false, true);
  static char memory[1 << 16];
  const stack_t stack{.ss_sp = memory, .ss_flags = other_stack ? 0 : SS_DISABLE, .ss_size = sizeof memory};
  REQUIRE(sigaltstack(&stack, nullptr) == 0);
  struct sigaction action {};
  action.sa_handler = [](int) { seen_by_handler = JumpedOverFromHere(); };
  action.sa_flags = SA_ONSTACK;
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  seen_by_handler = true;
  CHECK_FALSE(Call([] { raise(SIGUSR1); }));
  CHECK_FALSE(seen_by_handler);
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  REQUIRE(sigaltstack(&none, nullptr) == 0);
}

}  // namespace
}  // namespace sdp::preload
