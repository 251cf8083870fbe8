// The plain TCP clients of SDP listeners: a process counts them, and keeps no record of them.
#ifndef SDP_TOOLS_SDPSTAT_PLAIN_CLIENTS_H_
#define SDP_TOOLS_SDPSTAT_PLAIN_CLIENTS_H_

#include "tools/stats/stats_reader.h"

namespace sdp::sdpstat {

// Adds a record of a fall-back for each open connection that the kernel knows of. Asks it only of processes
// whose listeners have accepted such clients.
void AddPlainClients(stats::Snapshot* snapshot);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_PLAIN_CLIENTS_H_
