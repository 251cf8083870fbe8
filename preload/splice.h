// splice() between a pipe and a socket of ours.
#ifndef SDP_PRELOAD_SPLICE_H_
#define SDP_PRELOAD_SPLICE_H_

#include <sys/types.h>

namespace sdp::preload {

// As splice(2) between a pipe and a TCP socket; one of `in` and `out`, at least, is a number of FdTable's.
// The bytes are copied. What the kernel would take of an SDP connection's descriptor is part of the stream
// that carries it, so the real call is made only where it must fail or where the socket is plain TCP.
ssize_t Splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count, unsigned flags);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SPLICE_H_
