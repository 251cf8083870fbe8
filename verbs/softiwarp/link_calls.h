// The system calls by which the embedded RNIC uses a connection's TCP socket.
//
// A program that interposes these calls itself, as libsdp.so does, puts the C library's own functions here.
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
  // For data in one piece, where they cost noticeably less than recvmsg and sendmsg. nullptr: recvmsg and
  // sendmsg are used for all data.
  ssize_t (*recv)(int, void*, size_t, int) = nullptr;
  ssize_t (*send)(int, const void*, size_t, int) = nullptr;
  // nullptr: SoftQp borrows no files.
  ssize_t (*sendfile)(int, int, off64_t*, size_t) = nullptr;
  // Called with AF_UNSPEC only, which resets the link at once. nullptr, or an error: the reset is sent when
  // the owner closes the descriptor.
  int (*connect)(int, const sockaddr*, socklen_t) = nullptr;
};

// Call it before the first use of the embedded RNIC. Until then the functions of these names are used that
// the program is linked with.
void SetLinkCalls(const LinkCalls& calls);
const LinkCalls& link_calls();

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LINK_CALLS_H_
