// sendfile() to an SDP socket.
#ifndef SDP_PRELOAD_SENDFILE_H_
#define SDP_PRELOAD_SENDFILE_H_

#include <sys/types.h>

#include "preload/socket/socket.h"

namespace sdp::preload {

// Sends up to `count` bytes of `in` over `socket`, whose descriptor is `out`, by reading and sending piece by
// piece: as many bytes as the socket takes, or the file has. With `offset`, from there, and *offset moves on
// by the result; without, from the file's own position, which moves on. Errors as sendfile(2); kPassThrough
// only with nothing sent.
ssize_t SendFile(Socket& socket, int out, int in, off64_t* offset, size_t count);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SENDFILE_H_
