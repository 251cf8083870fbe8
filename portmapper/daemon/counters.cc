#include "portmapper/daemon/counters.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace sdp::pm {

std::vector<Counter> AllCounters(const Service& service, const LocalServer& local, const UdpPorts& ports) {
  constexpr auto kCounter = Counter::Kind::kCounter;
  constexpr auto kGauge = Counter::Kind::kGauge;
  const PmServerCounters& s = service.server().counters();
  const AdmissionCounters& a = service.admission().counters();
  const DirectoryCounters& d = service.directory().counters();
  const LocalServerCounters& l = local.counters();
  return {
      {"service", "requests", kCounter, s.requests, "PMReqs heard, duplicates included"},
      {"service", "duplicates", kCounter, s.duplicates, "PMReqs of a transaction that waits for its PMAck"},
      {"service", "superseded", kCounter, s.superseded,
       "transactions ended by a new PMReq of their four-tuple"},
      {"service", "accepts", kCounter, s.accepts, "PMAccepts"},
      {"service", "denies", kCounter, s.denies, "PMDenys"},
      {"service", "acks", kCounter, s.acks, "PMAcks that ended a transaction"},
      {"service", "unknown-acks", kCounter, s.unknown_acks, "PMAcks of no known transaction"},
      {"service", "timeouts", kCounter, s.timeouts, "transactions whose PMAck never came"},
      {"service", "evicted", kCounter, s.evicted, "transactions discarded because the table was full"},
      {"service", "malformed", kCounter, s.malformed, "datagrams that are no message"},
      {"service", "misdirected", kCounter, s.misdirected, "PMAccepts and PMDenys received"},
      {"service", "waiting", kGauge, service.server().waiting(), "transactions that wait for their PMAck"},
      {"udp", "sockets", kGauge, ports.sockets(),
       "UDP sockets: those asked for, and one for each address beside one for all"},
      {"udp", "answers-unsent", kCounter, ports.unsent(), "answers the kernel did not take"},
      {"udp", "not-unicast", kCounter, ports.not_unicast(), "questions to a broadcast or multicast address"},
      {"udp", "dropped-by-kernel", kCounter, ports.dropped_by_kernel(),
       "datagrams that are no message, or found the queue full"},
      {"udp", "source-limit", kCounter, a.source_limit, "datagrams above the limit of their source"},
      {"udp", "total-limit", kCounter, a.total_limit, "datagrams above the limit of all"},
      {"udp", "privileged-port", kCounter, a.privileged_port, "datagrams from ports below 1024"},
      {"central", "services", kGauge, service.directory().registry().services.size(),
       "services in the registry"},
      {"central", "announced", kGauge, service.directory().announcements().size(), "announcements that hold"},
      {"central", "announcements", kCounter, d.announcements, "announcements accepted, renewals included"},
      {"central", "challenged", kCounter, d.challenged, "announcements without their cookie"},
      {"central", "refused-announcements", kCounter, d.refused,
       "announcements that were refused: not allowed, or too many"},
      {"central", "expired", kCounter, d.expired, "announcements that were not renewed"},
      {"central", "denied-by-access", kCounter, d.denied_by_access, "PMReqs an access list denied"},
      {"central", "pool-exhausted", kCounter, d.pool_exhausted, "times a pool had no free port"},
      {"central", "failovers", kCounter, d.failovers, "PMReqs answered with a lower priority than the best"},
      {"local", "registrations", kGauge, service.server().registrations().size(), "listeners registered now"},
      {"local", "clients", kGauge, local.clients(), "local connections open now"},
      {"local", "connections", kCounter, l.connections, "local connections"},
      {"local", "registered", kCounter, l.registered, "registrations accepted"},
      {"local", "refused", kCounter, l.refused, "registrations refused"},
      {"local", "dropped", kCounter, l.dropped, "local clients dropped: silent, superfluous or too many"},
      {"local", "vanished", kCounter, l.vanished, "listeners gone though still registered"},
  };
}

std::vector<std::string> ToLogLines(const std::vector<Counter>& counters) {
  std::vector<std::string> lines;
  const char* group = "";
  for (const Counter& counter : counters) {
    if (std::strcmp(group, counter.group) != 0) lines.push_back(absl::StrCat(group = counter.group, ":"));
    absl::StrAppend(&lines.back(), " ", counter.name, " ", counter.value);
  }
  return lines;
}

std::string ToOpenMetrics(const std::vector<Counter>& counters) {
  std::string text;
  for (const Counter& counter : counters) {
    const std::string name = absl::StrCat("sdp_pmd_", absl::StrReplaceAll(counter.name, {{"-", "_"}}));
    const bool is_counter = counter.kind == Counter::Kind::kCounter;
    absl::StrAppend(&text, "# TYPE ", name, is_counter ? " counter\n" : " gauge\n", "# HELP ", name, " ",
                    counter.help, "\n", name, is_counter ? "_total " : " ", counter.value, "\n");
  }
  absl::StrAppend(&text, "# EOF\n");
  return text;
}

}  // namespace sdp::pm
