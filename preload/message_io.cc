#include "preload/message_io.h"

#include <errno.h>

#include <algorithm>

#include "preload/control.h"
#include "preload/fail.h"
#include "preload/socket/clock.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// A flag of the kernel's own, for calls by 32-bit programs; no other caller may pass it.
constexpr int kCompat = static_cast<int>(0x80000000);

constexpr int64_t kSecond = 1'000'000'000;

bool IsTime(const timespec& time) { return time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < kSecond; }

}  // namespace

IoVector::IoVector(const iovec* pieces, size_t count, int too_many) : pieces_(pieces), count_(count) {
  if (count > kMostPieces) {
    error_ = too_many;
    return;
  }
  if (!MayRead(pieces, count * sizeof *pieces)) {
    error_ = EFAULT;
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    if (static_cast<ssize_t>(pieces[i].iov_len) < 0) {
      error_ = EINVAL;
      return;
    }
    const size_t room = kMostBytes - bytes_;
    if (pieces[i].iov_len > room) [[unlikely]] {
      if (shortened_ == nullptr) {
        shortened_ = std::make_unique<iovec[]>(count);
        std::copy_n(pieces, count, shortened_.get());
        pieces_ = shortened_.get();
      }
      shortened_[i].iov_len = room;
    }
    if (IsBeyond(pieces[i].iov_base)) {
      error_ = EFAULT;
      return;
    }
    bytes_ += std::min(pieces[i].iov_len, room);
  }
}

ssize_t Send(Socket& socket, int fd, const IoVector& vector, int flags) {
  const auto may_read = [](const iovec& piece) { return MayRead(piece.iov_base, piece.iov_len); };
  if (std::all_of(vector.pieces(), vector.pieces() + vector.count(), may_read)) [[likely]]
    return socket.Send(fd, vector.pieces(), vector.count(), flags);
  // Other errors come first.
  const iovec nothing{};
  const ssize_t sent = socket.Send(fd, &nothing, 1, flags & ~(MSG_OOB | MSG_ZEROCOPY));
  return sent == 0 ? Fail(EFAULT) : sent;
}

ssize_t SendTo(Socket& socket, int fd, const IoVector& vector, int flags, const sockaddr* address,
               socklen_t address_length) {
  if (address != nullptr && address_length > sizeof(sockaddr_storage)) return Fail(EINVAL);
  if (address != nullptr && !MayRead(address, address_length)) return Fail(EFAULT);
  if ((flags & MSG_FASTOPEN) != 0 && address != nullptr) {
    if (address_length >= sizeof address->sa_family && address->sa_family == AF_UNSPEC)
      return Fail(EOPNOTSUPP);
    const int connected = socket.Connect(fd, address, address_length);
    if (connected != 0) return connected;
    flags &= ~MSG_FASTOPEN;
  }
  return Send(socket, fd, vector, flags);
}

int ReportNoSender(const sockaddr* address, socklen_t* address_length) {
  if (address == nullptr) return 0;
  if (!MayWrite(address_length, sizeof *address_length)) return Fail(EFAULT);
  if (static_cast<int>(*address_length) < 0) return Fail(EINVAL);
  *address_length = 0;
  return 0;
}

ssize_t SendMessage(Socket& socket, int fd, const msghdr& message, int flags) {
  if ((flags & kCompat) != 0) return Fail(EINVAL);
  const IoVector vector(message.msg_iov, message.msg_iovlen, EMSGSIZE);
  if (vector.error() != 0) return Fail(vector.error());
  if (static_cast<int>(message.msg_namelen) < 0) return Fail(EINVAL);
  if (const int error = CheckControl(message); error != 0) [[unlikely]] {
    // A bad control message counts only if the stream would take something.
    const iovec nothing{};
    const ssize_t sent =
        error == EINVAL ? socket.Send(fd, &nothing, 1, flags & ~(MSG_OOB | MSG_ZEROCOPY)) : 0;
    return sent == 0 ? Fail(error) : sent;
  }
  // In sendmsg a name that is too long is cut, not refused.
  const auto name_length = std::min<socklen_t>(message.msg_namelen, sizeof(sockaddr_storage));
  return SendTo(socket, fd, vector, flags, static_cast<const sockaddr*>(message.msg_name), name_length);
}

