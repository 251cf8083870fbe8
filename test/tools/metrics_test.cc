// What sdpstat --metrics prints. Whether Prometheus takes it, test/programs/test_metrics.py asks promtool.
#include <catch2/catch.hpp>

#include "test/tools/stats_fixture.h"
#include "tools/sdpstat/render.h"

namespace sdp::sdpstat {
namespace {

stats::ConnectionRecord Listener(stats::State state) {
  stats::ConnectionRecord record;
  record.kind = stats::Kind::kListener;
  record.counters.state = state;
  return record;
}

stats::Snapshot Web() {
  stats::ProcessStats process;
  process.pid = 1234;
  process.program = "web";
  process.totals.connections_closed = 5;
  process.totals.connections_aborted = 1;
  process.totals.link_in[stats::kTcpLink][stats::kBcopy] = 1000;
  process.totals.link_out[stats::kLocalLink][stats::kWriteZcopy] = 7;
  process.totals.send_stalls = 4;
  process.totals.fallbacks[static_cast<size_t>(stats::FallbackReason::kPmDenied)] = 3;
  stats::ConnectionRecord connection = stats::EstablishedConnection();
  connection.counters.send_stalls = 2;
  stats::ConnectionRecord kernel = Listener(stats::State::kListening);
  stats::SetText(kernel.link, stats::kKernelLink);
  process.records = {connection, Listener(stats::State::kListening), kernel,
                     Listener(stats::State::kUnregistered)};
  stats::Snapshot snapshot;
  snapshot.processes = {process};
  return snapshot;
}

bool HasLine(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST_CASE("metrics add the living to the closed, by link and mechanism") {
  const std::string text = RenderMetrics(Web());
  const std::string own = R"({program="web",pid="1234")";
  const std::string bytes = "sdp_payload_bytes_total" + own + ",direction=";
  const std::string lines[] = {
      "sdp_processes 1",
      "sdp_connections" + own + R"(,link="tcp"} 1)",
      "sdp_connections" + own + R"(,link="rdma"} 0)",
      "sdp_connections_closed_total" + own + "} 5",
      "sdp_connections_aborted_total" + own + "} 1",
      bytes + R"("in",link="tcp",mechanism="bcopy"} 1100)",
      bytes + R"("out",link="tcp",mechanism="read_zcopy"} 2048)",
      bytes + R"("out",link="local",mechanism="write_zcopy"} 7)",
      "sdp_send_stalls_total" + own + "} 6",
      "sdp_fallbacks_total" + own + R"(,reason="pm-denied"} 3)",
      "sdp_listeners" + own + "} 1",
      "sdp_unregistered_listeners" + own + "} 1",
  };
  for (const std::string& line : lines) {
    INFO(line);
    CHECK(HasLine(text, line));
  }
  CHECK(HasLine(text, "# TYPE sdp_payload_bytes_total counter"));
  CHECK(text.find("transaction") == std::string::npos);
}

TEST_CASE("metrics of no process say that there is none") {
  const std::string text = RenderMetrics({});
  CHECK(HasLine(text, "sdp_processes 0"));
  CHECK(text.find('{') == std::string::npos);
}

TEST_CASE("a program's name cannot end its label") {
  stats::Snapshot snapshot = Web();
  snapshot.processes[0].program = R"(a"b\c)";
  CHECK(HasLine(RenderMetrics(snapshot), R"(sdp_listeners{program="a\"b\\c",pid="1234"} 1)"));
}

}  // namespace
}  // namespace sdp::sdpstat
