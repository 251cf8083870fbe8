// The embedded RNIC: iWARP (RDMAP over DDP over MPA) in user space on a TCP socket.
#ifndef SDP_VERBS_SOFTIWARP_SOFT_RNIC_H_
#define SDP_VERBS_SOFTIWARP_SOFT_RNIC_H_

#include <memory>

#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_options.h"

namespace sdp::iwarp {

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
