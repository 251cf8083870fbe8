#include "tools/sdpstat/render.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace sdp::sdpstat {

using stats::ConnectionRecord;
using stats::Kind;
using stats::Snapshot;

namespace {

void SelectProcesses(const std::vector<stats::ProcessStats>& processes, const Selection& selection,
                     std::vector<stats::ProcessStats>* out) {
  // A fall-back of a listener, not of a client.
  const auto is_listener = [](const ConnectionRecord& record) {
    return record.role == stats::Role::kAccepting && record.peer.family == 0;
  };
  // Its row as a listener says more.
  const auto has_row = [&](const stats::ProcessStats& process, const ConnectionRecord& fallback) {
    return std::any_of(process.records.begin(), process.records.end(), [&](const ConnectionRecord& other) {
      return other.kind == Kind::kListener && is_listener(fallback) && other.fd == fallback.fd &&
             std::memcmp(&other.local, &fallback.local, sizeof other.local) == 0;
    });
  };
  for (const stats::ProcessStats& process : processes) {
    if (selection.pid != 0 && process.pid != selection.pid) continue;
    stats::ProcessStats kept = process;
    std::erase_if(kept.records, [&](const ConnectionRecord& record) {
      if (selection.family != 0 && record.local.family != selection.family) return true;
      if (selection.filter && !selection.filter(process, record)) return true;
      switch (record.kind) {
        case Kind::kConnection:
          return !selection.connections;
        case Kind::kListener:
          return !selection.listeners;
        case Kind::kFallback:
          return !selection.fallbacks || has_row(process, record) ||
                 (!selection.fallbacks_of_clients && !is_listener(record));
        case Kind::kFree:
          return true;
      }
      return true;
    });
    out->push_back(std::move(kept));
  }
}

}  // namespace

Snapshot Select(const Snapshot& snapshot, const Selection& selection) {
  Snapshot out;
  out.warnings = snapshot.warnings;
  SelectProcesses(snapshot.processes, selection, &out.processes);
  SelectProcesses(snapshot.ended, selection, &out.ended);
  return out;
}

Sums Summarise(const Snapshot& snapshot) {
  Sums sums;
  for (const stats::ProcessStats& process : snapshot.processes) {
    ++sums.processes;
    sums.totals.connections_closed += process.totals.connections_closed;
    sums.totals.connections_aborted += process.totals.connections_aborted;
    sums.totals.slots_refused += process.totals.slots_refused;
    for (size_t i = 0; i < stats::kMaxReasons; ++i) sums.totals.fallbacks[i] += process.totals.fallbacks[i];
    for (int i = 0; i < stats::kMechanisms; ++i) {
      sums.totals.bytes_in[i] += process.totals.bytes_in[i];
      sums.totals.bytes_out[i] += process.totals.bytes_out[i];
    }
    for (const ConnectionRecord& record : process.records) {
      if (stats::IsUnregisteredListener(record)) {
        ++sums.unregistered;
      } else if (record.kind == Kind::kListener && !stats::IsKernelListener(record)) {
        ++sums.listeners;
      }
      if (record.kind != Kind::kConnection) continue;
      ++sums.connections;
      for (int i = 0; i < stats::kMechanisms; ++i) {
        sums.totals.bytes_in[i] += record.counters.bytes_in[i];
        sums.totals.bytes_out[i] += record.counters.bytes_out[i];
      }
    }
  }
  return sums;
}

std::string HumanBytes(uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes);
  constexpr const char* kUnits = "KMGTPE";
  double value = static_cast<double>(bytes);
  int unit = -1;
  // 999.5 and more would round to four digits.
  while (value >= 999.5 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  char text[16];
  snprintf(text, sizeof text, value < 9.95 ? "%.1f%c" : "%.0f%c", value, kUnits[unit]);
  return text;
}

}  // namespace sdp::sdpstat
