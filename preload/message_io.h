// Checks the arguments of the message calls as the kernel does, and builds the calls for many messages from
// calls for one. No state.
#ifndef SDP_PRELOAD_MESSAGE_IO_H_
#define SDP_PRELOAD_MESSAGE_IO_H_

#include <sys/socket.h>
#include <time.h>

#include <cstddef>
#include <memory>

#include "preload/socket/socket.h"

namespace sdp::preload {

inline constexpr size_t kMostBytes = 0x7ffff000;  // MAX_RW_COUNT: the most that one call moves
inline constexpr size_t kMostPieces = 1024;       // UIO_MAXIOV
inline constexpr unsigned kMostMessages = 1024;   // in one sendmmsg or recvmmsg

// A vector as the kernel would take it: checked, and cut off after kMostBytes. The pieces must outlive it.
class IoVector {
 public:
  // `too_many`: the errno for more than kMostPieces (EINVAL for readv and writev, EMSGSIZE for messages).
  IoVector(const iovec* pieces, size_t count, int too_many);

  int error() const {
    return error_;
  }  // 0, EINVAL for a negative length, EFAULT for memory that cannot be, or `too_many`
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

// Move one message, with the results of sendmsg and recvmsg, or kPassThrough. On a stream the address and the
// control data do not change what is sent.
ssize_t SendMessage(Socket& socket, int fd, const msghdr& message, int flags);
ssize_t ReceiveMessage(Socket& socket, int fd, msghdr* message, int flags);
// Calls the socket's Send. Fails with EFAULT if the program's memory cannot be read.
ssize_t Send(Socket& socket, int fd, const IoVector& vector, int flags);
// Sends with an address, as sendto. The address has an effect only with MSG_FASTOPEN, which connects first.
ssize_t SendTo(Socket& socket, int fd, const IoVector& vector, int flags, const sockaddr* address,
               socklen_t address_length);
// Reports the sender as recvfrom does on a stream: an address of length 0. Returns 0, or -1 with errno.
int ReportNoSender(const sockaddr* address, socklen_t* address_length);

// Like sendmmsg and recvmmsg. Return the number of messages moved, -1 if the first one fails, or kPassThrough
// if the first one says so.
int SendMessages(Socket& socket, int fd, mmsghdr* messages, unsigned count, int flags);
int ReceiveMessages(Socket& socket, int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_MESSAGE_IO_H_
