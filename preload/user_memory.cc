#include "preload/user_memory.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "preload/confinement.h"

namespace sdp::preload {
namespace {

constexpr uintptr_t kPage = 4096;

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};
// What has been asked for in this thread, in whole pages.
constexpr unsigned kRemembered = 4;
thread_local std::array<Range, kRemembered> remembered __attribute__((tls_model("initial-exec")));
thread_local unsigned next __attribute__((tls_model("initial-exec"))) = 0;

Range PagesOf(uintptr_t address, size_t size) {
  return {.begin = address & ~(kPage - 1), .end = (address + size + kPage - 1) & ~(kPage - 1)};
}

// Has the pages made ready to be written to, and writes nothing. 0, or an errno.
int Populate(const Range& range) {
  int result;
  do result = madvise(reinterpret_cast<void*>(range.begin), range.end - range.begin, MADV_POPULATE_WRITE);
  while (result != 0 && (errno == EINTR || errno == EAGAIN));
  return result == 0 ? 0 : errno;
}

bool Ask(const Range& range) {
  const int saved = errno;
  const int error = Populate(range);
  // Not to be written to; or the kernel, one before 5.14, knows of no such question.
  char here = 0;
  const bool read_only = error == EINVAL && Populate(PagesOf(reinterpret_cast<uintptr_t>(&here), 1)) == 0;
  errno = saved;
  return !read_only && error != EFAULT && error != ENOMEM;
}

}  // namespace

bool MayWrite(void* memory, size_t size) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (size == 0) return true;
  if (address > UINTPTR_MAX - kPage || size > UINTPTR_MAX - kPage - address) return false;
  const Range range = PagesOf(address, size);
  for (const Range& known : remembered) {
    if (known.begin <= range.begin && range.end <= known.end) return true;
  }
  if (Confined()) return true;
  if (!Ask(range)) return false;
  remembered[next++ % kRemembered] = range;
  return true;
}

}  // namespace sdp::preload
