// stdio on sockets. The C library's streams read and write by calls of its own, which nobody can put himself
// in front of: a stream on a descriptor of ours is one whose functions we give (fopencookie), with the
// descriptor's number in it all the same.
#include <cstdlib>
#include <memory>

#include "preload/entry_points.h"
#include "preload/startup.h"

namespace sdp::preload {
namespace {

int DescriptorOf(void* cookie) { return static_cast<int>(reinterpret_cast<intptr_t>(cookie)); }

ssize_t ReadStream(void* cookie, char* buffer, size_t length) {
  return SDP_ENTRY(read)(DescriptorOf(cookie), buffer, length);
}

// All, or what could be written before an error: a stream takes less for one.
ssize_t WriteAll(int fd, const char* buffer, size_t length) {
  size_t written = 0;
  while (written < length) {
    const ssize_t n = SDP_ENTRY(write)(fd, buffer + written, length - written);
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(written);
}

ssize_t WriteStream(void* cookie, const char* buffer, size_t length) {
  return WriteAll(DescriptorOf(cookie), buffer, length);
}

int SeekStream(void*, off64_t*, int) { return Fail(ESPIPE); }

int CloseStream(void* cookie) { return SDP_ENTRY(close)(DescriptorOf(cookie)); }

FILE* OpenStream(int fd, const char* mode) {
  constexpr cookie_io_functions_t kFunctions = {
      .read = ReadStream, .write = WriteStream, .seek = SeekStream, .close = CloseStream};
  FILE* const stream = fopencookie(reinterpret_cast<void*>(static_cast<intptr_t>(fd)), mode, kFunctions);
  if (stream != nullptr) stream->_fileno = fd;  // for fileno(); the functions above do not look at it
  return stream;
}

// `print(char**)`: as vasprintf.
template <typename Print>
int PrintTo(int fd, Print print) {
  char* text = nullptr;
  const int length = print(&text);
  if (length < 0) return -1;
  const std::unique_ptr<char, decltype(&free)> owner(text, free);
  return WriteAll(fd, text, static_cast<size_t>(length)) == length ? length : -1;
}

}  // namespace

void ReopenStandardStreams() {
  // The C library writes out what is in the streams after our connections have ended.
  SetExitHook([] {
    if (!FdTable::Has(fileno_unlocked(stdout)) || ftrylockfile(stdout) != 0) return;
    fflush_unlocked(stdout);
    funlockfile(stdout);
  });
  struct {
    FILE** stream;
    const char* mode;
  } const streams[] = {{&stdin, "r"}, {&stdout, "w"}, {&stderr, "w"}};
  for (int fd = 0; fd < 3; ++fd) {
    if (!FdTable::Has(fd)) continue;
    FILE* const opened = OpenStream(fd, streams[fd].mode);
    if (opened == nullptr) continue;
    if (fd == STDERR_FILENO) setvbuf(opened, nullptr, _IONBF, 0);
    *streams[fd].stream = opened;
  }
}

}  // namespace sdp::preload

using sdp::preload::FdTable;
using sdp::preload::real;

// glibc's, behind a fortified program's vasprintf.
extern "C" int __vasprintf_chk(char** text, int flag, const char* format, va_list arguments) noexcept;

extern "C" {

FILE* SDP_ENTRY(fdopen)(int fd, const char* mode) noexcept {
  return FdTable::Has(fd) ? sdp::preload::OpenStream(fd, mode) : real.fdopen(fd, mode);
}

int SDP_ENTRY(vdprintf)(int fd, const char* format, va_list arguments) {
  if (!FdTable::Has(fd)) return real.vdprintf(fd, format, arguments);
  return sdp::preload::PrintTo(fd, [&](char** text) { return vasprintf(text, format, arguments); });
}

int SDP_ENTRY(dprintf)(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = SDP_ENTRY(vdprintf)(fd, format, arguments);
  va_end(arguments);
  return result;
}

int SDP_ENTRY(__vdprintf_chk)(int fd, int flag, const char* format, va_list arguments) {
  if (!FdTable::Has(fd)) return real.__vdprintf_chk(fd, flag, format, arguments);
  return sdp::preload::PrintTo(fd,
                               [&](char** text) { return __vasprintf_chk(text, flag, format, arguments); });
}

int SDP_ENTRY(__dprintf_chk)(int fd, int flag, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = SDP_ENTRY(__vdprintf_chk)(fd, flag, format, arguments);
  va_end(arguments);
  return result;
}

}  // extern "C"
