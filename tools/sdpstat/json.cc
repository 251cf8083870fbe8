#include <nlohmann/json.hpp>

#include "tools/sdpstat/render.h"

namespace sdp::sdpstat {
namespace {

using Json = nlohmann::ordered_json;
using stats::ConnectionRecord;
using stats::Kind;

constexpr int kSchemaVersion = 1;

Json AddressJson(const stats::Address& address) {
  if (address.family == 0) return nullptr;
  return ToString(address);
}

Json MechanismsJson(const uint64_t (&values)[stats::kMechanisms]) {
  return Json{{"bcopy", values[stats::kBcopy]},
              {"read_zcopy", values[stats::kReadZcopy]},
              {"write_zcopy", values[stats::kWriteZcopy]},
              {"transaction", values[stats::kTransaction]}};
}

Json Base(const ConnectionRecord& record) {
  return Json{{"fd", record.fd},
              {"state", stats::ToString(record.counters.state)},
              {"local", AddressJson(record.local)},
              {"peer", AddressJson(record.peer)},
              {"opened_at_ns", record.opened_at_ns},
              {"reason", record.reason},
              {"reason_text", record.reason_text}};
}

Json LlpJson(const ConnectionRecord& record, const kernel::LinkTable* links) {
  const kernel::LinkFacts* facts =
      links == nullptr ? nullptr : links->Find(record.sdp_local, record.sdp_peer);
  if (facts == nullptr) return nullptr;
  return Json{{"rtt_us", facts->rtt_us},
              {"rtt_variance_us", facts->rtt_variance_us},
              {"retransmissions", facts->retransmissions},
              {"congestion_window", facts->congestion_window},
              {"delivery_rate", facts->delivery_rate}};
}

Json ConnectionJson(const ConnectionRecord& record, const kernel::LinkTable* links) {
  const stats::Counters& c = record.counters;
  Json out = Base(record);
  out["role"] = stats::ToString(record.role);
  out["sdp_local"] = AddressJson(record.sdp_local);
  out["sdp_peer"] = AddressJson(record.sdp_peer);
  out["rnic"] = record.rnic;
  out["link"] = record.link;
  out["source_mode"] = stats::ToString(c.source_mode);
  out["sink_mode"] = stats::ToString(c.sink_mode);
  out["send_credits"] = c.send_credits;
  out["posted_receives"] = c.posted_receives;
  out["local_buffer_size"] = record.local_buffer_size;
  out["remote_buffer_size"] = record.remote_buffer_size;
  out["bcopy_threshold"] = record.bcopy_threshold;
  out["receive_queue"] = c.receive_queue;
  out["send_queue"] = c.send_queue;
  out["bytes_in"] = MechanismsJson(c.bytes_in);
  out["bytes_out"] = MechanismsJson(c.bytes_out);
  out["transfers_in"] = MechanismsJson(c.transfers_in);
  out["transfers_out"] = MechanismsJson(c.transfers_out);
  out["messages_in"] = c.messages_in;
  out["messages_out"] = c.messages_out;
  out["gratuitous_updates"] = c.gratuitous_updates;
  out["send_stalls"] = c.send_stalls;
  out["buffered_copies"] = c.buffered_copies;
  out["advertised_in"] = c.advertised_in;
  out["advertised_out"] = c.advertised_out;
  out["mode_changes"] = c.mode_changes;
  out["link_counters"] =
      Json{{"bytes_in", c.link_bytes_in},   {"bytes_out", c.link_bytes_out}, {"fpdus_in", c.link_fpdus_in},
           {"fpdus_out", c.link_fpdus_out}, {"reads", c.link_reads},         {"writes", c.link_writes}};
  out["waits"] = Json{{"polled", c.waits_polled}, {"slept", c.waits_slept}};
  out["doorbells"] = c.doorbells;
  out["llp"] = LlpJson(record, links);
  return out;
}

Json ListenerJson(const ConnectionRecord& record) {
  Json out = Base(record);
  out["sdp_local"] = AddressJson(record.sdp_local);
  out["rnic"] = record.rnic;
  const bool registered = !stats::IsUnregisteredListener(record);
  const uint64_t since = record.counters.registered_at_ns;
  out["registered"] = registered;
  out["registered_at_ns"] = since == 0 ? Json(nullptr) : Json(since);
  // The path of its socket.
  out["port_mapper"] = registered && record.reason_text[0] != '\0' ? Json(record.reason_text) : Json(nullptr);
  out["waiting"] = record.counters.receive_queue;
  out["backlog"] = record.counters.send_queue;
  out["accepted_sdp"] = record.counters.accepted_sdp;
  out["accepted_tcp"] = record.counters.accepted_tcp;
  return out;
}

Json TotalsJson(const stats::TotalsValues& totals) {
  Json fallbacks = Json::object();
  for (size_t i = 0; i < static_cast<size_t>(stats::FallbackReason::kCount); ++i) {
    if (totals.fallbacks[i] != 0) {
      fallbacks[stats::ToString(static_cast<stats::FallbackReason>(i))] = totals.fallbacks[i];
    }
  }
  return Json{{"connections_closed", totals.connections_closed},
              {"connections_aborted", totals.connections_aborted},
              {"bytes_in", MechanismsJson(totals.bytes_in)},
              {"bytes_out", MechanismsJson(totals.bytes_out)},
              {"fallbacks", fallbacks},
              {"slots_refused", totals.slots_refused}};
}

Json ProcessJson(const stats::ProcessStats& process, const kernel::LinkTable* links) {
  Json out{{"pid", process.pid},
           {"uid", process.uid},
           {"program", process.program},
           {"title", process.title.empty() ? Json(nullptr) : Json(process.title)},
           {"start_time", process.start_time},
           {"opened_at_ns", process.opened_at_ns},
           {"ended_at_ns", process.ended_at_ns == 0 ? Json(nullptr) : Json(process.ended_at_ns)},
           {"closed", TotalsJson(process.totals)},
           {"connections", Json::array()},
           {"listeners", Json::array()},
           {"fallbacks", Json::array()}};
  for (const ConnectionRecord& record : process.records) {
    switch (record.kind) {
      case Kind::kConnection:
        out["connections"].push_back(ConnectionJson(record, links));
        break;
      case Kind::kListener:
        out["listeners"].push_back(ListenerJson(record));
        break;
      case Kind::kFallback:
        out["fallbacks"].push_back(Base(record));
        break;
      case Kind::kFree:
        break;
    }
  }
  return out;
}

}  // namespace

std::string RenderJson(const stats::Snapshot& snapshot, const kernel::LinkTable* links) {
  Json processes = Json::array();
  for (const stats::ProcessStats& process : snapshot.processes)
    processes.push_back(ProcessJson(process, links));
  Json ended = Json::array();
  for (const stats::ProcessStats& process : snapshot.ended) ended.push_back(ProcessJson(process, nullptr));
  Sums sums = Summarise(snapshot);
  Json summary = TotalsJson(sums.totals);
  summary["processes"] = sums.processes;
  summary["connections_open"] = sums.connections;
  summary["listeners"] = sums.listeners;
  summary["listeners_unregistered"] = sums.unregistered;
  Json out{{"schema", kSchemaVersion}, {"processes", processes}, {"ended", ended}, {"summary", summary}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sdp::sdpstat
