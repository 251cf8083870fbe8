#include "preload/stats_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "preload/file_size_limit.h"

namespace sdp::stats {

const SystemCalls& PlainSystemCalls() {
  static constexpr SystemCalls kCalls = {
      ::close,
      ::read,
      ::pwrite,
      ::mmap,
  };
  return kCalls;
}

namespace {

bool Write(const SystemCalls& calls, int fd, const std::byte* data, size_t size, size_t offset) {
  while (size > 0) {
    ssize_t written = calls.pwrite(fd, data, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    offset += static_cast<size_t>(written);
    size -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

bool WriteAll(const SystemCalls& calls, int fd, const std::byte* data, size_t size, size_t offset) {
  return MayGrowTo(static_cast<off_t>(offset + size)) && Write(calls, fd, data, size, offset);
}

bool WriteZeros(const SystemCalls& calls, int fd, size_t size, size_t offset) {
  static constexpr std::byte kZeros[4096] = {};
  if (!MayGrowTo(static_cast<off_t>(offset + size))) return false;
  for (size_t done = 0; done < size; done += sizeof kZeros) {
    if (!Write(calls, fd, kZeros, std::min(sizeof kZeros, size - done), offset + done)) return false;
  }
  return true;
}

}  // namespace sdp::stats
