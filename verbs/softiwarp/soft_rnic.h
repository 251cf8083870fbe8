// The embedded RNIC: iWARP (RDMAP over DDP over MPA) in user space on a TCP socket.
#ifndef SDP_VERBS_SOFTIWARP_SOFT_RNIC_H_
#define SDP_VERBS_SOFTIWARP_SOFT_RNIC_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <memory>

#include "verbs/rnic.h"

namespace sdp::iwarp {

// The system calls the embedded RNIC makes. libsdp.so replaces them before the first use by the C library's
// own, since inside a preloaded process the plain names are libsdp's interposed ones. Everything else links
// against the defaults.
struct LinkCalls {
  ssize_t (*recvmsg)(int, msghdr*, int);
  ssize_t (*sendmsg)(int, const msghdr*, int);
  int (*shutdown)(int, int);
  int (*setsockopt)(int, int, int, const void*, socklen_t);
  int (*getsockopt)(int, int, int, void*, socklen_t*);
  // For what lies in one piece, where they cost noticeably less than their msg forms; nullptr: those are
  // used.
  ssize_t (*recv)(int, void*, size_t, int) = nullptr;
  ssize_t (*send)(int, const void*, size_t, int) = nullptr;
  // nullptr: no files are borrowed.
  ssize_t (*sendfile)(int, int, off64_t*, size_t) = nullptr;
  // Called with AF_UNSPEC alone, which resets a link at once. nullptr, or an error: the reset goes with the
  // descriptor.
  int (*connect)(int, const sockaddr*, socklen_t) = nullptr;
};
void SetLinkCalls(const LinkCalls& calls);
const LinkCalls& link_calls();

struct SoftOptions {
  bool want_crc = false;      // ask for CRC32c; it is used when either peer asks (RFC 5044, 7.1)
  bool want_markers = false;  // ask the peer to send us markers
  bool peer_to_peer = true;   // connecting side: ask for RFC 6581 peer-to-peer with an RTR
  // Connecting side: a responder that takes the RTR and says what it has to say in its reply has to show that
  // it has seen the RTR, or the connection is not established. A kernel's soft RNIC may overlook it until
  // more bytes come.
  bool confirm_rtr = false;
  bool rtr_by_read = false;  // connecting side: offer only a zero-length RDMA Read as RTR (default: Write)
  uint8_t revision = 2;      // 1: no enhanced set-up
  uint32_t max_ulpdu = 0;    // 0: as large as the peer and the link allow
  Duration startup_timeout = std::chrono::seconds(10);  // MPA start-up, each side
  // Accepting side: of a connection of which nothing has come yet the kernel has waited for so long already
  // (TCP_DEFER_ACCEPT).
  Duration deferral{};
};

// `fd`: a connected TCP socket (for the connecting side also one whose connect has just been reported
// complete). Borrowed: never closed here. Its O_NONBLOCK flag is the owner's business; the set-up never
// blocks on it. `private_data`: at most 508 bytes (512 in revision 1).
std::unique_ptr<verbs::Connector> Connect(int fd, Bytes private_data, const verbs::QpOptions& qp,
                                          const SoftOptions& options, Time now);
std::unique_ptr<verbs::Connector> Listen(int fd, const SoftOptions& options, Time now);

// A queue pair that goes on where QueuePair::Freeze() of one of this RNIC's found it, on the same TCP
// connection: `fd`, any descriptor of it in any process. Bytes from anywhere are refused (nullptr) or become
// a queue pair that is safe to use.
std::unique_ptr<verbs::QueuePair> Thaw(int fd, Bytes frozen);
// In the place of one that is still to be thawed, on `fd`: nothing is posted.
std::unique_ptr<verbs::QueuePair> Blank(int fd);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_SOFT_RNIC_H_
