// What doctor looks at beside the library and its configuration: places of this host, the way to another.
#ifndef SDP_TOOLS_SDPSTAT_DOCTOR_PARTS_H_
#define SDP_TOOLS_SDPSTAT_DOCTOR_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/probe/probe.h"
#include "tools/sdp-run/daemon.h"
#include "tools/sdpstat/finding.h"
#include "tools/stats/stats_reader.h"

namespace sdp::sdpstat {

// Writes a file of a stats file's least size into the directory, which does not stay. Returns 0 or errno.
int TryToWrite(const std::string& directory);
// Of a directory that exists, or does not. `try_to_write`: TryToWrite, or a test's.
Finding ExamineStatsPlace(const std::string& path, int (*try_to_write)(const std::string& directory));
// Of the directories in which this user's processes publish.
Finding ExamineStatsDirectory();

// What a look at the port mapper's socket says, with what helps there.
Finding JudgeDaemon(const std::string& path, const run::DaemonLook& look);
// `answers`: this user's programs can register with a daemon. `is_free`: no program has the port.
Finding JudgeUdpPort(uint16_t port, bool answers, bool is_free);
// The daemon as libsdp.so looks for it: that of the user, the host's, or one that a program of this user has
// for itself (sdp-run --pmd); and the UDP port. *socket: where one answers; empty: none does.
std::vector<Finding> ExamineDaemon(const stats::Snapshot& snapshot, std::string* socket);

// Whether the listeners of running processes are registered with a port mapper.
Finding JudgeListeners(const stats::Snapshot& snapshot);
// The listeners of services below port 1024 whose SDP ports any user could have got. Empty: there are none.
std::vector<Finding> JudgeSdpPorts(const stats::Snapshot& snapshot);

// The services that sdp-run --enable has changed, below `root`. Empty: there are none.
std::vector<Finding> ExamineServices(const std::string& root);

// The steps that a connection to `host` took, from a connection that a preloaded process has tried.
std::vector<Finding> JudgeWay(const std::string& host, const probe::Result& result);
// Resolves HOST:PORT, and tries the way there.
std::vector<Finding> ExamineWay(const std::string& target, const std::string& library);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_DOCTOR_PARTS_H_
