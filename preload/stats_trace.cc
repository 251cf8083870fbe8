#include "preload/stats_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string_view>

namespace sdp::stats {

TraceRing::~TraceRing() {
  Remove();
  if (open()) ::munmap(memory_.load(), kTraceFileSize);
}

int TraceRing::Open(const char* stats_path) {
  constexpr std::string_view kOldEnd = ".stats", kNewEnd = ".trace";
  static_assert(kOldEnd.size() == kNewEnd.size());
  const size_t length = strlen(stats_path);
  if (length < kOldEnd.size() || length >= kLongestPath) return ENAMETOOLONG;
  memcpy(path_, stats_path, length + 1);
  memcpy(path_ + length - kNewEnd.size(), kNewEnd.data(), kNewEnd.size());
  ::unlink(path_);  // left by this process from before its exec
  const int fd = ::open(path_, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    const int error = errno;
    path_[0] = '\0';
    return error;
  }
  void* memory = MAP_FAILED;
  if (WriteZeros(calls_, fd, kTraceFileSize, 0)) {
    memory = calls_.mmap(nullptr, kTraceFileSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  calls_.close(fd);
  if (memory == MAP_FAILED) {
    ::unlink(path_);
    path_[0] = '\0';
    return error;
  }
  auto* header = static_cast<TraceHeader*>(memory);
  header->version = kTraceVersion;
  header->pid = static_cast<uint32_t>(getpid());
  header->magic.store(kTraceMagic, std::memory_order_release);
  memory_.store(static_cast<std::byte*>(memory), std::memory_order_release);
  return 0;
}

void TraceRing::Append(const MessageNote& note, uint32_t connection) {
  std::byte* const memory = memory_.load(std::memory_order_acquire);
  // Two writers meet in one entry only if one sleeps while the others write a whole round. The result is a
  // message that makes no sense, which readers expect.
  const uint64_t number =
      reinterpret_cast<TraceHeader*>(memory)->next.fetch_add(1, std::memory_order_acq_rel);
  auto* const entries = reinterpret_cast<MessageEntry*>(memory + kTraceHeaderSize);
  StoreNote(&entries[number % kTraceEntries], TraceTag(number), connection, note);
}

void TraceRing::ForgetAfterFork() {
  if (std::byte* memory = memory_.exchange(nullptr)) ::munmap(memory, kTraceFileSize);
  path_[0] = '\0';
}

void TraceRing::Remove() {
  if (path_[0] == '\0') return;
  ::unlink(path_);
  path_[0] = '\0';
}

}  // namespace sdp::stats
