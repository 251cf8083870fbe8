#include "preload/socket/stats.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <new>

#include "preload/allowed_calls.h"
#include "preload/config.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/link_names.h"
#include "preload/socket/session_moves.h"
#include "preload/socket/tcp_answers.h"
#include "preload/socket/tcp_info.h"

namespace sdp::preload {
namespace {

std::atomic<stats::StatsSegment*> segment{nullptr};

stats::State StateOf(const Session& session) {
  switch (session.engine().state()) {
    case engine::State::kIdle:
    case engine::State::kHelloSent:
    case engine::State::kHelloReceived:
      return stats::State::kHandshake;
    case engine::State::kEstablished:
      return stats::State::kEstablished;
    case engine::State::kSendClosed:
      return stats::State::kSendClosed;
    case engine::State::kReceiveClosed:
      return stats::State::kReceiveClosed;
    case engine::State::kClosed:
      return stats::State::kClosing;
    case engine::State::kAborted:
      if (session.kinship().left_first() && session.cause().end == verbs::LinkEnd::kClosedByPeer)
        return stats::State::kClosing;
      return PeerLeftInOrder(session.engine(), session.cause()) ? stats::State::kReceiveClosed
                                                                : stats::State::kAborted;
  }
  return stats::State::kNone;
}

[[gnu::always_inline]] inline stats::Counters CountConnection(const Session& session) {
  const engine::Stats& s = session.engine().stats();
  const verbs::QpCounters link = Session::Moves::CountersOfAllLinks(session);
  stats::Counters c;
  c.state = StateOf(session);
  c.ever_established = 1;  // a session is counted from the end of its handshake on
  c.source_mode = static_cast<stats::FlowMode>(s.source_mode);
  c.sink_mode = static_cast<stats::FlowMode>(s.sink_mode);
  c.send_credits = s.send_credits;
  c.posted_receives = s.posted_receives;
  c.receive_queue = s.receive_queue;
  c.send_queue = s.send_queue + session.queue_pair().unsent_bytes();
  c.bytes_in[stats::kBcopy] = s.bcopy_bytes_in;
  c.bytes_out[stats::kBcopy] = s.bcopy_bytes_out;
  c.bytes_in[stats::kReadZcopy] = s.read_zcopy_bytes_in;
  c.bytes_out[stats::kReadZcopy] = s.read_zcopy_bytes_out;
  c.bytes_in[stats::kWriteZcopy] = s.write_zcopy_bytes_in;
  c.bytes_out[stats::kWriteZcopy] = s.write_zcopy_bytes_out;
  c.bytes_in[stats::kTransaction] = s.transaction_bytes_in;
  c.bytes_out[stats::kTransaction] = s.transaction_bytes_out;
  const stats::TransferCounts& transfers = session.recorder().transfers();
  std::copy_n(std::begin(transfers.in), stats::kMechanisms, c.transfers_in);
  std::copy_n(std::begin(transfers.out), stats::kMechanisms, c.transfers_out);
  c.advertised_in = session.engine().advertised_in();
  c.advertised_out = session.engine().advertised_out();
  c.mode_changes = transfers.mode_changes;
  c.messages_in = s.messages_in;
  c.messages_out = s.messages_out;
  c.gratuitous_updates = s.gratuitous_updates_out;
  c.send_stalls = s.send_stalls;
  c.buffered_copies = s.buffered_copies;
  c.link_bytes_in = link.bytes_in;
  c.link_bytes_out = link.bytes_out;
  c.link_fpdus_in = link.fpdus_in;
  c.link_fpdus_out = link.fpdus_out;
  c.link_reads = link.read_calls;
  c.link_writes = link.write_calls;
  c.waits_polled = session.reads().waits.polled;
  c.waits_slept = session.reads().waits.slept;
  c.doorbells = link.doorbells;
  return c;
}

}  // namespace

stats::StatsSegment* OpenStatistics() { return segment.load(std::memory_order_acquire); }

stats::StatsSegment* Statistics() {
  if (Confined()) return nullptr;
  if (stats::StatsSegment* existing = OpenStatistics()) return existing;
  static std::once_flag once;
  const auto open = [] {
    static stats::SystemCalls calls = stats::PlainSystemCalls();
    calls.close = real.close;
    calls.read = real.read;
    std::string error;
    auto opened = stats::StatsSegment::Open(config().stats_dir, calls, &error);
    if (opened == nullptr) SDP_LOG(kInfo, "sdpstat will not see this process: %s", error.c_str());
    segment.store(opened.release(), std::memory_order_release);  // lives as long as the process
  };
  try {
    std::call_once(once, open);
  } catch (const std::bad_alloc&) {  // no connection fails for its statistics; the next one tries again
  }
  return OpenStatistics();
}

void PublishCounters(stats::Slot* slot, const Session& session) {
  stats::StatsSegment::Publish(slot, CountConnection(session));
}

stats::ConnectionRecord DescribeConnection(const Session& session, stats::Role role, int fd,
                                           const Address& local, const Address& peer,
                                           const Address& sdp_peer) {
  stats::ConnectionRecord record;
  record.counters = CountConnection(session);
  record.kind = stats::Kind::kConnection;
  record.role = role;
  record.fd = fd;
  record.local = stats::ToAddress(local.get());
  record.peer = stats::ToAddress(peer.get());
  // The connection of a kernel RNIC has names that the descriptor does not know.
  const auto& [own, other] = NamesOf(session);
  const bool may_ask = !Confined();  // else the ports are those that the program knows
  record.sdp_local = stats::ToAddress((own.length != 0 ? own : may_ask ? LocalAddress(fd) : local).get());
  record.sdp_peer = stats::ToAddress((sdp_peer.length != 0 ? sdp_peer
                                      : other.length != 0  ? other
                                      : may_ask            ? PeerAddress(fd)
                                                           : peer)
                                         .get());
  record.local_buffer_size = session.engine().stats().local_buffer_size;
  record.remote_buffer_size = session.engine().stats().remote_buffer_size;
  // A threshold above every size is shown as 0: the connection only copies.
  const engine::Engine& e = session.engine();
  const uint32_t threshold = config().force == Mechanism::kChosen
                                 ? std::min(e.source_threshold(), e.sink_threshold())
                                 : e.source_threshold();
  record.bcopy_threshold = threshold == UINT32_MAX ? 0 : threshold;
  stats::SetText(record.rnic, session.queue_pair().facts().rnic);
  stats::SetText(record.link, session.queue_pair().facts().link);
  if (record.counters.state == stats::State::kAborted) {
    stats::SetText(record.reason, engine::ToString(session.engine().abort_reason()));
    stats::SetText(record.reason_text, session.cause().text.c_str());
  } else if (WithinHost(local, peer)) {
    stats::SetText(record.reason_text, session.queue_pair().facts().why_not_local.c_str());
  }
  return record;
}

stats::ConnectionRecord DescribeListener(int fd, const Address& local, const Address& sdp_local) {
  stats::ConnectionRecord record;
  record.counters.state = stats::State::kListening;
  record.counters.send_queue = BacklogInForce(fd);
  record.kind = stats::Kind::kListener;
  record.role = stats::Role::kAccepting;
  record.fd = fd;
  record.local = stats::ToAddress(local.get());
  record.sdp_local = stats::ToAddress(sdp_local.get());
  record.opened_at_ns = stats::WallClock();
  stats::SetText(record.rnic, "soft");
  stats::SetText(record.link, "tcp");
  return record;
}

void RecordFallback(int fd, stats::FallbackReason reason, const std::string& text, const Address& peer,
                    stats::State state) {
  stats::StatsSegment* const statistics = Statistics();
  if (statistics == nullptr) return;
  stats::ConnectionRecord record;
  record.counters.state = state;
  record.role = peer.length != 0 ? stats::Role::kConnecting : stats::Role::kAccepting;
  record.fallback = reason;
  record.fd = fd;
  record.local = stats::ToAddress(LocalAddress(fd).get());
  record.peer = stats::ToAddress(peer.get());
  stats::SetText(record.reason_text, text.c_str());
  statistics->RecordFallback(record);
}

}  // namespace sdp::preload
