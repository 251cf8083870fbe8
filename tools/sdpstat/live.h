// What the live screen shows: rows with rates, out of two looks at the same processes. Pure.
#ifndef SDP_TOOLS_SDPSTAT_LIVE_H_
#define SDP_TOOLS_SDPSTAT_LIVE_H_

#include <chrono>
#include <string>
#include <vector>

#include "tools/sdpstat/filter.h"
#include "tools/stats/stats_reader.h"

namespace sdp::sdpstat {

enum class SortKey : uint8_t { kRate, kIn, kOut, kTotal, kProcess, kPeer, kKeys };
const char* ToString(SortKey key);

struct LiveRow {
  uint32_t pid = 0;
  std::string program;
  std::string title;
  stats::ConnectionRecord record;
  double in_rate = 0;  // payload bytes/s since the look before
  double out_rate = 0;
  double message_rate = 0;  // messages/s, both directions
};

struct LiveView {
  std::vector<LiveRow> rows;
  double in_rate = 0;  // of all processes, filtered or not, closed connections included
  double out_rate = 0;
  size_t processes = 0, connections = 0, listeners = 0;
  uint64_t fallbacks = 0;  // since the processes started
};

struct LiveOptions {
  SortKey key = SortKey::kRate;
  bool reversed = false;
  bool fallbacks = false;  // rows of sockets that are TCP too
  Filter filter = {};      // empty: everything
};

// `before` is what was seen `elapsed` ago; a connection that was not there then has the rate of all it moved.
LiveView Compare(const stats::Snapshot& before, const stats::Snapshot& now,
                 std::chrono::duration<double> elapsed, const LiveOptions& options);

// One line per row, titles first, padded to columns: what matters most comes first, and fits on 80 columns.
struct LiveTable {
  std::vector<std::string> lines;
  std::vector<size_t> ends;  // of each column
};
LiveTable RenderLive(const LiveView& view);

// How many columns can be scrolled out of sight: all but the first, which stays, and the last.
size_t MostHidden(const LiveTable& table);
// The lines for a screen that is `width` wide, without the `hidden` columns behind the first. The titles end
// with > if there is more at the right.
std::vector<std::string> ScrollSideways(const LiveTable& table, size_t hidden, size_t width);

// The command: a screen of its own until q is pressed; without a terminal the lines again and again. Returns
// the exit status.
struct WatchSource {
  std::function<stats::Snapshot()> read;
  std::chrono::duration<double> interval{1};
  std::string filter;  // to begin with
  bool fallbacks = false;
};
int Watch(const WatchSource& source);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_LIVE_H_
