// The kernel's checks on what the message calls are given, and the calls for many messages made of calls for
// one.
#ifndef SDP_PRELOAD_MESSAGE_IO_H_
#define SDP_PRELOAD_MESSAGE_IO_H_

#include <sys/socket.h>
#include <time.h>

#include <cstddef>
#include <memory>

#include "preload/socket/socket.h"

namespace sdp::preload {

inline constexpr size_t kMostBytes = 0x7ffff000;  // MAX_RW_COUNT: what one call moves at most
inline constexpr size_t kMostPieces = 1024;       // UIO_MAXIOV
inline constexpr unsigned kMostMessages = 1024;   // of one sendmmsg or recvmmsg

// A vector as the kernel would take it: checked, and cut off after kMostBytes.
class IoVector {
 public:
  // `too_many`: the errno for more than kMostPieces (readv and writev: EINVAL, messages: EMSGSIZE).
  IoVector(const iovec* pieces, size_t count, int too_many);

  int error() const {
    return error_;
  }  // 0, or EINVAL for a negative length, or `too_many`, or EFAULT for no array
  size_t bytes() const { return bytes_; }
  const iovec* pieces() const { return pieces_; }
  size_t count() const { return count_; }

 private:
  const iovec* pieces_;
  size_t count_;
  size_t bytes_ = 0;
  int error_ = 0;
  std::unique_ptr<iovec[]> shortened_;
};

// One message; as sendmsg and recvmsg, kPassThrough included. A stream takes no address and carries no
// control data.
ssize_t SendMessage(Socket& socket, int fd, const msghdr& message, int flags);
ssize_t ReceiveMessage(Socket& socket, int fd, msghdr* message, int flags);
// The socket's Send, and EFAULT where the program's memory is none.
ssize_t Send(Socket& socket, int fd, const IoVector& vector, int flags);
// With an address, as sendto: of use only with MSG_FASTOPEN, which connects first.
ssize_t SendTo(Socket& socket, int fd, const IoVector& vector, int flags, const sockaddr* address,
               socklen_t address_length);
// What recvfrom says of the sender on a stream: an address of no length. 0, or -1 with errno.
int ReportNoSender(const sockaddr* address, socklen_t* address_length);

// As sendmmsg and recvmmsg: the number of messages moved, -1 if not even one, kPassThrough if the first says
// so.
int SendMessages(Socket& socket, int fd, mmsghdr* messages, unsigned count, int flags);
int ReceiveMessages(Socket& socket, int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_MESSAGE_IO_H_
