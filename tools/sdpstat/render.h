// What sdpstat prints: text for people, JSON for programs (the schema is in tools/README.md).
#ifndef SDP_TOOLS_SDPSTAT_RENDER_H_
#define SDP_TOOLS_SDPSTAT_RENDER_H_

#include <cstdint>
#include <string>

#include "tools/kernel/tcp_sockets.h"
#include "tools/sdpstat/filter.h"
#include "tools/stats/address_text.h"
#include "tools/stats/stats_image.h"
#include "tools/stats/stats_reader.h"

namespace sdp::sdpstat {

struct Selection {
  bool connections = true;
  bool listeners = true;
  bool fallbacks = false;
  bool fallbacks_of_clients = true;
  int64_t pid = 0;     // 0: every process
  int family = 0;      // 4 or 6; 0: both
  Filter filter = {};  // empty: everything
};

// A Snapshot with only the wanted processes and kinds of record. Totals stay.
stats::Snapshot Select(const stats::Snapshot& snapshot, const Selection& selection);

struct TextOptions {
  bool header = true;
  bool internals = false;  // a second line per row: buffers, messages, stalls, the link's counters
  bool extended = false;   // the user, the role, the age, the reason
  uint64_t now_ns = 0;     // CLOCK_REALTIME, for ages
  size_t width = 0;        // of the screen: longer second lines are broken; 0: none is
  const kernel::LinkTable* links = nullptr;  // with internals: what the kernel says of the LLP
};
std::string RenderTable(const stats::Snapshot& snapshot, const TextOptions& options);
std::string RenderSummary(const stats::Snapshot& snapshot);
// `links` may be null.
std::string RenderJson(const stats::Snapshot& snapshot, const kernel::LinkTable* links);

// In Prometheus' text format, which the node exporter's textfile collector reads. Each process has series of
// its own, so that one that ends takes nothing away from the others' counters.
std::string RenderMetrics(const stats::Snapshot& snapshot);

// Sums over all processes: what is over plus what lives.
struct Sums {
  uint64_t processes = 0, connections = 0;
  uint64_t listeners = 0, unregistered = 0;  // that a port mapper knows, or does not
  stats::TotalsValues totals;
};
Sums Summarise(const stats::Snapshot& snapshot);

// At most four characters of number and a unit of 1024: "0", "999", "1.2K", "345M".
std::string HumanBytes(uint64_t bytes);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_RENDER_H_
