#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <vector>

#include "tools/sdpstat/render.h"

namespace sdp::sdpstat {
namespace {

using stats::ConnectionRecord;
using stats::Counters;
using stats::Kind;
using stats::ProcessStats;

enum Column {
  kState,
  kRecvQ,
  kSendQ,
  kLocal,
  kPeer,
  kSdp,
  kRnic,
  kMode,
  kCredit,
  kIn,
  kOut,
  kProcess,
  kColumns
};
constexpr const char* kTitles[kColumns] = {"State",
                                           "Recv-Q",
                                           "Send-Q",
                                           "Local Address:Port",
                                           "Peer Address:Port",
                                           "SDP Address:Port",
                                           "RNIC/Link",
                                           "Mode",
                                           "Credit",
                                           "In",
                                           "Out",
                                           "Process"};

struct Row {
  std::array<std::string, kColumns> cells;
  std::string detail;
};

// "1.2G" by Bcopy alone, "1.2G+R3.4G" with 3.4 GiB by Read Zcopy: W is Write Zcopy, T Transaction.
std::string ByMechanism(const uint64_t (&bytes)[stats::kMechanisms]) {
  constexpr const char* kPrefix[stats::kMechanisms] = {"", "R", "W", "T"};
  std::string out;
  for (int i = 0; i < stats::kMechanisms; ++i) {
    if (bytes[i] == 0) continue;
    out += (out.empty() ? "" : "+") + std::string(kPrefix[i]) + HumanBytes(bytes[i]);
  }
  return out.empty() ? "0" : out;
}

char Initial(stats::FlowMode mode) { return static_cast<char>(std::toupper(stats::ToString(mode)[0])); }

std::string Detail(const ConnectionRecord& record) {
  const Counters& c = record.counters;
  auto item = [](const char* name, uint64_t value) {
    return std::string(" ") + name + ":" + std::to_string(value);
  };
  std::string out;
  if (record.kind == Kind::kConnection) {
    out += std::string(" ") + stats::ToString(record.role);
    out += item("rcvbuf", record.local_buffer_size) + item("peerbuf", record.remote_buffer_size);
    if (record.bcopy_threshold != 0) out += item("bcopy_below", record.bcopy_threshold);
    out += item("msgs_in", c.messages_in) + item("msgs_out", c.messages_out) +
           item("updates", c.gratuitous_updates);
    out += item("stalls", c.send_stalls) + item("copied", c.buffered_copies);
    out += item("link_in", c.link_bytes_in) + item("link_out", c.link_bytes_out);
    out += item("fpdus_in", c.link_fpdus_in) + item("fpdus_out", c.link_fpdus_out);
    out += item("reads", c.link_reads) + item("writes", c.link_writes);
  } else if (record.kind == Kind::kListener) {
    out += item("accepted_sdp", c.accepted_sdp) + item("accepted_tcp", c.accepted_tcp);
  }
  if (record.reason[0] != '\0') {
    out += std::string(" reason:") + record.reason;
    if (record.reason_text[0] != '\0') out += std::string(" (") + record.reason_text + ")";
  }
  return out.empty() ? out : "       " + out;
}

Row MakeRow(const ProcessStats& process, const ConnectionRecord& record) {
  const Counters& c = record.counters;
  Row row;
  auto& cells = row.cells;
  cells[kState] = stats::ToString(c.state);
  cells[kRecvQ] = std::to_string(c.receive_queue);
  cells[kSendQ] = std::to_string(c.send_queue);
  cells[kLocal] = ToString(record.local);
  cells[kPeer] = ToString(record.peer);
  bool listener = record.kind == Kind::kListener;
  bool connecting = record.role == stats::Role::kConnecting;
  // The address the port mapper handed out: the accepting end's.
  cells[kSdp] = ToString(listener || !connecting ? record.sdp_local : record.sdp_peer);
  cells[kRnic] = record.rnic[0] == '\0' ? "-" : std::string(record.rnic) + "/" + record.link;
  cells[kMode] = cells[kCredit] = cells[kIn] = cells[kOut] = "-";
  if (record.kind == Kind::kConnection) {
    cells[kMode] = std::string(1, Initial(c.source_mode)) + "/" + Initial(c.sink_mode);
    cells[kCredit] = std::to_string(c.send_credits) + "/" + std::to_string(c.posted_receives);
    cells[kIn] = ByMechanism(c.bytes_in);
    cells[kOut] = ByMechanism(c.bytes_out);
  } else if (record.kind == Kind::kFallback) {
    cells[kRnic] = record.reason;
  }
  cells[kProcess] = process.program + "[" + std::to_string(process.pid) + "]";
  if (record.fd >= 0) cells[kProcess] += ":" + std::to_string(record.fd);
  row.detail = Detail(record);
  return row;
}

std::string Layout(const std::vector<Row>& rows, const TextOptions& options) {
  std::array<size_t, kColumns> width{};
  for (int i = 0; i < kColumns; ++i) {
    if (options.header) width[i] = std::string(kTitles[i]).size();
    for (const Row& row : rows) width[i] = std::max(width[i], row.cells[i].size());
  }
  std::string out;
  auto add_line = [&](const auto& cells) {
    std::string line;
    for (int i = 0; i < kColumns; ++i) {
      std::string cell = cells[i];
      std::string space(width[i] - cell.size(), ' ');
      bool right = i == kRecvQ || i == kSendQ;
      line += (i == 0 ? "" : "  ") + (right ? space + cell : cell + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  if (options.header) add_line(kTitles);
  for (const Row& row : rows) {
    add_line(row.cells);
    if (options.extended && !row.detail.empty()) out += row.detail + "\n";
  }
  return out;
}

}  // namespace

std::string RenderTable(const stats::Snapshot& snapshot, const TextOptions& options) {
  std::vector<Row> rows;
  for (const ProcessStats& process : snapshot.processes) {
    for (const ConnectionRecord& record : process.records) rows.push_back(MakeRow(process, record));
  }
  return rows.empty() ? "" : Layout(rows, options);
}

std::string RenderSummary(const stats::Snapshot& snapshot) {
  Sums sums = Summarise(snapshot);
  std::string out = "processes    " + std::to_string(sums.processes) + "\n";
  out += "listeners    " + std::to_string(sums.listeners) + "\n";
  out += "connections  " + std::to_string(sums.connections) + " open, " +
         std::to_string(sums.totals.connections_closed) + " closed, " +
         std::to_string(sums.totals.connections_aborted) + " of these with an error\n";
  constexpr const char* kNames[stats::kMechanisms] = {"bcopy", "read-zcopy", "write-zcopy", "transaction"};
  for (int i = 0; i < stats::kMechanisms; ++i) {
    std::string name = kNames[i];
    out += name + std::string(13 - name.size(), ' ') + std::to_string(sums.totals.bytes_in[i]) +
           " bytes in, " + std::to_string(sums.totals.bytes_out[i]) + " bytes out\n";
  }
  for (size_t i = 0; i < static_cast<size_t>(stats::FallbackReason::kCount); ++i) {
    if (sums.totals.fallbacks[i] == 0) continue;
    out += "plain TCP    " + std::to_string(sums.totals.fallbacks[i]) + " x " +
           stats::ToString(static_cast<stats::FallbackReason>(i)) + "\n";
  }
  if (sums.totals.slots_refused != 0) {
    out += "not shown    " + std::to_string(sums.totals.slots_refused) +
           " sockets: the stats file could not grow\n";
  }
  return out;
}

}  // namespace sdp::sdpstat
