// The TCP socket under a connection. Only TcpLink makes system calls on it, all through link_calls(). The
// owner keeps the file descriptor.
#ifndef SDP_VERBS_SOFTIWARP_TCP_LINK_H_
#define SDP_VERBS_SOFTIWARP_TCP_LINK_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/types.h"

namespace sdp::iwarp {

struct LinkResult {
  enum class Kind : uint8_t {
    kOk,
    kWouldBlock,  // no data or no room
    kEof,
    kError,  // error: the errno
  };
  Kind kind = Kind::kOk;
  size_t bytes = 0;
  int error = 0;
};

class TcpLink {
 public:
  explicit TcpLink(int fd) : fd_(fd) {}

  [[nodiscard]] int fd() const { return fd_; }
  void set_fd(int fd) { fd_ = fd; }

  // Calls recv or recvmsg once, without blocking, for at most kMaxParts parts.
  static constexpr size_t kMaxParts = 160;
  LinkResult Read(std::span<const MutableBytes> parts) const;
  // Returns, without blocking, the first byte that is to be read, and leaves it there.
  LinkResult Peek(std::byte* first) const;
  // Returns true if the connection has ended at its other end, or may have: whether what came before that was
  // read or not.
  [[nodiscard]] bool PeerEnded() const;
  // Returns true if the connection was reset, or has ended at both ends.
  [[nodiscard]] bool Over() const;
  // Calls send or sendmsg once; never blocks and never raises SIGPIPE. `more`: another write follows at once.
  LinkResult Write(std::span<const iovec> parts, bool more = false) const;
  // Calls sendfile once. It blocks if the descriptor does, and raises SIGPIPE as the program's own sendfile
  // would. kEof: the file ends there.
  LinkResult WriteFile(int file, off64_t offset, size_t size) const;
  // Makes the kernel acknowledge the received data now, instead of waiting for our data to carry the
  // acknowledgement.
  void AcknowledgeAtOnce() const;
  // While `on`, the kernel holds back segments that are not full.
  void Cork(bool on) const;
  // Sends a FIN after the bytes already sent.
  void ShutdownWrite() const;
  // Resets the link: unsent and unread bytes are lost, the peer sees a reset, and a poll of the link ends.
  // The descriptor then belongs to a socket without a peer. If LinkCalls has no connect(), or it fails, the
  // kernel sends the reset when the owner closes the descriptor.
  void Abort() const;
  // Returns the path's segment size (EMSS), 0 if unknown.
  [[nodiscard]] uint32_t SegmentSize() const;

 private:
  // Returns the kernel's state of the connection (TCP_ESTABLISHED and so on), 0 if unknown.
  [[nodiscard]] uint8_t State() const;

  int fd_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_TCP_LINK_H_
