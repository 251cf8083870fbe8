#include "preload/hidden_fds.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "preload/allowed_calls.h"
#include "preload/descriptor_array.h"
#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// A word is 0, kUntracked, the address of the owner's variable, or (number << 2 | kMovedTag). The last means
// that the descriptor from here now has that number. It serves an owner that read its variable just before
// the move and calls Close with the old number. The old number is the application's by then, and counts as
// not hidden.
constexpr uint64_t kTagBits = 3;
constexpr uint64_t kUntracked = 1;
constexpr uint64_t kMovedTag = 2;

constinit DescriptorArray<uint64_t> hidden;
constinit std::atomic<int> end_of_numbers{0};

bool IsHidden(uint64_t word) { return word != 0 && (word & kTagBits) != kMovedTag; }

// High limits do not call for high numbers: the kernel's descriptor table grows with the highest number in
// use. The kernel gives the lowest free number from a given one on. So one that is given because the high
// numbers are in use is not far below them: the lower half is the program's.
int DuplicateHigh(int fd) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  const int numbers = static_cast<int>(std::min(limit.rlim_cur, HiddenFds::kHighestLimit));
  int high = -1;
  for (int sixteenths = 12; sixteenths >= 8 && high < 0; --sixteenths)
    high = real.fcntl(fd, F_DUPFD_CLOEXEC, numbers * sixteenths / 16);
  return high;
}

bool Enter(int fd, uint64_t word) {
  std::atomic<uint64_t>* place = hidden.FindOrAdd(fd);
  if (place == nullptr) return false;
  int seen = end_of_numbers.load(std::memory_order_relaxed);
  while (seen <= fd && !end_of_numbers.compare_exchange_weak(seen, fd + 1)) {
  }
  place->store(word);
  return true;
}

void CloseKeepingErrno(int fd) {
  const KeepErrno keep;
  real.close(fd);
}

// Enters a number that may be -1 and returns it; without memory, closes it and fails.
int EnterOrClose(int number, uint64_t word) {
  if (number < 0 || Enter(number, word)) return number;
  real.close(number);
  return Fail(ENOMEM);
}

}  // namespace

int HiddenFds::Duplicate(int fd) { return EnterOrClose(DuplicateHigh(fd), kUntracked); }

int HiddenFds::Hide(int fd) {
  const int number = Duplicate(fd);
  CloseKeepingErrno(fd);
  return number;
}

int HiddenFds::HideTracked(int fd, std::atomic<int>* slot) {
  const int number = DuplicateHigh(fd);
  CloseKeepingErrno(fd);
  slot->store(number);  // before MakeRoom may find the number, and move it
  if (EnterOrClose(number, reinterpret_cast<uint64_t>(slot)) < 0) slot->store(-1);
  return slot->load();
}

void HiddenFds::Close(int hidden_fd) {
  std::atomic<uint64_t>* place = hidden.Find(hidden_fd);
  const uint64_t word = place != nullptr ? place->exchange(0) : 0;
  if (word == 0) return;
  if (IsHidden(word)) {
    const NoCancellation no_cancellation;
    real.close(hidden_fd);
  } else {
    Close(static_cast<int>(word >> 2));
  }
}

void HiddenFds::Reveal(int hidden_fd) {
  if (std::atomic<uint64_t>* place = hidden.Find(hidden_fd)) place->store(0);
}

bool HiddenFds::Contains(int fd) {
  std::atomic<uint64_t>* place = hidden.Find(fd);
  return place != nullptr && IsHidden(place->load(std::memory_order_relaxed));
}

int HiddenFds::Next(int first, int last) {
  const int end = end_of_numbers.load(std::memory_order_acquire);
  for (int fd = first; fd < end && fd <= last; ++fd) {
    if (Contains(fd)) return fd;
  }
  return -1;
}

void HiddenFds::MakeRoom(int fd) {
  std::atomic<uint64_t>* place = hidden.Find(fd);
  uint64_t word = place != nullptr ? place->load() : 0;
  if (!IsHidden(word) || word == kUntracked) return;
  auto* slot = reinterpret_cast<std::atomic<int>*>(word);
  const int number = DuplicateHigh(fd);
  if (number < 0) return;
  if (!Enter(number, word)) {
    real.close(number);
    return;
  }
  // From here on a Close(fd) finds the new number.
  if (!place->compare_exchange_strong(word, static_cast<uint64_t>(number) << 2 | kMovedTag)) {
    Close(number);  // the owner closed the descriptor while this thread copied it
    return;
  }
  int old_number = fd;
  slot->compare_exchange_strong(old_number, number);
}

// Uses no heap memory: signal handlers call select.
int HiddenFds::HighestOther(int end) {
  if (Confined() || end_of_numbers.load(std::memory_order_relaxed) <= FD_SETSIZE) return end - 1;
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  // A program that counts to its highest number has that one open. Then the list of all numbers, perhaps
  // thousands, is not needed.
  if (real.fcntl(end - 1, F_GETFD) >= 0 && !Contains(end - 1)) return end - 1;
  const int directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return end - 1;
  int highest = -1;
  alignas(dirent64) std::array<char, 8192> entries;
  for (ssize_t size; (size = getdents64(directory, entries.data(), entries.size())) > 0;) {
    for (ssize_t at = 0; at < size;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      const int fd = atoi(entry->d_name);  // 0 for . and ..
      if (fd < end && fd != directory && !Contains(fd)) highest = std::max(highest, fd);
      at += entry->d_reclen;
    }
  }
  real.close(directory);
  return highest;
}

}  // namespace sdp::preload