ssize_t ReceiveMessage(Socket& socket, int fd, msghdr* message, int flags) {
  if ((flags & kCompat) != 0) return Fail(EINVAL);
  const IoVector vector(message->msg_iov, message->msg_iovlen, EMSGSIZE);
  if (vector.error() != 0) return Fail(vector.error());
  if (static_cast<int>(message->msg_namelen) < 0) return Fail(EINVAL);
  int out_flags = 0;
  ControlRoom control(*message);
  ssize_t received;
  if ((flags & MSG_ERRQUEUE) != 0) [[unlikely]] {
    received = socket.ReceiveError(&control, &out_flags);
  } else {
    received = socket.Receive(fd, vector.pieces(), vector.count(), flags, &out_flags);
    if (received >= 0) socket.WriteControl(received, &control);
  }
  if (received < 0) return received;
  if (message->msg_name != nullptr) message->msg_namelen = 0;
  message->msg_controllen = control.used();
  message->msg_flags = out_flags | control.flags() | (flags & MSG_CMSG_CLOEXEC);
  return received;
}

int SendMessages(Socket& socket, int fd, mmsghdr* messages, unsigned count, int flags) {
  count = std::min(count, kMostMessages);
  for (unsigned i = 0; i < count; ++i) {
    if (!MayWrite(&messages[i], sizeof messages[i])) return i > 0 ? static_cast<int>(i) : Fail(EFAULT);
    const ssize_t sent = SendMessage(socket, fd, messages[i].msg_hdr, flags);
    if (sent < 0) return i > 0 ? static_cast<int>(i) : static_cast<int>(sent);
    messages[i].msg_len = static_cast<unsigned>(sent);
    const IoVector vector(messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen, EMSGSIZE);
    if (static_cast<size_t>(sent) < vector.bytes()) return static_cast<int>(i) + 1;
  }
  return static_cast<int>(count);
}

int ReceiveMessages(Socket& socket, int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  if (timeout != nullptr && !MayWrite(timeout, sizeof *timeout)) return Fail(EFAULT);
  if (timeout != nullptr && !IsTime(*timeout)) return Fail(EINVAL);
  // The time-out is checked after each message, and interrupts none. The rest is written back.
  const Time end = DeadlineAfter(timeout);
  const auto is_over = [&] {
    return Remaining(end, timeout) != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
  };
  count = std::min(count, kMostMessages);
  if ((flags & MSG_ERRQUEUE) == 0) {  // an error comes ahead of the data received before it
    if (const int error = socket.TakeErrorAhead(); error != 0) return Fail(error);
  }
  for (unsigned i = 0; i < count; ++i) {
    if (!MayWrite(&messages[i], sizeof messages[i])) return i > 0 ? static_cast<int>(i) : Fail(EFAULT);
    const ssize_t received = ReceiveMessage(socket, fd, &messages[i].msg_hdr, flags & ~MSG_WAITFORONE);
    if (received < 0 && i > 0) {
      if (errno != EAGAIN && errno != EINTR) socket.ReportLater(errno);
      return static_cast<int>(i);
    }
    if (received < 0) return static_cast<int>(received);
    messages[i].msg_len = static_cast<unsigned>(received);
    if ((flags & MSG_WAITFORONE) != 0) flags |= MSG_DONTWAIT;
    if (is_over() || (messages[i].msg_hdr.msg_flags & MSG_OOB) != 0) return static_cast<int>(i) + 1;
  }
  return static_cast<int>(count);
}

}  // namespace sdp::preload
