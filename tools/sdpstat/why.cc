#include "tools/sdpstat/why.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sdp::sdpstat {
namespace {

using kernel::TcpSocket;
using stats::Address;
using stats::ConnectionRecord;
using stats::Kind;
using stats::ProcessStats;

bool Same(const Address& a, const Address& b) {
  return a.family == b.family && a.port == b.port && std::memcmp(a.ip, b.ip, sizeof a.ip) == 0;
}

// The descriptor of an SDP connection is the RNIC's link: the kernel knows it by the SDP addresses.
bool Carries(const ConnectionRecord& record, const TcpSocket& socket) {
  if (record.kind == Kind::kConnection)
    return Same(record.sdp_local, socket.local) && Same(record.sdp_peer, socket.peer);
  return record.kind == Kind::kListener && socket.listening() && record.fd == socket.fd &&
         Same(record.local, socket.local);
}

bool IsSdpSideOfListener(const ConnectionRecord& record, const TcpSocket& socket) {
  return record.kind == Kind::kListener && Same(record.sdp_local, socket.local) && socket.listening();
}

// A record of a fall-back is made when the socket is bound at most, so that its local address may be less
// than the kernel's.
bool Decided(const ConnectionRecord& record, const TcpSocket& socket) {
  if (record.kind != Kind::kFallback) return false;
  if (record.role == stats::Role::kAccepting) return socket.listening() && Same(record.local, socket.local);
  return Same(record.peer, socket.peer) &&
         (record.local.port == 0 || record.local.port == socket.local.port) && record.fd == socket.fd;
}

uint64_t FallbacksOf(const ProcessStats& stats) {
  uint64_t sum = 0;
  for (const uint64_t count : stats.totals.fallbacks) sum += count;
  return sum - stats.totals.fallbacks[static_cast<size_t>(stats::FallbackReason::kPlainClient)];
}

const ConnectionRecord* LastDecision(const ProcessStats& stats, const TcpSocket& socket) {
  const ConnectionRecord* last = nullptr;
  for (const ConnectionRecord& record : stats.records) {
    if (Decided(record, socket) && (last == nullptr || record.opened_at_ns > last->opened_at_ns))
      last = &record;
  }
  return last;
}

bool Accepted(const std::vector<TcpSocket>& sockets, const TcpSocket& socket) {
  return std::any_of(sockets.begin(), sockets.end(), [&](const TcpSocket& other) {
    return other.listening() && other.local.port == socket.local.port;
  });
}

Verdict Judge(const ProcessStats* stats, const std::vector<TcpSocket>& sockets, const TcpSocket& socket) {
  Verdict verdict{.socket = socket, .reason = "unknown", .text = {}};
  if (stats == nullptr) return verdict;
  const auto carries = [&](const ConnectionRecord& record) { return Carries(record, socket); };
  const auto found = std::find_if(stats->records.begin(), stats->records.end(), carries);
  if (found != stats->records.end()) {
    verdict.is_sdp = !stats::IsUnregisteredListener(*found);
    const bool listens = found->kind == Kind::kListener;
    const bool noted = !listens && found->reason[0] == '\0' && found->reason_text[0] != '\0';
    verdict.reason = listens ? found->reason : noted ? "tcp-link" : "";
    verdict.text = listens || noted ? found->reason_text : "";
    verdict.registered_at_ns = found->counters.registered_at_ns;
    verdict.socket.local = found->local;
    verdict.socket.peer = found->peer;
  } else if (const ConnectionRecord* decision = LastDecision(*stats, socket)) {
    verdict.reason = decision->reason;
    verdict.text = decision->reason_text;
  } else if (!socket.listening() && Accepted(sockets, socket)) {
    verdict.reason = "plain-client";
  } else if (FallbacksOf(*stats) > stats::kFallbackSlots) {
    verdict.reason = "forgotten";
  }
  return verdict;
}

}  // namespace

std::vector<Verdict> Classify(const ProcessStats* stats, const std::vector<TcpSocket>& sockets,
                              int first_hidden) {
  std::vector<Verdict> out;
  for (const TcpSocket& socket : sockets) {
    const auto own = [&](const ConnectionRecord& record) { return IsSdpSideOfListener(record, socket); };
    if (stats != nullptr && std::any_of(stats->records.begin(), stats->records.end(), own)) continue;
    if (socket.state == "UNCONN") continue;
    Verdict verdict = Judge(stats, sockets, socket);
    if (socket.fd >= first_hidden && verdict.reason == "unknown") continue;
    out.push_back(std::move(verdict));
  }
  return out;
}

}  // namespace sdp::sdpstat
