#include "preload/sendfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/message_io.h"
#include "preload/piece_buffer.h"
#include "preload/real_calls.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// Returns sendfile(2)'s error for an error of pread(2) or lseek(2).
int SendFileError(int error, bool has_offset) {
  if (error == ESPIPE && !has_offset) return EINVAL;
  return error == EISDIR ? EINVAL : error;
}

// Returns the bytes of a regular file after `position`; 0 for anything else.
off64_t BytesAhead(int in, off64_t position) {
  struct stat status;
  return fstat(in, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size - position : 0;
}

// Fewer bytes are cheaper to read and to send together with their header.
constexpr size_t kWorthLending = 16 * 1024;

// Sends from the file's pages, as much as is possible without waiting. Returns the result of
// Socket::SendFromFile.
ssize_t SendPages(Socket& socket, int out, int in, off64_t position, size_t count) {
  if (count < kWorthLending) return 0;
  const int flags = real.fcntl(in, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH) != 0)
    return 0;                             // read returns the right error
  if ((flags & O_DIRECT) != 0) return 0;  // read only in aligned pieces, but messages end anywhere
  struct stat status;
  // Files generated as they are read (sysfs, proc) may hold less than their size says.
  if (fstat(in, &status) != 0 || !S_ISREG(status.st_mode) || status.st_blocks == 0) return 0;
  const off64_t ahead = status.st_size - position;
  if (ahead < static_cast<off64_t>(kWorthLending)) return 0;
  return socket.SendFromFile(out, in, position, std::min(count, static_cast<size_t>(ahead)));
}

// Sends through a buffer, and waits as the socket waits.
ssize_t SendPieces(Socket& socket, int out, int in, off64_t position, size_t count, bool has_offset) {
  const PieceBuffer buffer;
  if (buffer.get() == nullptr) return Fail(ENOMEM);
  size_t sent = 0;
  while (sent < count) {
    const ssize_t read = pread(in, buffer.get(), std::min(count - sent, PieceBuffer::kSize), position);
    if (read < 0 && sent == 0) return Fail(SendFileError(errno, has_offset));
    if (read <= 0) break;
    // Promises more only if more follows: at the end of the file nothing would push the last bytes out.
    const bool more = static_cast<size_t>(read) < count - sent && BytesAhead(in, position + read) > 0;
    const iovec piece = {.iov_base = buffer.get(), .iov_len = static_cast<size_t>(read)};
    const ssize_t taken = socket.Send(out, &piece, 1, more ? MSG_MORE : 0);
    if (taken < 0) return sent > 0 ? static_cast<ssize_t>(sent) : taken;
    sent += static_cast<size_t>(taken);
    position += taken;
    if (taken < read) break;
  }
  return static_cast<ssize_t>(sent);
}

}  // namespace

ssize_t SendFile(Socket& socket, int out, int in, off64_t* offset, size_t count) {
  if (FdTable::Has(in)) return Fail(offset != nullptr ? ESPIPE : EINVAL);
  if (offset != nullptr && !MayWrite(offset, sizeof *offset)) return Fail(EFAULT);
  const off64_t start = offset != nullptr ? *offset : lseek(in, 0, SEEK_CUR);
  if (start < 0) return Fail(offset != nullptr ? EINVAL : SendFileError(errno, false));
  if (static_cast<ssize_t>(count) < 0) return Fail(real.fcntl(in, F_GETFL) < 0 ? EBADF : EINVAL);
  if (socket.Appends(out)) return Fail(real.fcntl(in, F_GETFL) < 0 ? EBADF : EINVAL);
  const int error = errno;
  ssize_t sent = SendPages(socket, out, in, start, std::min(count, kMostBytes));
  if (sent == 0) sent = SendPieces(socket, out, in, start, std::min(count, kMostBytes), offset != nullptr);
  if (sent <= 0) return sent;
  if (offset != nullptr) {
    *offset = start + sent;
  } else {
    lseek(in, start + sent, SEEK_SET);
  }
  errno = error;
  return sent;
}

}  // namespace sdp::preload
