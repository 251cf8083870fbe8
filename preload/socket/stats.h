// From sockets to the stats segment.
#ifndef SDP_PRELOAD_SOCKET_STATS_H_
#define SDP_PRELOAD_SOCKET_STATS_H_

#include <string>

#include "preload/socket/address.h"
#include "preload/socket/session.h"
#include "preload/stats_segment.h"

namespace sdp::preload {

// The process's segment, opened when first asked for; null if it cannot be had (logged once).
stats::StatsSegment* Statistics();
// For fork and exit hooks: the segment if there is one already.
stats::StatsSegment* OpenStatistics();

stats::Counters CountConnection(const Session& session);
stats::ConnectionRecord DescribeConnection(const Session& session, stats::Role role, int fd,
                                           const Address& local, const Address& peer,
                                           const Address& sdp_peer);
stats::ConnectionRecord DescribeListener(int fd, const Address& local, const Address& sdp_local);
// Of a listening TCP socket: what listen() asked for, within net.core.somaxconn.
uint64_t BacklogInForce(int fd);
// `peer`: of a connect; without one it was a listen. `state`: kTcp or kFailed.
void RecordFallback(int fd, stats::FallbackReason reason, const std::string& text, const Address& peer,
                    stats::State state = stats::State::kTcp);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STATS_H_
