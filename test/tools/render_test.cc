#include "tools/sdpstat/render.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "test/tools/stats_fixture.h"
#include "tools/sdpstat/mistyped.h"

namespace sdp::sdpstat {
namespace {

using stats::ConnectionRecord;
using stats::Kind;

stats::Snapshot Sample() {
  stats::Snapshot snapshot;
  stats::ProcessStats process;
  process.pid = 1234;
  process.program = "nginx";
  process.title = "worker process";
  process.totals.connections_closed = 5;
  process.totals.bytes_in[stats::kBcopy] = 1000;
  process.totals.fallbacks[static_cast<size_t>(stats::FallbackReason::kPmDenied)] = 3;
  process.records.push_back(stats::EstablishedConnection());
  ConnectionRecord listener;
  listener.kind = Kind::kListener;
  listener.counters.state = stats::State::kListening;
  listener.local = stats::Ipv4(2, 80);
  listener.sdp_local = stats::Ipv4(2, 50002);
  listener.counters.accepted_sdp = 12;
  process.records.push_back(listener);
  ConnectionRecord fallback;
  fallback.kind = Kind::kFallback;
  fallback.counters.state = stats::State::kTcp;
  stats::SetText(fallback.reason, "pm-denied");
  stats::SetText(fallback.reason_text, "10.0.0.9 knows no SDP listener on port 25");
  process.records.push_back(fallback);
  snapshot.processes.push_back(process);
  return snapshot;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST_CASE("a listener's row says whether a port mapper knows it") {
  stats::Snapshot snapshot = Sample();
  ConnectionRecord& listener = snapshot.processes[0].records[1];
  listener.counters.registered_at_ns = 40'000'000'000;
  stats::SetText(listener.reason_text, "/run/sdp/pmd.sock");
  TextOptions extended;
  extended.extended = true;
  extended.now_ns = 100'000'000'000;
  CHECK_THAT(RenderTable(snapshot, extended), Catch::Contains("registered:1m0s at /run/sdp/pmd.sock"));
  auto json = nlohmann::json::parse(RenderJson(snapshot, nullptr))["processes"][0]["listeners"][0];
  CHECK(json["registered"] == true);
  CHECK(json["registered_at_ns"] == 40'000'000'000);
  CHECK(json["port_mapper"] == "/run/sdp/pmd.sock");
  listener.counters.state = stats::State::kUnregistered;
  listener.counters.registered_at_ns = 0;
  stats::SetText(listener.reason, "not-registered");
  stats::SetText(listener.reason_text, "no sdp-pmd (/a)");
  CHECK(Lines(RenderTable(Select(snapshot, {}), {}))[2].starts_with("unregistered"));
  CHECK_THAT(RenderTable(snapshot, extended), Catch::Contains("reason:not-registered (no sdp-pmd (/a))"));
  CHECK_THAT(RenderSummary(snapshot), Catch::Contains("listeners    0, and 1 that no port mapper knows"));
  json = nlohmann::json::parse(RenderJson(snapshot, nullptr));
  CHECK(json["summary"]["listeners_unregistered"] == 1);
  json = json["processes"][0]["listeners"][0];
  CHECK(json["registered"] == false);
  CHECK(json["registered_at_ns"].is_null());
  CHECK(json["port_mapper"].is_null());
}

TEST_CASE("a listener that is TCP has a row, and one row only") {
  stats::Snapshot snapshot = Sample();
  std::vector<ConnectionRecord>& records = snapshot.processes[0].records;
  records[2].role = stats::Role::kConnecting;
  ConnectionRecord fallback = records[2];
  fallback.role = stats::Role::kAccepting;
  fallback.local = stats::Ipv4(2, 81);
  records.push_back(fallback);  // by a rule, perhaps
  const auto select = [&](bool fallbacks) {
    return Select(snapshot, {.connections = false, .fallbacks = fallbacks, .fallbacks_of_clients = false})
        .processes[0]
        .records;
  };
  CHECK(select(false).size() == 1);
  REQUIRE(select(true).size() == 2);
  CHECK(select(true)[1].local.port == 81);
  records[1].counters.state = stats::State::kUnregistered;
  records[3].local = records[1].local;
  CHECK(select(true).size() == 1);
}

TEST_CASE("the table has a row per record, in columns") {
  std::vector<std::string> lines = Lines(RenderTable(Sample(), {}));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].starts_with("State"));
  CHECK(lines[1].starts_with("established"));
  CHECK(lines[1].ends_with("nginx[1234]:7 (worker process)"));
  CHECK(lines[1].find("10.0.0.1:40000") == lines[0].find("Local Address:Port"));
  CHECK(lines[1].find("10.0.0.2:80") == lines[0].find("Peer Address:Port"));
  CHECK(lines[1].find("10.0.0.2:50002") == lines[0].find("SDP Address:Port"));
  CHECK(lines[1].find("soft/tcp") == lines[0].find("RNIC/Link"));
  CHECK(lines[1].find("C/C") == lines[0].find("Mode"));
  CHECK(lines[1].find("22/24") == lines[0].find("Credit"));
  CHECK(lines[1].find("R2.0K") == lines[0].find("Out"));
  CHECK(lines[2].starts_with("listen"));
  CHECK(lines[3].find("pm-denied") != std::string::npos);
}

TEST_CASE("a listener's kernel RNIC has a row of its own, and is no listener more") {
  stats::Snapshot snapshot = Sample();
  ConnectionRecord kernel = snapshot.processes[0].records[1];
  stats::SetText(kernel.rnic, "siw0");
  stats::SetText(kernel.link, stats::kKernelLink);
  snapshot.processes[0].records.push_back(kernel);
  CHECK(Summarise(snapshot).listeners == 1);
  CHECK(RenderTable(snapshot, {}).find("siw0/rdma") != std::string::npos);
}

TEST_CASE("looks and sleeps are shown where there were any") {
  stats::Snapshot snapshot = Sample();
  CHECK(RenderTable(snapshot, {.internals = true}).find("polled:") == std::string::npos);
  snapshot.processes[0].records[0].counters.waits_polled = 3;
  CHECK(RenderTable(snapshot, {.internals = true}).find("polled:3 slept:0") != std::string::npos);
}

TEST_CASE("doorbells are shown of a local link") {
  stats::Snapshot snapshot = Sample();
  CHECK(RenderTable(snapshot, {.internals = true}).find("doorbells:") == std::string::npos);
  ConnectionRecord& record = snapshot.processes[0].records[0];
  stats::SetText(record.link, "local");
  record.counters.doorbells = 17;
  CHECK(RenderTable(snapshot, {.internals = true}).find("doorbells:17") != std::string::npos);
}

TEST_CASE("the extended table gives counters and reasons") {
  std::string text = RenderTable(Sample(), {.header = false, .internals = true, .extended = true});
  CHECK(Lines(text).size() == 6);
  CHECK(text.find("stalls:0") != std::string::npos);
  CHECK(text.find("accepted_sdp:12") != std::string::npos);
  CHECK(text.find("reason:pm-denied (10.0.0.9 knows no SDP listener on port 25)") != std::string::npos);
}

TEST_CASE("nothing selected gives no text") {
  stats::Snapshot none = Select(Sample(), {.connections = false, .listeners = false, .pid = 0});
  CHECK(Lines(RenderTable(none, {})).size() == 1);  // the titles
  CHECK(RenderTable(none, {.header = false}).empty());
  CHECK(Select(Sample(), {.pid = 99}).processes.empty());
  CHECK(Select(Sample(), {.pid = 1234}).processes.at(0).records.size() == 2);
  CHECK(Select(Sample(), {.fallbacks = true}).processes.at(0).records.size() == 3);
}

TEST_CASE("the summary adds the living to the closed") {
  Sums sums = Summarise(Sample());
  CHECK(sums.connections == 1);
  CHECK(sums.listeners == 1);
  CHECK(sums.totals.bytes_in[stats::kBcopy] == 1100);
  std::string text = RenderSummary(Sample());
  CHECK(text.find("1 open, 5 closed") != std::string::npos);
  CHECK(text.find("3 x pm-denied") != std::string::npos);
}

TEST_CASE("JSON keeps its schema") {
  auto json = nlohmann::json::parse(RenderJson(Sample(), nullptr));
  CHECK(json["schema"] == 1);
  auto& process = json["processes"][0];
  CHECK(process["pid"] == 1234);
  auto& connection = process["connections"][0];
  CHECK(connection["local"] == "10.0.0.1:40000");
  CHECK(connection["bytes_in"]["bcopy"] == 100);
  CHECK(connection["bytes_out"]["read_zcopy"] == 2048);
  CHECK(connection["source_mode"] == "combined");
  CHECK(process["listeners"][0]["sdp_local"] == "10.0.0.2:50002");
  CHECK(process["listeners"][0]["peer"].is_null());
  CHECK(process["fallbacks"][0]["reason"] == "pm-denied");
  CHECK(json["summary"]["bytes_in"]["bcopy"] == 1100);
  CHECK(json["summary"]["fallbacks"]["pm-denied"] == 3);
}

TEST_CASE("bytes for people") {
  CHECK(HumanBytes(0) == "0");
  CHECK(HumanBytes(999) == "999");
  CHECK(HumanBytes(1000) == "1.0K");
  CHECK(HumanBytes(1536) == "1.5K");
  CHECK(HumanBytes(10 * 1024) == "10K");
  CHECK(HumanBytes(1023 * 1024) == "1.0M");
  CHECK(HumanBytes(uint64_t{5} << 30) == "5.0G");
  CHECK(HumanBytes(~uint64_t{0}) == "16E");
}

TEST_CASE("addresses for people") {
  stats::Address six;
  six.family = 6;
  six.port = 80;
  six.ip[15] = 1;
  CHECK(ToString(six) == "[::1]:80");
  six.scope_id = 2;
  CHECK(ToString(six) == "[::1%2]:80");
  CHECK(ToString(stats::Address()) == "*");
}

TEST_CASE("second lines are broken to the screen") {
  stats::ProcessStats process;
  process.program = "nginx";
  process.records = {stats::EstablishedConnection()};
  stats::Snapshot snapshot;
  snapshot.processes = {process};
  std::istringstream lines(RenderTable(snapshot, {.internals = true, .extended = true, .width = 80}));
  std::string line, joined;
  std::getline(lines, line);
  std::getline(lines, line);
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    CHECK(line.size() <= 80);
    CHECK(line.substr(0, 8) == std::string(8, ' '));
    joined += line.substr(7);
  }
  CHECK(count > 2);
  const std::string whole = RenderTable(snapshot, {.header = false, .internals = true, .extended = true});
  CHECK(whole.find(joined + "\n") != std::string::npos);
}

TEST_CASE("commands are recognised when they are almost typed") {
  for (const char* word : {"trase", "tracee", "trce", "trace"}) CHECK(CommandLike(word) == "trace");
  CHECK(CommandLike("docter") == "doctor");
  CHECK(CommandLike("whz") == "why");
  for (const char* word : {"state", "sport", "src", "x", "", "not", "or"}) CHECK(CommandLike(word).empty());
}

}  // namespace
}  // namespace sdp::sdpstat
