// The TCP socket under a connection: the only place of the embedded RNIC that makes system calls on it, all
// through link_calls().
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
    kWouldBlock,   // nothing there or no room; blocking: the socket's time-out passed
    kInterrupted,  // blocking only
    kEof,
    kError,  // error: the errno
  };
  Kind kind = Kind::kOk;
  size_t bytes = 0;
  int error = 0;
};

enum class LinkWait : uint8_t { kNo, kYes };

class TcpLink {
 public:
  explicit TcpLink(int fd) : fd_(fd) {}

  [[nodiscard]] int fd() const { return fd_; }
  void set_fd(int fd) { fd_ = fd; }

  // One recv or recvmsg into at most kMaxParts parts.
  static constexpr size_t kMaxParts = 160;
  LinkResult Read(std::span<const MutableBytes> parts, LinkWait wait) const;
  // One send or sendmsg, never blocking, never raising SIGPIPE. `more`: another follows at once.
  LinkResult Write(std::span<const iovec> parts, bool more = false) const;
  // One sendfile: it blocks if the descriptor does, and raises SIGPIPE as the program's own would. kEof: the
  // file ends there.
  LinkResult WriteFile(int file, off64_t offset, size_t size) const;
  // What has come is acknowledged now, though nothing is sent that could do so in passing.
  void AcknowledgeAtOnce() const;
  // Segments that are not full are held back, or no longer.
  void Cork(bool on) const;
  // FIN behind what is sent.
  void ShutdownWrite() const;
  // What is unsent and unread is lost, the peer sees a reset, and a sleeping reader wakes. The descriptor
  // stays the owner's, as that of a socket without a peer. Where LinkCalls has no connect() for it, the
  // reset goes when the owner closes the descriptor.
  void Abort() const;
  // The path's segment size (EMSS), 0 when unknown.
  [[nodiscard]] uint32_t SegmentSize() const;

 private:
  int fd_;
};

// Unpredictable bytes from the kernel.
void FillRandom(MutableBytes out);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_TCP_LINK_H_
