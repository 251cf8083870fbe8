// A program with more rights than its user: setuid, setgid, or with file capabilities. The loader ignores
// LD_PRELOAD there, but not /etc/ld.so.preload. The library then does nothing: no file, thread, handler or
// port.
#ifndef SDP_PRELOAD_PRIVILEGED_H_
#define SDP_PRELOAD_PRIVILEGED_H_

#include <sys/auxv.h>

namespace sdp::preload {

inline bool IsPrivileged() { return getauxval(AT_SECURE) != 0; }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_PRIVILEGED_H_
