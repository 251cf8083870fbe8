// The calls that move bytes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>

#include "preload/allowed_calls.h"
#include "preload/control.h"
#include "preload/entry_points.h"
#include "preload/message_io.h"
#include "preload/rights.h"
#include "preload/sendfile.h"
#include "preload/splice.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

iovec OnePiece(const void* buffer, size_t length) {
  return {.iov_base = const_cast<void*>(buffer), .iov_len = std::min(length, kMostBytes)};
}

ssize_t ReceivePiece(Socket& socket, int fd, void* buffer, size_t length, int flags) {
  if ((flags & MSG_ERRQUEUE) != 0) [[unlikely]] {
    ControlRoom none{msghdr{}};
    int out_flags = 0;
    return socket.ReceiveError(&none, &out_flags);
  }
  if (IsBeyond(buffer)) return Fail(EFAULT);
  const iovec piece = OnePiece(buffer, length);
  return socket.Receive(fd, &piece, 1, flags, nullptr);
}

ssize_t SendPiece(Socket& socket, int fd, const void* buffer, size_t length, int flags) {
  const iovec piece = OnePiece(buffer, length);
  if (IsBeyond(buffer) || !MayRead(buffer, piece.iov_len)) [[unlikely]] {
    const IoVector vector(&piece, 1, EINVAL);
    return vector.error() != 0 ? Fail(vector.error()) : Send(socket, fd, vector, flags);
  }
  return socket.Send(fd, &piece, 1, flags);
}

// sendmmsg for messages that carry sockets.
int SendOneByOne(int fd, mmsghdr* messages, unsigned count, int flags) {
  for (unsigned i = 0; i < count; ++i) {
    if (!MayWrite(&messages[i], sizeof messages[i])) return i > 0 ? static_cast<int>(i) : Fail(EFAULT);
    const ssize_t sent = SDP_ENTRY(sendmsg)(fd, &messages[i].msg_hdr, flags);
    if (sent < 0) return i > 0 ? static_cast<int>(i) : -1;
    messages[i].msg_len = static_cast<unsigned>(sent);
  }
  return static_cast<int>(count);
}

// sendfile from a socket: an error unless it is a splice to a pipe.
ssize_t SendSocket(int out, int in, const off64_t* offset, size_t count) {
  if (offset != nullptr) return Fail(ESPIPE);
  const NoCancellation no_cancellation;
  const ssize_t moved = Splice(in, nullptr, out, nullptr, count, 0);
  return moved != kPassThrough ? moved : real.splice(in, nullptr, out, nullptr, count, 0);
}

// preadv2 and pwritev2 at position -1 are readv and writev. A socket has no other positions, and the kernel
// returns the error.
constexpr int kKnownRwFlags = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND;

// Flags of newer kernels, which our headers may lack. A pipe shows which of them this kernel accepts, as a
// socket would.
constexpr int kRwfNoAppend = 0x20;
constexpr int kRwfNoSignal = 0x100;

int NewerRwFlags() {
  static constinit std::atomic<int> known{-1};
  if (known.load(std::memory_order_relaxed) >= 0) return known.load(std::memory_order_relaxed);
  const NoCancellation no_cancellation;
  int ends[2];
  if (Confined() || pipe2(ends, O_CLOEXEC) != 0) return 0;
  int taken = 0;
  for (const int flag : {kRwfNoAppend, kRwfNoSignal}) {
    const iovec byte{.iov_base = &taken, .iov_len = 1};
    if (real.pwritev2(ends[1], &byte, 1, -1, flag) == 1) taken |= flag;
  }
  for (const int end : ends) real.close(end);
  known.store(taken, std::memory_order_relaxed);
  return taken;
}

// Returns 0 or an errno.
int CheckRwFlags(int flags) {
  if ((flags & ~kKnownRwFlags) == 0) [[likely]]
    return 0;
  if ((flags & ~kKnownRwFlags & ~NewerRwFlags()) != 0) return EOPNOTSUPP;
  return (flags & RWF_APPEND) != 0 && (flags & kRwfNoAppend) != 0 ? EINVAL : 0;
}

