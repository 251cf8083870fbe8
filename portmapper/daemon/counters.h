// All the daemon counts, under the names an administrator meets in the log and in the metrics.
#ifndef SDP_PORTMAPPER_DAEMON_COUNTERS_H_
#define SDP_PORTMAPPER_DAEMON_COUNTERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "portmapper/daemon/local_server.h"
#include "portmapper/daemon/service.h"
#include "portmapper/daemon/udp_ports.h"

namespace sdp::pm {

struct Counter {
  enum class Kind : uint8_t { kCounter, kGauge };
  const char* group;  // a line of the log
  const char* name;   // with '-', which the metrics write '_'
  Kind kind;
  uint64_t value;
  const char* help;
};

[[nodiscard]] std::vector<Counter> AllCounters(const Service& service, const LocalServer& local,
                                               const UdpPorts& ports);

// A line for each group: "udp: requests 1 duplicates 0 ...".
[[nodiscard]] std::vector<std::string> ToLogLines(const std::vector<Counter>& counters);

// OpenMetrics 1.0: "sdp_pmd_requests_total 1", with types and help, to the "# EOF".
[[nodiscard]] std::string ToOpenMetrics(const std::vector<Counter>& counters);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_COUNTERS_H_
