#include "preload/spare_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "preload/allowed_calls.h"
#include "preload/guard.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// A set has two, and a third while the second gets its number.
constexpr size_t kSpare = 3;
// Who may have fewer needs them for itself.
constexpr rlim_t kFewest = 64;
constexpr int kHighest = 65536;

enum class State : int { kNone, kChanging, kKept };
constinit std::atomic<State> state{State::kNone};
// All the same end of a pipe. The program, which knows nothing of them, may have closed their numbers and
// used them again.
constinit std::array<int, kSpare> spare{};
constinit dev_t device = 0;
constinit ino_t inode = 0;

bool Change(State from) { return state.compare_exchange_strong(from, State::kChanging); }

bool IsSpare(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

void CloseSpare() {
  for (const int fd : spare) {
    if (IsSpare(fd)) real.close(fd);
  }
}

bool Take() {
  rlimit limit{};
  int ends[2];
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < kFewest || pipe2(ends, O_CLOEXEC) != 0)
    return false;
  struct stat status {};
  fstat(ends[0], &status);
  device = status.st_dev;
  inode = status.st_ino;
  const int high = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kHighest)) / 4 * 3;
  for (int& fd : spare) fd = real.fcntl(ends[0], F_DUPFD_CLOEXEC, high);
  for (const int end : ends) real.close(end);
  if (std::all_of(spare.begin(), spare.end(), [](int fd) { return fd >= 0; })) return true;
  CloseSpare();
  return false;
}

}  // namespace

constinit std::atomic<uint8_t> SpareDescriptors::has_{0};

void SpareDescriptors::Keep() {
  if (Confined() || !Change(State::kNone)) return;
  const NoCancellation no_cancellation;
  const int error = errno;
  state.store(Take() ? State::kKept : State::kNone);
  errno = error;
}

bool SpareDescriptors::GiveUp() {
  if (Confined() || !Change(State::kKept)) return false;
  const NoCancellation no_cancellation;
  CloseSpare();
  state.store(State::kNone);
  return true;
}

}  // namespace sdp::preload
