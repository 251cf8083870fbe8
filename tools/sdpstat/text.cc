#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
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

std::string Item(const char* name, const std::string& value) { return std::string(" ") + name + ":" + value; }
std::string Item(const char* name, uint64_t value) { return Item(name, std::to_string(value)); }

std::string Milliseconds(uint32_t microseconds) {
  char text[24];
  snprintf(text, sizeof text, "%.3f", microseconds / 1000.0);
  return text;
}

std::string Internals(const ConnectionRecord& record, const TextOptions& options) {
  const Counters& c = record.counters;
  if (record.kind == Kind::kListener)
    return Item("accepted_sdp", c.accepted_sdp) + Item("accepted_tcp", c.accepted_tcp);
  if (record.kind != Kind::kConnection) return "";
  std::string out = Item("rcvbuf", record.local_buffer_size) + Item("peerbuf", record.remote_buffer_size);
  if (record.bcopy_threshold != 0) out += Item("bcopy_below", record.bcopy_threshold);
  out += Item("msgs_in", c.messages_in) + Item("msgs_out", c.messages_out) +
         Item("updates", c.gratuitous_updates);
  out += Item("stalls", c.send_stalls) + Item("copied", c.buffered_copies);
  for (int i = 0; i < stats::kMechanisms; ++i) {
    constexpr const char* kNames[stats::kMechanisms] = {"bcopy", "read_zcopy", "write_zcopy", "transaction"};
    if (c.transfers_in[i] + c.transfers_out[i] == 0) continue;
    out += Item(kNames[i], std::to_string(c.transfers_in[i]) + "/" + std::to_string(c.transfers_out[i]));
    out += "(" + std::to_string(c.bytes_in[i]) + "/" + std::to_string(c.bytes_out[i]) + ")";
  }
  if (c.advertised_in + c.advertised_out != 0) {
    out += Item("advertised", std::to_string(c.advertised_in) + "/" + std::to_string(c.advertised_out));
  }
  if (c.mode_changes != 0) out += Item("mode_changes", c.mode_changes);
  out += Item("link_in", c.link_bytes_in) + Item("link_out", c.link_bytes_out);
  out += Item("fpdus_in", c.link_fpdus_in) + Item("fpdus_out", c.link_fpdus_out);
  out += Item("reads", c.link_reads) + Item("writes", c.link_writes);
  if (c.waits_polled + c.waits_slept != 0)
    out += Item("polled", c.waits_polled) + Item("slept", c.waits_slept);
  if (std::string_view(record.link) == "local") out += Item("doorbells", c.doorbells);
  const kernel::LinkFacts* llp =
      options.links == nullptr ? nullptr : options.links->Find(record.sdp_local, record.sdp_peer);
  if (llp == nullptr) return out;
  return out + Item("rtt", Milliseconds(llp->rtt_us) + "/" + Milliseconds(llp->rtt_variance_us)) +
         Item("cwnd", llp->congestion_window) + Item("retrans", llp->retransmissions);
}

std::string Age(uint64_t nanoseconds) {
  const uint64_t seconds = nanoseconds / 1'000'000'000;
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3600) return std::to_string(seconds / 60) + "m" + std::to_string(seconds % 60) + "s";
  return std::to_string(seconds / 3600) + "h" + std::to_string(seconds / 60 % 60) + "m";
}

std::string Extended(const ProcessStats& process, const ConnectionRecord& record,
                     const TextOptions& options) {
  std::string out = Item("uid", process.uid);
  if (record.kind == Kind::kConnection) out += Item("role", std::string(stats::ToString(record.role)));
  if (options.now_ns > record.opened_at_ns && record.opened_at_ns != 0)
    out += Item("age", Age(options.now_ns - record.opened_at_ns));
  if (const uint64_t since = record.counters.registered_at_ns; since != 0) {
    out += Item("registered", options.now_ns > since ? Age(options.now_ns - since) : "0s");
    if (record.reason_text[0] != '\0') out += std::string(" at ") + record.reason_text;
  }
  if (record.reason[0] == '\0') return out;
  out += Item("reason", std::string(record.reason));
  return record.reason_text[0] == '\0' ? out : out + " (" + record.reason_text + ")";
}

// Words, each behind a space, as lines that are indented and no longer than the screen is wide, if words
// allow.
std::string Broken(const std::string& words, size_t width) {
  const std::string indent(7, ' ');
  std::string out;
  std::string line;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at + 1), words.size());
    if (width != 0 && !line.empty() && indent.size() + line.size() + end - at > width) {
      out += indent + line + "\n";
      line.clear();
    }
    line += words.substr(at, end - at);
    at = end;
  }
  return line.empty() ? out : out + indent + line;
}

std::string Detail(const ProcessStats& process, const ConnectionRecord& record, const TextOptions& options) {
  std::string out = options.extended ? Extended(process, record, options) : "";
  if (options.internals) out += Internals(record, options);
  return Broken(out, options.width);
}

Row MakeRow(const ProcessStats& process, const ConnectionRecord& record, const TextOptions& options) {
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
  if (!process.title.empty()) cells[kProcess] += " (" + process.title + ")";
  if (process.ended_at_ns != 0) {
    cells[kProcess] += options.now_ns > process.ended_at_ns
                           ? " ended " + Age(options.now_ns - process.ended_at_ns) + " ago"
                           : " ended";
  }
  row.detail = Detail(process, record, options);
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
    if (!row.detail.empty()) out += row.detail + "\n";
  }
  return out;
}

}  // namespace

std::string RenderTable(const stats::Snapshot& snapshot, const TextOptions& options) {
  std::vector<Row> rows;
  for (const ProcessStats& process : snapshot.processes) {
    for (const ConnectionRecord& record : process.records) rows.push_back(MakeRow(process, record, options));
  }
  return Layout(rows, options);
}

std::string RenderSummary(const stats::Snapshot& snapshot) {
  Sums sums = Summarise(snapshot);
  std::string out = "processes    " + std::to_string(sums.processes) + "\n";
  out += "listeners    " + std::to_string(sums.listeners);
  if (sums.unregistered != 0)
    out += ", and " + std::to_string(sums.unregistered) + " that no port mapper knows";
  out += "\n";
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
