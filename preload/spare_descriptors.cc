#include "preload/spare_descriptors.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <array>
#include <atomic>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"

namespace sdp::preload {
namespace {

// A set needs two, and a third while the second gets its number.
constexpr size_t kSpare = 3;
// A process with a lower limit needs its descriptors itself.
constexpr rlim_t kFewest = 64;

enum class State : int { kNone, kChanging, kKept };
constinit std::atomic<State> state{State::kNone};
// Hidden, so that the program does not close them and a select() over all numbers does not count them.
constinit std::array<std::atomic<int>, kSpare> spare{-1, -1, -1};

bool Change(State from) { return state.compare_exchange_strong(from, State::kChanging); }

void CloseSpare() {
  for (std::atomic<int>& fd : spare) HiddenFds::Close(fd.exchange(-1));
}

bool Take() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < kFewest) return false;
  for (std::atomic<int>& fd : spare) {
    const int event = eventfd(0, EFD_CLOEXEC);
    if (event >= 0 && HiddenFds::HideTracked(event, &fd) >= 0) continue;
    CloseSpare();
    return false;
  }
  return true;
}

}  // namespace

constinit std::atomic<uint8_t> SpareDescriptors::has_{0};

void SpareDescriptors::Keep() {
  if (Confined() || !Change(State::kNone)) return;
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  state.store(Take() ? State::kKept : State::kNone);
}

bool SpareDescriptors::GiveUp() {
  if (Confined() || !Change(State::kKept)) return false;
  const NoCancellation no_cancellation;
  CloseSpare();
  state.store(State::kNone);
  return true;
}

}  // namespace sdp::preload