int MessageFlags(int flags) {
  return ((flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0) | ((flags & kRwfNoSignal) != 0 ? MSG_NOSIGNAL : 0);
}

// readv, preadv2 and their like; `flags` are RWF_. The kernel looks at them only if there is something to
// move.
ssize_t ReadPieces(Socket& socket, int fd, const iovec* iov, int count, int flags) {
  const IoVector vector(iov, static_cast<size_t>(count), EINVAL);
  if (vector.error() != 0) return Fail(vector.error());
  if (vector.bytes() == 0) return 0;
  if (const int error = CheckRwFlags(flags); error != 0) return Fail(error);
  return socket.Receive(fd, vector.pieces(), vector.count(), MessageFlags(flags) & MSG_DONTWAIT, nullptr);
}

ssize_t WritePieces(Socket& socket, int fd, const iovec* iov, int count, int flags) {
  const IoVector vector(iov, static_cast<size_t>(count), EINVAL);
  if (vector.error() != 0) return Fail(vector.error());
  if (vector.bytes() == 0) return 0;  // unlike write
  if (const int error = CheckRwFlags(flags); error != 0) return Fail(error);
  return Send(socket, fd, vector, MessageFlags(flags));
}

}  // namespace

ssize_t SDP_ENTRY(read)(int fd, void* buffer, size_t length) {
  return DispatchBytes(
      fd,
      [&](Socket& socket) -> ssize_t {
        if (length > SSIZE_MAX) return Fail(EINVAL);
        if (length == 0) return 0;
        return ReceivePiece(socket, fd, buffer, length, 0);
      },
      [&] { return real.read(fd, buffer, length); });
}

ssize_t SDP_ENTRY(readv)(int fd, const iovec* iov, int count) {
  return DispatchBytes(
      fd, [&](Socket& socket) { return ReadPieces(socket, fd, iov, count, 0); },
      [&] { return real.readv(fd, iov, count); });
}

ssize_t SDP_ENTRY(preadv2)(int fd, const iovec* iov, int count, off_t offset, int flags) {
  return DispatchBytes(
      fd,
      [&](Socket& socket) -> ssize_t {
        return offset == -1 ? ReadPieces(socket, fd, iov, count, flags) : kPassThrough;
      },
      [&] { return real.preadv2(fd, iov, count, offset, flags); });
}

ssize_t SDP_ENTRY(recv)(int fd, void* buffer, size_t length, int flags) {
  return DispatchBytes(
      fd, [&](Socket& socket) { return ReceivePiece(socket, fd, buffer, length, flags); },
      [&] { return real.recv(fd, buffer, length, flags); });
}

ssize_t SDP_ENTRY(recvfrom)(int fd, void* buffer, size_t length, int flags, sockaddr* address,
                            socklen_t* address_length) {
  return DispatchBytes(
      fd,
      [&](Socket& socket) -> ssize_t {
        const ssize_t received = ReceivePiece(socket, fd, buffer, length, flags);
        if (received < 0) return received;
        return ReportNoSender(address, address_length) == 0 ? received : -1;
      },
      [&] { return real.recvfrom(fd, buffer, length, flags, address, address_length); });
}

ssize_t SDP_ENTRY(recvmsg)(int fd, msghdr* message, int flags) {
  return DispatchBytes(
      fd,
      [&](Socket& socket) {
        return MayWrite(message, sizeof *message) ? ReceiveMessage(socket, fd, message, flags) : Fail(EFAULT);
      },
      [&] {
        const ssize_t received = real.recvmsg(fd, message, flags);
        if (received >= 0) TakeIncomingRights(*message, flags);
        return received;
      });
}

int SDP_ENTRY(recvmmsg)(int fd, mmsghdr* messages, unsigned int count, int flags, timespec* timeout) {
  return DispatchBytes(
      fd, [&](Socket& socket) { return ReceiveMessages(socket, fd, messages, count, flags, timeout); },
      [&] {
        const int received = real.recvmmsg(fd, messages, count, flags, timeout);
        for (int i = 0; i < received; ++i) TakeIncomingRights(messages[i].msg_hdr, flags);
        return received;
      });
}

ssize_t SDP_ENTRY(write)(int fd, const void* buffer, size_t length) {
  return DispatchBytes(
      fd,
      [&](Socket& socket) -> ssize_t {
        if (length > SSIZE_MAX) return Fail(EINVAL);
        return SendPiece(socket, fd, buffer, length, 0);
      },
      [&] { return real.write(fd, buffer, length); });
}

ssize_t SDP_ENTRY(writev)(int fd, const iovec* iov, int count) {
  return DispatchBytes(
      fd, [&](Socket& socket) { return WritePieces(socket, fd, iov, count, 0); },
      [&] { return real.writev(fd, iov, count); });
}

