// The system calls by which the embedded RNIC uses a connection's TCP socket.
//
// A program that interposes these calls, as libsdp.so does, puts the C library's own functions here.
#ifndef SDP_VERBS_SOFTIWARP_LINK_CALLS_H_
#define SDP_VERBS_SOFTIWARP_LINK_CALLS_H_

#include <sys/socket.h>
#include <sys/types.h>

namespace sdp::iwarp {

struct LinkCalls {
  ssize_t (*recvmsg)(int, msghdr*, int);
  ssize_t (*sendmsg)(int, const msghdr*, int);
  int (*shutdown)(int, int);
  int (*setsockopt)(int, int, int, const void*, socklen_t);
  int (*getsockopt)(int, int, int, void*, socklen_t*);
  // For data in one piece, where they cost noticeably less than recvmsg and sendmsg. If null, recvmsg and
  // sendmsg serve all data.
  ssize_t (*recv)(int, void*, size_t, int) = nullptr;
  ssize_t (*send)(int, const void*, size_t, int) = nullptr;
  // If null, SoftQp borrows no files.
  ssize_t (*sendfile)(int, int, off64_t*, size_t) = nullptr;
  // Called with AF_UNSPEC only, which resets the link at once. If null, or if it fails, closing the
  // descriptor sends the reset.
  int (*connect)(int, const sockaddr*, socklen_t) = nullptr;
  // Returns false if the process may not make the system calls that ring a bell (bell.h). If null, it may.
  bool (*may_ring)() = nullptr;
};

// Call it before the first use of the embedded RNIC. Without this call the embedded RNIC uses the functions
// of these names that the program is linked with.
void SetLinkCalls(const LinkCalls& calls);
const LinkCalls& link_calls();

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LINK_CALLS_H_
