#include "preload/splice.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "preload/entry_points.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/piece_buffer.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

constexpr unsigned kKnownFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;

// Returns whether `fd` is a pipe that may be used in this direction.
bool IsPipe(int fd, int access) {
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode)) return false;
  const int mode = real.fcntl(fd, F_GETFL) & O_ACCMODE;
  return mode == access || mode == O_RDWR;
}

bool MayWait(int pipe, unsigned flags) {
  return (flags & SPLICE_F_NONBLOCK) == 0 && (real.fcntl(pipe, F_GETFL) & O_NONBLOCK) == 0;
}

int Sleep(pollfd* poll) {
  const SleepMayBeCancelled here;
  return real.poll(poll, 1, -1);
}

// Returns the number of bytes that a write to the pipe is sure to take at once; waits for room if `wait`.
// Returns 0 with errno EAGAIN, EINTR or EPIPE (after SIGPIPE).
size_t RoomIn(int pipe, bool wait) {
  pollfd poll{.fd = pipe, .events = POLLOUT, .revents = 0};
  const int ready = wait ? Sleep(&poll) : real.poll(&poll, 1, 0);
  if (ready < 0) return 0;
  if ((poll.revents & POLLERR) != 0) {
    raise(SIGPIPE);
    errno = EPIPE;
    return 0;
  }
  if (ready == 0) {
    errno = EAGAIN;
    return 0;
  }
  int queued = 1;
  const int capacity = real.fcntl(pipe, F_GETPIPE_SZ);
  if (capacity > 0 && real.ioctl(pipe, FIONREAD, &queued) == 0 && queued == 0)
    return static_cast<size_t>(capacity);
  return PIPE_BUF;  // at least one of its pages is free
}

// Writes all bytes. If another process fills the pipe meanwhile, waits for room.
bool WriteAll(int pipe, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = real.write(pipe, data, size);
    if (written > 0) {
      data += written;
      size -= static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      pollfd poll{.fd = pipe, .events = POLLOUT, .revents = 0};
      real.poll(&poll, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

ssize_t FromSocket(Socket& socket, int in, int pipe, size_t count, unsigned flags) {
  const PieceBuffer buffer;
  if (buffer.get() == nullptr) return Fail(ENOMEM);
  const bool wait = MayWait(pipe, flags);
  size_t moved = 0;
  while (moved < count) {
    // Waits only for the first bytes.
    const size_t room = RoomIn(pipe, wait && moved == 0);
    if (room == 0) break;
    const iovec piece = {.iov_base = buffer.get(),
                         .iov_len = std::min({room, count - moved, PieceBuffer::kSize})};
    const ssize_t received = socket.Receive(in, &piece, 1, moved == 0 ? 0 : MSG_DONTWAIT, nullptr);
    if (received == kPassThrough) return moved > 0 ? static_cast<ssize_t>(moved) : kPassThrough;
    if (received == 0) return static_cast<ssize_t>(moved);
    if (received < 0) break;
    if (!WriteAll(pipe, buffer.get(), static_cast<size_t>(received))) break;
    moved += static_cast<size_t>(received);
  }
  return moved > 0 ? static_cast<ssize_t>(moved) : -1;
}

// Copies what is in a pipe without taking it out.
class PipeGlance {
 public:
  PipeGlance() {
    if (pipe2(ends_, O_CLOEXEC) != 0) ends_[0] = ends_[1] = -1;
  }
  ~PipeGlance() {
    for (const int end : ends_) {
      if (end >= 0) real.close(end);
    }
  }
  PipeGlance(const PipeGlance&) = delete;
  PipeGlance& operator=(const PipeGlance&) = delete;

  [[nodiscard]] bool ok() const { return ends_[0] >= 0; }
  // Works as read(2), for at most `size` bytes.
  ssize_t Look(int pipe, char* room, size_t size, bool wait) {
    const ssize_t copied = Tee(pipe, size, wait);
    return copied <= 0 ? copied : real.read(ends_[0], room, static_cast<size_t>(copied));
  }

 private:
  ssize_t Tee(int pipe, size_t size, bool wait) {
    if (!wait) return tee(pipe, ends_[1], size, SPLICE_F_NONBLOCK);
    const SleepMayBeCancelled here;
    return tee(pipe, ends_[1], size, 0);
  }

  int ends_[2];
};

// Takes bytes out of the pipe that were copied and sent.
void Consume(int pipe, char* scratch, size_t size) {
  while (size > 0) {
    const ssize_t taken = real.read(pipe, scratch, size);
    if (taken > 0) {
      size -= static_cast<size_t>(taken);
    } else if (taken == 0 || errno != EINTR) {
      return;
    }
  }
}

ssize_t ToSocket(Socket& socket, int pipe, int out, size_t count, unsigned flags) {
  const PieceBuffer buffer;
  if (buffer.get() == nullptr) return Fail(ENOMEM);
  PipeGlance glance;
  if (!glance.ok()) return -1;
  const bool wait = MayWait(pipe, flags);
  const int send_flags = (flags & SPLICE_F_MORE) != 0 ? MSG_MORE : 0;
  size_t moved = 0;
  while (moved < count) {
    const ssize_t there =
        glance.Look(pipe, buffer.get(), std::min(count - moved, PieceBuffer::kSize), wait && moved == 0);
    if (there == 0) return static_cast<ssize_t>(moved);
    if (there < 0) break;
    const iovec piece = {.iov_base = buffer.get(), .iov_len = static_cast<size_t>(there)};
    const ssize_t sent = socket.Send(out, &piece, 1, send_flags);
    if (sent == kPassThrough) return moved > 0 ? static_cast<ssize_t>(moved) : kPassThrough;
    if (sent < 0) break;
    Consume(pipe, buffer.get(), static_cast<size_t>(sent));
    moved += static_cast<size_t>(sent);
    if (sent < there) break;
  }
  return moved > 0 ? static_cast<ssize_t>(moved) : -1;
}

}  // namespace

ssize_t Splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count, unsigned flags) {
  const SocketRef from = FdTable::Get(in);
  const SocketRef to = FdTable::Get(out);
  const bool sane = in_offset == nullptr && out_offset == nullptr && count > 0 && (flags & ~kKnownFlags) == 0;
  const int error = errno;
  ssize_t moved = kPassThrough;
  if (sane && from && IsPipe(out, O_WRONLY)) {
    moved = OrNoMemory(*from.get(), in, [&](Socket& s) { return FromSocket(s, in, out, count, flags); });
  } else if (sane && to && IsPipe(in, O_RDONLY)) {
    if (to->Appends(out)) return Fail(EINVAL);
    moved = OrNoMemory(*to.get(), out, [&](Socket& s) { return ToSocket(s, in, out, count, flags); });
  }
  if (moved >= 0) errno = error;
  return moved;
}

}  // namespace sdp::preload
