#include "tools/sdpstat/plain_clients.h"

#include <algorithm>
#include <cstdio>

#include "tools/kernel/process_facts.h"
#include "tools/kernel/tcp_sockets.h"
#include "tools/sdpstat/why.h"

namespace sdp::sdpstat {
namespace {

constexpr char kReason[] = "plain-client";

stats::ConnectionRecord RecordOf(const kernel::TcpSocket& socket) {
  stats::ConnectionRecord record;
  record.kind = stats::Kind::kFallback;
  record.role = stats::Role::kAccepting;
  record.fd = socket.fd;
  record.local = socket.local;
  record.peer = socket.peer;
  record.counters.state = stats::State::kTcp;
  std::snprintf(record.reason, sizeof record.reason, "%s", kReason);
  return record;
}

}  // namespace

void AddPlainClients(stats::Snapshot* snapshot) {
  for (stats::ProcessStats& process : snapshot->processes) {
    const bool has_some = std::any_of(
        process.records.begin(), process.records.end(), [](const stats::ConnectionRecord& record) {
          return record.kind == stats::Kind::kListener && record.counters.accepted_tcp != 0;
        });
    if (!has_some) continue;
    bool readable = false;
    const auto sockets = kernel::TcpSocketsOf(process.pid, &readable);
    for (const Verdict& verdict : Classify(&process, sockets, kernel::FirstHiddenNumber(process.pid))) {
      if (verdict.reason == kReason) process.records.push_back(RecordOf(verdict.socket));
    }
  }
}

}  // namespace sdp::sdpstat
