// The system calls that write stats files, of those that a preloaded process has interposed, and that tests
// replace.
#ifndef SDP_PRELOAD_STATS_CALLS_H_
#define SDP_PRELOAD_STATS_CALLS_H_

#include <sys/types.h>

#include <cstddef>

namespace sdp::stats {

// The real calls, with libc's signatures. Every pointer must be set.
struct SystemCalls {
  int (*close)(int fd);
  ssize_t (*read)(int fd, void* buffer, size_t size);
  ssize_t (*pwrite)(int fd, const void* buffer, size_t size, off_t offset);
  void* (*mmap)(void* address, size_t size, int protection, int flags, int fd, off_t offset);
};
// Returns libc's own functions, for programs that are not preloaded.
const SystemCalls& PlainSystemCalls();

// Writes all `size` bytes, with several calls if necessary. Returns false with errno.
bool WriteAll(const SystemCalls& calls, int fd, const std::byte* data, size_t size, size_t offset);
// Writes zeros in that way. A hole in a mapped file would kill the process with SIGBUS on a full disk.
bool WriteZeros(const SystemCalls& calls, int fd, size_t size, size_t offset);

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_CALLS_H_
