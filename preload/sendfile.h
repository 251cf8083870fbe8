// sendfile() to an SDP socket.
#ifndef SDP_PRELOAD_SENDFILE_H_
#define SDP_PRELOAD_SENDFILE_H_

#include <sys/types.h>

#include "preload/socket/socket.h"

namespace sdp::preload {

// Sends up to `count` bytes of `in` over `socket`, whose descriptor is `out`, until the socket takes no more
// or the file ends. With `offset`, reads from *offset and advances *offset by the result. Without it, reads
// from the file's own position and advances that. Errors are those of sendfile(2). Returns kPassThrough only
// if nothing was sent.
ssize_t SendFile(Socket& socket, int out, int in, off64_t* offset, size_t count);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SENDFILE_H_