ssize_t SDP_ENTRY(pwritev2)(int fd, const iovec* iov, int count, off_t offset, int flags) {
  return DispatchBytes(
      fd,
      [&](Socket& socket) -> ssize_t {
        return offset == -1 ? WritePieces(socket, fd, iov, count, flags) : kPassThrough;
      },
      [&] { return real.pwritev2(fd, iov, count, offset, flags); });
}

ssize_t SDP_ENTRY(send)(int fd, const void* buffer, size_t length, int flags) {
  return DispatchBytes(
      fd, [&](Socket& socket) { return SendPiece(socket, fd, buffer, length, flags); },
      [&] { return real.send(fd, buffer, length, flags); });
}

ssize_t SDP_ENTRY(sendto)(int fd, const void* buffer, size_t length, int flags, const sockaddr* address,
                          socklen_t address_length) {
  return DispatchBytes(
      fd,
      [&](Socket& socket) -> ssize_t {
        const iovec piece = OnePiece(buffer, length);
        const IoVector vector(&piece, 1, EINVAL);
        if (vector.error() != 0) return Fail(vector.error());
        return SendTo(socket, fd, vector, flags, address, address_length);
      },
      [&] { return real.sendto(fd, buffer, length, flags, address, address_length); });
}

ssize_t SDP_ENTRY(sendmsg)(int fd, const msghdr* message, int flags) {
  return DispatchBytes(
      fd,
      [&](Socket& socket) {
        return MayRead(message, sizeof *message) ? SendMessage(socket, fd, *message, flags) : Fail(EFAULT);
      },
      [&]() -> ssize_t {
        if (!OutgoingRights::MayConcern(message)) return real.sendmsg(fd, message, flags);
        try {
          const OutgoingRights rights(fd, *message);
          return rights.failed() ? Fail(ENOBUFS) : real.sendmsg(fd, rights.message(), flags);
        } catch (const std::bad_alloc&) {
          return Fail(ENOMEM);
        }
      });
}

int SDP_ENTRY(sendmmsg)(int fd, mmsghdr* messages, unsigned int count, int flags) {
  return DispatchBytes(
      fd, [&](Socket& socket) { return SendMessages(socket, fd, messages, count, flags); },
      [&] {
        const unsigned last = std::min(count, kMostMessages);
        for (unsigned i = 0; i < last; ++i) {
          if (OutgoingRights::MayConcern(&messages[i].msg_hdr))
            return SendOneByOne(fd, messages, last, flags);
        }
        return real.sendmmsg(fd, messages, count, flags);
      });
}

ssize_t SDP_ENTRY(sendfile)(int out, int in, off_t* offset, size_t count) noexcept {
  static_assert(sizeof(off_t) == sizeof(off64_t));
  return DispatchUncancelled(
      out, [&](Socket& socket) { return SendFile(socket, out, in, offset, count); },
      [&] {
        return FdTable::Has(in) ? SendSocket(out, in, offset, count) : real.sendfile(out, in, offset, count);
      });
}

ssize_t SDP_ENTRY(splice)(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count,
                          unsigned int flags) {
  if (FdTable::Has(in) || FdTable::Has(out)) {
    pthread_testcancel();
    const CancelledInSleepsOnly whole;
    const ssize_t moved = Splice(in, in_offset, out, out_offset, count, flags);
    if (moved != kPassThrough) return moved;
  }
  return real.splice(in, in_offset, out, out_offset, count, flags);
}

ssize_t SDP_ENTRY(__read_chk)(int fd, void* buffer, size_t length, size_t room) {
  if (length > room) __chk_fail();
  return SDP_ENTRY(read)(fd, buffer, length);
}

ssize_t SDP_ENTRY(__recv_chk)(int fd, void* buffer, size_t length, size_t room, int flags) {
  if (length > room) __chk_fail();
  return SDP_ENTRY(recv)(fd, buffer, length, flags);
}

ssize_t SDP_ENTRY(__recvfrom_chk)(int fd, void* buffer, size_t length, size_t room, int flags,
                                  sockaddr* address, socklen_t* address_length) {
  if (length > room) __chk_fail();
  return SDP_ENTRY(recvfrom)(fd, buffer, length, flags, address, address_length);
}

SDP_ENTRY_ALIAS(__read, read);
SDP_ENTRY_ALIAS(__write, write);
SDP_ENTRY_ALIAS(__send, send);
SDP_ENTRY_ALIAS(preadv64v2, preadv2);
SDP_ENTRY_ALIAS(pwritev64v2, pwritev2);
SDP_ENTRY_ALIAS(sendfile64, sendfile);

}  // namespace sdp::preload
