// splice() between a pipe and a managed socket.
#ifndef SDP_PRELOAD_SPLICE_H_
#define SDP_PRELOAD_SPLICE_H_

#include <sys/types.h>

namespace sdp::preload {

// Works as splice(2) between a pipe and a TCP socket. At least one of `in` and `out` is a number in FdTable.
// The bytes are copied: what the kernel would take from an SDP connection's descriptor belongs to the stream
// that carries it. Returns kPassThrough where the real call must fail or where the socket is plain TCP.
ssize_t Splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count, unsigned flags);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SPLICE_H_
