// stdio on sockets. The C library's streams read and write by calls of their own that cannot be interposed.
// So a stream on a managed descriptor uses functions of ours (fopencookie), and still has the descriptor's
// number in it.
#include <fcntl.h>
#include <stdio_ext.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "preload/entry_points.h"
#include "preload/startup.h"

// Functions of the C library over all its streams; no header declares them any more.
extern "C" {
void _IO_list_lock();
void _IO_list_unlock();
FILE* _IO_iter_begin();
FILE* _IO_iter_end();
FILE* _IO_iter_next(FILE* stream);
}

namespace sdp::preload {
namespace {

// A cookie is the descriptor's number, plus this bit for stdin, stdout and stderr.
constexpr intptr_t kStandard = intptr_t{1} << 32;
int DescriptorOf(void* cookie) { return static_cast<int>(reinterpret_cast<intptr_t>(cookie)); }
bool IsStandard(void* cookie) { return (reinterpret_cast<intptr_t>(cookie) & kStandard) != 0; }

// While the descriptor is a managed socket, `name` points to a stream of ours. The C library's stream keeps
// what was in its buffer.
struct Standard {
  FILE** name;
  const char* mode;
  FILE* original;
  FILE* ours;
};
constinit Standard standards[] = {
    {&stdin, "r", nullptr, nullptr}, {&stdout, "w", nullptr, nullptr}, {&stderr, "w", nullptr, nullptr}};

// Takes what the C library's stream had read ahead.
size_t TakeReadAhead(FILE* library, char* buffer, size_t length) {
  const size_t size = std::min(static_cast<size_t>(library->_IO_read_end - library->_IO_read_ptr), length);
  if (size == 0) return 0;
  memcpy(buffer, library->_IO_read_ptr, size);
  library->_IO_read_ptr += size;
  return size;
}

ssize_t ReadStream(void* cookie, char* buffer, size_t length) {
  const int fd = DescriptorOf(cookie);
  if (IsStandard(cookie) && standards[fd].original != nullptr) {
    if (const size_t size = TakeReadAhead(standards[fd].original, buffer, length))
      return static_cast<ssize_t>(size);
  }
  return SDP_ENTRY(read)(fd, buffer, length);
}

// Writes all, or what can be written before an error: for a stream a smaller count is an error.
ssize_t WriteAll(int fd, const char* buffer, size_t length) {
  size_t written = 0;
  while (written < length) {
    const ssize_t n = SDP_ENTRY(write)(fd, buffer + written, length - written);
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(written);
}

void WriteUnflushed(FILE* library, int fd) {
  if (library == nullptr || __fpending(library) == 0) return;
  WriteAll(fd, library->_IO_write_base, __fpending(library));
  __fpurge(library);
}

ssize_t WriteStream(void* cookie, const char* buffer, size_t length) {
  const int fd = DescriptorOf(cookie);
  // Text printed earlier and not flushed leaves ahead of the text printed next.
  if (IsStandard(cookie)) WriteUnflushed(standards[fd].original, fd);
  return WriteAll(fd, buffer, length);
}

// freopen may have put a file there.
int SeekStream(void* cookie, off64_t* offset, int whence) {
  const off64_t place = lseek64(DescriptorOf(cookie), *offset, whence);
  if (place < 0) return -1;
  *offset = place;
  return 0;
}

int CloseStream(void* cookie) {
  const int fd = DescriptorOf(cookie);
  if (IsStandard(cookie)) {
    Standard& standard = standards[fd];
    WriteUnflushed(standard.original, fd);
    if (*standard.name == standard.ours) *standard.name = standard.original;
    standard.ours = nullptr;
  }
  return SDP_ENTRY(close)(fd);
}

void FlushStreams();

FILE* OpenStream(int fd, const char* mode, intptr_t standard = 0) {
  constexpr cookie_io_functions_t kFunctions = {
      .read = ReadStream, .write = WriteStream, .seek = SeekStream, .close = CloseStream};
  FILE* const stream = fopencookie(reinterpret_cast<void*>(fd | standard), mode, kFunctions);
  if (stream == nullptr) return nullptr;
  stream->_fileno = fd;  // for fileno(); the functions above do not use it
  SetExitHook(FlushStreams);
  return stream;
}

// --- freopen. The C library replaces the descriptor's file by calls of its own, and takes streams like ours
// for ones that can be wide.

constexpr int kMode = 0x4 | 0x8 | 0x1000;  // glibc's _IO_NO_READS, _IO_NO_WRITES and _IO_IS_APPENDING

// Returns whether OpenStream() made the stream: no other stream is without wide data and has a descriptor.
bool IsOurs(const FILE* stream) {
  return reinterpret_cast<intptr_t>(stream->_wide_data) == -1 && stream->_fileno >= 0;
}

// Keeps the stream, since its functions go by the number.
FILE* ReopenOurs(const char* path, const char* mode, FILE* stream) {
  const int fd = stream->_fileno;
  fflush(stream);
  __fpurge(stream);
  // Without a path the same file is opened in another mode, which is impossible for a socket.
  FILE* const opened = fopen(path != nullptr ? path : ("/proc/self/fd/" + std::to_string(fd)).c_str(), mode);
  if (opened == nullptr) {
    const KeepErrno keep;
    SDP_ENTRY(close)(fd);
    return nullptr;
  }
  const bool closes = (real.fcntl(opened->_fileno, F_GETFD) & FD_CLOEXEC) != 0;
  const bool there = opened->_fileno == fd;  // the program had closed the number
  const bool placed = there || SDP_ENTRY(dup3)(opened->_fileno, fd, closes ? O_CLOEXEC : 0) == fd;
  if (placed) {
    clearerr(stream);
    stream->_flags = (stream->_flags & ~kMode) | (opened->_flags & kMode);
  }
  if (there) opened->_fileno = -1;  // so that fclose closes no descriptor
  fclose(opened);
  return placed ? stream : nullptr;
}

FILE* ReopenStream(const char* path, const char* mode, FILE* stream) {
  if (stream == nullptr) return real.freopen(path, mode, stream);
  const NoCancellation no_cancellation;
  flockfile(stream);
  struct Unlock {
    FILE* stream;
    ~Unlock() { funlockfile(stream); }
  } const unlock{stream};
  for (const Standard& standard : standards) {
    if (stream != standard.ours) continue;
    // The C library's own stream returns with the file.
    fflush(stream);
    __fpurge(stream);
    stream = standard.original;
    break;
  }
  if (IsOurs(stream)) return ReopenOurs(path, mode, stream);
  const int fd = fileno_unlocked(stream);
  if (fd < 0 || !FdTable::Has(fd)) return real.freopen(path, mode, stream);
  WriteUnflushed(stream, fd);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (path == nullptr || null < 0 || SDP_ENTRY(dup2)(null, fd) != fd) SDP_ENTRY(close)(fd);
  if (null >= 0) real.close(null);
  FILE* const result = real.freopen(path, mode, stream);
  if (result == nullptr && path == nullptr) errno = ENXIO;  // the error of opening a socket's name
  return result;
}

// --- stdin, stdout and stderr.

constexpr int kUnbuffered = 0x2;          // glibc's _IO_UNBUFFERED
constexpr int kEndOrError = 0x10 | 0x20;  // glibc's _IO_EOF_SEEN and _IO_ERR_SEEN

void TakeState(const FILE* from, FILE* to) {
  to->_flags = (to->_flags & ~kEndOrError) | (from->_flags & kEndOrError);
  const bool unbuffered = (from->_flags & kUnbuffered) != 0;
  if (unbuffered == ((to->_flags & kUnbuffered) != 0) &&
      (__flbf(const_cast<FILE*>(from)) != 0) == (__flbf(to) != 0))
    return;
  setvbuf(to, nullptr, unbuffered ? _IONBF : __flbf(const_cast<FILE*>(from)) != 0 ? _IOLBF : _IOFBF, 0);
}

// Flushes our streams, because the C library would do so only after our connections have ended. Like the C
// library, it skips a stream that another thread is using.
void FlushStreams() {
  _IO_list_lock();
  for (FILE* stream = _IO_iter_begin(); stream != _IO_iter_end(); stream = _IO_iter_next(stream)) {
    if (!IsOurs(stream) || !FdTable::Has(stream->_fileno) || ftrylockfile(stream) != 0) continue;
    if (stream == standards[STDOUT_FILENO].ours)
      WriteUnflushed(standards[STDOUT_FILENO].original, STDOUT_FILENO);
    if (__fpending(stream) != 0) fflush_unlocked(stream);
    funlockfile(stream);
  }
  _IO_list_unlock();
}

// `print(char**)` works as vasprintf does.
template <typename Print>
int PrintTo(int fd, Print print) {
  char* text = nullptr;
  const int length = print(&text);
  if (length < 0) return -1;
  const std::unique_ptr<char, decltype(&free)> owner(text, free);
  return WriteAll(fd, text, static_cast<size_t>(length)) == length ? length : -1;
}

// Makes the streams before they are needed: a handler that has interrupted malloc may put a socket at a
// standard descriptor.
void MakeStandardStreams() {
  static constinit std::atomic<bool> made{false};
  if (made.load(std::memory_order_relaxed) || made.exchange(true)) return;
  for (int fd = 0; fd <= STDERR_FILENO; ++fd)
    standards[fd].ours = OpenStream(fd, standards[fd].mode, kStandard);
}

}  // namespace

void FollowStandardStream(int fd) {
  if (fd < 0) return;
  if (FdTable::Has(fd)) MakeStandardStreams();
  if (fd > STDERR_FILENO) return;
  const KeepErrno keep;
  Standard& standard = standards[fd];
  FILE* const now = *standard.name;
  if (FdTable::Has(fd) && now != nullptr && now != standard.ours && fileno_unlocked(now) == fd) {
    if (standard.ours == nullptr)
      standard.ours = OpenStream(fd, standard.mode, kStandard);  // the program has closed our stream
    if (standard.ours != nullptr) {
      standard.original = now;
      TakeState(now, standard.ours);
      *standard.name = standard.ours;
    }
  } else if (!FdTable::Has(fd) && now != nullptr && now == standard.ours && ftrylockfile(now) == 0) {
    // What our stream has read ahead comes first, as on TCP. Until it is read, `name` stays, and our stream
    // reads what is at the number now. The same holds if another thread uses the stream.
    if (now->_IO_read_ptr >= now->_IO_read_end) {
      *standard.name = standard.original;
      TakeState(now, standard.original);
      if (const size_t pending = __fpending(now)) {
        fwrite_unlocked(now->_IO_write_base, 1, pending, standard.original);
        __fpurge(now);
      }
    }
    funlockfile(now);
  }
}

void ReopenStandardStreams() {
  if (HasHeirlooms(Heirloom::kAll)) MakeStandardStreams();
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) FollowStandardStream(fd);
}

// glibc's function behind a fortified program's vasprintf.
extern "C" int __vasprintf_chk(char** text, int flag, const char* format, va_list arguments) noexcept;

FILE* SDP_ENTRY(fdopen)(int fd, const char* mode) noexcept {
  if (!FdTable::Has(fd)) return real.fdopen(fd, mode);
  FILE* const stream = OpenStream(fd, mode);
  if (stream != nullptr && mode[0] == 'a')
    SDP_ENTRY(fcntl)(fd, F_SETFL, SDP_ENTRY(fcntl)(fd, F_GETFL) | O_APPEND);
  return stream;
}

FILE* SDP_ENTRY(freopen)(const char* path, const char* mode, FILE* stream) {
  return ReopenStream(path, mode, stream);
}

SDP_ENTRY_ALIAS(freopen64, freopen);

int SDP_ENTRY(vdprintf)(int fd, const char* format, va_list arguments) {
  if (!FdTable::Has(fd)) return real.vdprintf(fd, format, arguments);
  return PrintTo(fd, [&](char** text) { return vasprintf(text, format, arguments); });
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
  return PrintTo(fd, [&](char** text) { return __vasprintf_chk(text, flag, format, arguments); });
}

int SDP_ENTRY(__dprintf_chk)(int fd, int flag, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int result = SDP_ENTRY(__vdprintf_chk)(fd, flag, format, arguments);
  va_end(arguments);
  return result;
}

}  // namespace sdp::preload
