// What sdpstat prints: text for people, JSON for programs (the schema is in tools/README.md).
#ifndef SDP_TOOLS_SDPSTAT_RENDER_H_
#define SDP_TOOLS_SDPSTAT_RENDER_H_

#include <cstdint>
#include <string>

#include "tools/stats/stats_image.h"
#include "tools/stats/stats_reader.h"

namespace sdp::sdpstat {

struct Selection {
  bool connections = true;
  bool listeners = true;
  bool fallbacks = false;
  int64_t pid = 0;  // 0: every process
};

// A Snapshot with only the wanted processes and kinds of record. Totals stay.
stats::Snapshot Select(const stats::Snapshot& snapshot, const Selection& selection);

struct TextOptions {
  bool header = true;
  bool extended = false;  // a second line per row: buffers, counters of the link, the reason
};
std::string RenderTable(const stats::Snapshot& snapshot, const TextOptions& options);
std::string RenderSummary(const stats::Snapshot& snapshot);
std::string RenderJson(const stats::Snapshot& snapshot);

// Sums over all processes: what is over plus what lives.
struct Sums {
  uint64_t processes = 0, connections = 0, listeners = 0;
  stats::TotalsValues totals;
};
Sums Summarise(const stats::Snapshot& snapshot);

// "127.0.0.1:80", "[::1]:80", "*" when there is none.
std::string ToString(const stats::Address& address);
// At most four characters of number and a unit of 1024: "0", "999", "1.2K", "345M".
std::string HumanBytes(uint64_t bytes);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_RENDER_H_
