// Describes sockets for the process's stats segment (stats_segment.h), which is made here.
#ifndef SDP_PRELOAD_SOCKET_STATS_H_
#define SDP_PRELOAD_SOCKET_STATS_H_

#include <string>

#include "preload/socket/address.h"
#include "preload/socket/session.h"
#include "preload/stats_segment.h"

namespace sdp::preload {

// Returns the process's segment, opened when first asked for; null if it cannot be had (logged once).
stats::StatsSegment* Statistics();
// For fork and exit hooks: returns the segment if it exists already.
stats::StatsSegment* OpenStatistics();

// Publishes the connection's counters in its slot, which is not null.
void PublishCounters(stats::Slot* slot, const Session& session);
stats::ConnectionRecord DescribeConnection(const Session& session, stats::Role role, int fd,
                                           const Address& local, const Address& peer,
                                           const Address& sdp_peer);
stats::ConnectionRecord DescribeListener(int fd, const Address& local, const Address& sdp_local);
// `peer`: of a connect; empty for a listen. `state`: kTcp or kFailed.
void RecordFallback(int fd, stats::FallbackReason reason, const std::string& text, const Address& peer,
                    stats::State state = stats::State::kTcp);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STATS_H_
