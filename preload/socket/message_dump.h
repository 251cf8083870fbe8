#ifndef SDP_PRELOAD_SOCKET_MESSAGE_DUMP_H_
#define SDP_PRELOAD_SOCKET_MESSAGE_DUMP_H_

#include "preload/log.h"
#include "preload/stats_recorder.h"

namespace sdp::preload {

// The last messages of a connection, a line each, to the log: how long before now, which way, what.
void LogRecentMessages(LogLevel level, const stats::MessageRecorder& recorder);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_MESSAGE_DUMP_H_
