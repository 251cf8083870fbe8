#include "tools/sdpstat/live.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/sdpstat/render.h"

namespace sdp::sdpstat {
namespace {

using stats::ConnectionRecord;
using stats::Kind;
using stats::ProcessStats;

struct Moved {
  uint64_t in = 0, out = 0, messages = 0;
};

Moved Sum(const ConnectionRecord& record) {
  Moved moved;
  for (int i = 0; i < stats::kMechanisms; ++i) {
    moved.in += record.counters.bytes_in[i];
    moved.out += record.counters.bytes_out[i];
  }
  moved.messages = record.counters.messages_in + record.counters.messages_out;
  return moved;
}

Moved Sum(const ProcessStats& process) {
  Moved moved;
  for (int i = 0; i < stats::kMechanisms; ++i) {
    moved.in += process.totals.bytes_in[i];
    moved.out += process.totals.bytes_out[i];
  }
  for (const ConnectionRecord& record : process.records) {
    if (record.kind != Kind::kConnection) continue;
    const Moved one = Sum(record);
    moved.in += one.in;
    moved.out += one.out;
  }
  return moved;
}

// A connection from one look to the next: numbers of descriptors come again, opening times do not.
using Identity = std::tuple<uint32_t, uint64_t, uint64_t, int>;
Identity IdentityOf(const ProcessStats& process, const ConnectionRecord& record) {
  return {process.pid, process.start_time, record.opened_at_ns, record.fd};
}

double Rate(uint64_t now, uint64_t before, double seconds) {
  return seconds <= 0 || now < before ? 0 : static_cast<double>(now - before) / seconds;
}

std::string Key(const stats::Address& address) {
  return std::string(reinterpret_cast<const char*>(address.ip), sizeof address.ip) +
         std::to_string(100000 + address.port);
}

bool Before(const LiveRow& a, const LiveRow& b, SortKey key) {
  const auto total = [](const LiveRow& row) { return Sum(row.record).in + Sum(row.record).out; };
  switch (key) {
    case SortKey::kRate:
      return a.in_rate + a.out_rate > b.in_rate + b.out_rate;
    case SortKey::kIn:
      return a.in_rate > b.in_rate;
    case SortKey::kOut:
      return a.out_rate > b.out_rate;
    case SortKey::kTotal:
      return total(a) > total(b);
    case SortKey::kProcess:
      return std::tie(a.program, a.pid) < std::tie(b.program, b.pid);
    case SortKey::kPeer:
      return Key(a.record.peer) < Key(b.record.peer);
    case SortKey::kKeys:
      break;
  }
  return false;
}

std::string HumanRate(double rate) { return HumanBytes(static_cast<uint64_t>(rate)); }

}  // namespace

const char* ToString(SortKey key) {
  switch (key) {
    case SortKey::kRate:
      return "rate";
    case SortKey::kIn:
      return "in";
    case SortKey::kOut:
      return "out";
    case SortKey::kTotal:
      return "total";
    case SortKey::kProcess:
      return "process";
    case SortKey::kPeer:
      return "peer";
    case SortKey::kKeys:
      break;
  }
  return "rate";
}

LiveView Compare(const stats::Snapshot& before, const stats::Snapshot& now,
                 std::chrono::duration<double> elapsed, const LiveOptions& options) {
  std::map<Identity, Moved> old_rows;
  std::map<std::pair<uint32_t, uint64_t>, Moved> old_processes;
  for (const ProcessStats& process : before.processes) {
    old_processes[{process.pid, process.start_time}] = Sum(process);
    for (const ConnectionRecord& record : process.records)
      old_rows[IdentityOf(process, record)] = Sum(record);
  }
  const double seconds = elapsed.count();
  LiveView view;
  view.processes = now.processes.size();
  for (const ProcessStats& process : now.processes) {
    const Moved all = Sum(process);
    const Moved old_all = old_processes[{process.pid, process.start_time}];
    view.in_rate += Rate(all.in, old_all.in, seconds);
    view.out_rate += Rate(all.out, old_all.out, seconds);
    for (const uint64_t count : process.totals.fallbacks) view.fallbacks += count;
    for (const ConnectionRecord& record : process.records) {
      view.connections += record.kind == Kind::kConnection ? 1 : 0;
      const bool listens = record.counters.state == stats::State::kListening;
      view.listeners += listens && !stats::IsKernelListener(record) ? 1 : 0;
      if (record.kind == Kind::kFallback && !options.fallbacks) continue;
      if (options.filter && !options.filter(process, record)) continue;
      const Moved moved = Sum(record);
      const Moved old = old_rows[IdentityOf(process, record)];
      view.rows.push_back({.pid = process.pid,
                           .program = process.program,
                           .title = process.title,
                           .record = record,
                           .in_rate = Rate(moved.in, old.in, seconds),
                           .out_rate = Rate(moved.out, old.out, seconds),
                           .message_rate = Rate(moved.messages, old.messages, seconds)});
    }
  }
  std::stable_sort(view.rows.begin(), view.rows.end(), [&](const LiveRow& a, const LiveRow& b) {
    return options.reversed ? Before(b, a, options.key) : Before(a, b, options.key);
  });
  return view;
}

namespace {

using Cells = std::vector<std::string>;

struct Column {
  const char* title;
  bool numbers;  // flush right
};
// What tells whether all is well stands first: it is what fits on 80 columns.
constexpr Column kColumns[] = {{"Process", false}, {"Peer", false},  {"In/s", true},   {"Out/s", true},
                               {"State", false},   {"Mode", false},  {"Msg/s", true},  {"In", true},
                               {"Out", true},      {"Credit", true}, {"Stalls", true}, {"Local", false},
                               {"Title", false}};

Cells CellsOf(const LiveRow& row) {
  const stats::Counters& c = row.record.counters;
  const std::string process = row.program + "[" + std::to_string(row.pid) + "]";
  const std::string local = stats::ToString(row.record.local);
  if (row.record.kind != Kind::kConnection) {
    const std::string peer =
        row.record.kind == Kind::kFallback ? stats::ToString(row.record.peer) + " " + row.record.reason : "*";
    return {process, peer, "-",   "-",      stats::ToString(c.state), "-", "-", "-", "-",
            "-",     "-",  local, row.title};
  }
  const Moved moved = Sum(row.record);
  const std::string mode = {static_cast<char>(stats::ToString(c.source_mode)[0] - 'a' + 'A'), '/',
                            static_cast<char>(stats::ToString(c.sink_mode)[0] - 'a' + 'A')};
  return {process,
          stats::ToString(row.record.peer),
          HumanRate(row.in_rate),
          HumanRate(row.out_rate),
          stats::ToString(c.state),
          mode,
          HumanRate(row.message_rate),
          HumanBytes(moved.in),
          HumanBytes(moved.out),
          std::to_string(c.send_credits) + "/" + std::to_string(c.posted_receives),
          std::to_string(c.send_stalls),
          local,
          row.title};
}

}  // namespace

LiveTable RenderLive(const LiveView& view) {
  std::vector<Cells> cells(1);
  for (const Column& column : kColumns) cells.front().emplace_back(column.title);
  for (const LiveRow& row : view.rows) cells.push_back(CellsOf(row));
  std::vector<size_t> width(cells.front().size());
  for (const Cells& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  LiveTable table;
  for (const size_t one : width) table.ends.push_back(table.ends.empty() ? one : table.ends.back() + 2 + one);
  for (const Cells& row : cells) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(width[i] - row[i].size(), ' ');
      line += (i == 0 ? "" : "  ") + (kColumns[i].numbers ? space + row[i] : row[i] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    table.lines.push_back(std::move(line));
  }
  return table;
}

size_t MostHidden(const LiveTable& table) { return table.ends.size() - 2; }

std::vector<std::string> ScrollSideways(const LiveTable& table, size_t hidden, size_t width) {
  const size_t stays = table.ends.front();
  const size_t gone = table.ends[std::min(hidden, MostHidden(table))] - stays;
  std::vector<std::string> out;
  bool more = false;
  for (std::string line : table.lines) {
    if (line.size() > stays) line.erase(stays, gone);
    more = more || line.size() > width;
    out.push_back(line.substr(0, width));
  }
  if (more && width > 0) {
    out.front().resize(width, ' ');
    out.front().back() = '>';
  }
  return out;
}

}  // namespace sdp::sdpstat
