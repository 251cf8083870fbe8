#include "tools/sdpstat/live.h"

#include <catch2/catch.hpp>

#include "test/tools/stats_fixture.h"

namespace sdp::sdpstat {
namespace {

stats::Snapshot With(std::vector<stats::ConnectionRecord> records, uint64_t closed_in = 0) {
  stats::ProcessStats process;
  process.pid = 5;
  process.program = "nginx";
  process.totals.bytes_in[stats::kBcopy] = closed_in;
  process.totals.fallbacks[0] = 3;
  process.records = std::move(records);
  stats::Snapshot out;
  out.processes.push_back(std::move(process));
  return out;
}

stats::ConnectionRecord Connection(uint64_t opened, uint64_t in, uint64_t out, uint16_t port = 80) {
  stats::ConnectionRecord record = stats::EstablishedConnection();
  record.opened_at_ns = opened;
  record.peer.port = port;
  record.counters.bytes_in[stats::kBcopy] = in;
  record.counters.bytes_out[stats::kReadZcopy] = out;
  record.counters.messages_in = in / 10;
  return record;
}

constexpr std::chrono::duration<double> kTwoSeconds{2};

TEST_CASE("Rates are what moved since the look before") {
  const auto view = Compare(With({Connection(1, 1000, 0)}),
                            With({Connection(1, 5000, 600), Connection(2, 80, 0)}), kTwoSeconds, {});
  REQUIRE(view.rows.size() == 2);
  CHECK(view.rows[0].in_rate == 2000);
  CHECK(view.rows[0].out_rate == 300);
  CHECK(view.rows[0].message_rate == 200);
  CHECK(view.rows[1].in_rate == 40);  // new: all it moved
  CHECK(view.in_rate == 2040);
  CHECK(view.connections == 2);
  CHECK(view.fallbacks == 3);
}

TEST_CASE("What a connection moved is not lost or counted twice when it closes") {
  const auto view = Compare(With({Connection(1, 1000, 0)}), With({}, 1400), kTwoSeconds, {});
  CHECK(view.rows.empty());
  CHECK(view.in_rate == 200);
}

TEST_CASE("Another connection under the same descriptor starts from zero") {
  const auto view =
      Compare(With({Connection(1, 1000000, 0)}), With({Connection(9, 100, 0)}), kTwoSeconds, {});
  CHECK(view.rows.at(0).in_rate == 50);
}

TEST_CASE("Sorting and filtering") {
  const stats::Snapshot before =
      With({Connection(1, 0, 0, 81), Connection(2, 0, 0, 82), Connection(3, 900, 0, 83)});
  const stats::Snapshot now =
      With({Connection(1, 100, 0, 81), Connection(2, 0, 300, 82), Connection(3, 900, 0, 83)});
  auto ports = [&](LiveOptions options) {
    std::vector<int> out;
    for (const LiveRow& row : Compare(before, now, kTwoSeconds, options).rows)
      out.push_back(row.record.peer.port);
    return out;
  };
  using Ports = std::vector<int>;
  CHECK(ports({.key = SortKey::kRate}) == Ports{82, 81, 83});
  CHECK(ports({.key = SortKey::kIn}) == Ports{81, 82, 83});
  CHECK(ports({.key = SortKey::kTotal}) == Ports{83, 82, 81});
  CHECK(ports({.key = SortKey::kPeer, .reversed = true}) == Ports{83, 82, 81});
  CHECK(ports({.key = SortKey::kPeer, .filter = *ParseFilter({"dport > 81"})}) == Ports{82, 83});
  stats::ConnectionRecord fallback;
  fallback.kind = stats::Kind::kFallback;
  fallback.counters.state = stats::State::kTcp;
  stats::SetText(fallback.reason, "rule");
  CHECK(Compare({}, With({fallback}), kTwoSeconds, {}).rows.empty());
  const auto lines =
      RenderLive(Compare({}, With({fallback, Connection(1, 2048, 0)}), kTwoSeconds, {.fallbacks = true}))
          .lines;
  REQUIRE(lines.size() == 3);
  CHECK(lines[1].find("1.0K") != std::string::npos);
  CHECK(lines[1].find("C/C") == lines[0].find("Mode"));
  CHECK(lines[2].find("rule") != std::string::npos);
}

TEST_CASE("On 80 columns the screen shows what matters, and the rest sideways") {
  stats::Snapshot now = With({Connection(1, 2048, 0, 51144)});
  now.processes[0].title = "worker process";
  const LiveTable table = RenderLive(Compare({}, now, kTwoSeconds, {}));
  const auto first = ScrollSideways(table, 0, 80);
  REQUIRE(first.size() == 2);
  CHECK(first[0].size() == 80);
  CHECK(first[0].back() == '>');
  for (const char* title : {"Process", "Peer", "In/s", "Out/s", "State"}) {
    CAPTURE(title);
    CHECK(first[0].find(title) != std::string::npos);
  }
  CHECK(first[1].starts_with("nginx[5]  10.0.0.2:51144"));
  CHECK(first[1].find("established") == first[0].find("State"));

  const auto last = ScrollSideways(table, 100, 80);
  CHECK(MostHidden(table) == 11);
  CHECK(last[0] == "Process   Title");
  CHECK(last[1] == "nginx[5]  worker process");
  CHECK(ScrollSideways(table, 1, 80)[1].starts_with("nginx[5]  1.0K"));
  for (size_t width = 0; width < 200; ++width) {
    for (const std::string& line : ScrollSideways(table, width % 13, width)) CHECK(line.size() <= width);
  }
}

}  // namespace
}  // namespace sdp::sdpstat
