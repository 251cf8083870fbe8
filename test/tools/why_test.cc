#include "tools/sdpstat/why.h"

#include <arpa/inet.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "test/tools/stats_fixture.h"
#include "tools/why/reasons.h"

namespace sdp::sdpstat {
namespace {

using kernel::TcpSocket;
using stats::Ipv4;

TcpSocket Open(int fd, stats::Address local, stats::Address peer) {
  return {.fd = fd, .local = local, .peer = peer, .state = "ESTAB"};
}
TcpSocket Listening(int fd, stats::Address local) {
  return {.fd = fd, .local = local, .peer = {}, .state = "LISTEN"};
}

stats::ConnectionRecord Fallback(int fd, stats::Address local, stats::Address peer, const char* reason,
                                 uint64_t when) {
  stats::ConnectionRecord record;
  record.kind = stats::Kind::kFallback;
  record.counters.state = stats::State::kTcp;
  record.role = peer.family == 0 ? stats::Role::kAccepting : stats::Role::kConnecting;
  record.fd = fd;
  record.local = local;
  record.peer = peer;
  record.opened_at_ns = when;
  stats::SetText(record.reason, reason);
  stats::SetText(record.reason_text, "noted");
  return record;
}

TEST_CASE("Every socket of a process gets its reason") {
  stats::ProcessStats process;
  process.records.push_back(stats::EstablishedConnection());
  stats::ConnectionRecord listener;
  listener.kind = stats::Kind::kListener;
  listener.fd = 4;
  listener.local = Ipv4(1, 80);
  listener.sdp_local = Ipv4(1, 55555);
  process.records.push_back(listener);
  stats::ConnectionRecord unregistered = listener;
  unregistered.fd = 5;
  unregistered.counters.state = stats::State::kTcp;
  unregistered.local = Ipv4(1, 81);
  unregistered.sdp_local = Ipv4(1, 55556);
  process.records.push_back(unregistered);
  process.records.push_back(Fallback(9, Ipv4(1, 41000), Ipv4(2, 25), "pm-cached", 1));
  process.records.push_back(Fallback(9, Ipv4(1, 41000), Ipv4(2, 25), "pm-denied", 2));
  process.records.push_back(Fallback(5, Ipv4(1, 81), {}, "not-registered", 3));

  const auto verdicts =
      Classify(&process, {Listening(4, Ipv4(1, 80)), Listening(5, Ipv4(1, 81)),
                          Open(7, Ipv4(1, 50001), Ipv4(2, 50002)), Open(8, Ipv4(1, 80), Ipv4(9, 1000)),
                          Open(9, Ipv4(1, 41000), Ipv4(2, 25)), Open(10, Ipv4(1, 42000), Ipv4(2, 26)),
                          Listening(1020, Ipv4(1, 55555)), Listening(1021, Ipv4(1, 55556))});
  REQUIRE(verdicts.size() == 6);  // the SDP sides of the listeners are the library's own
  CHECK(verdicts[0].is_sdp);
  CHECK(verdicts[1].reason == "not-registered");
  CHECK(verdicts[2].is_sdp);
  CHECK(verdicts[2].socket.peer.port == 80);  // the conventional one
  CHECK(verdicts[3].reason == "plain-client");
  CHECK(verdicts[4].reason == "pm-denied");  // the later one
  CHECK(verdicts[4].text == "noted");
  CHECK(verdicts[5].reason == "unknown");
  process.totals.fallbacks[static_cast<size_t>(stats::FallbackReason::kPmDenied)] = 40;
  CHECK(Classify(&process, {Open(10, Ipv4(1, 42000), Ipv4(2, 26))}).at(0).reason == "forgotten");
  CHECK(Classify(nullptr, {Open(10, Ipv4(1, 42000), Ipv4(2, 26))}).at(0).reason == "unknown");
}

TEST_CASE("Every reason that the library gives is explained") {
  for (size_t i = 0; i < static_cast<size_t>(stats::FallbackReason::kCount); ++i) {
    const char* code = stats::ToString(static_cast<stats::FallbackReason>(i));
    CAPTURE(code);
    REQUIRE(FindReason(code) != nullptr);
    CHECK(std::string(FindReason(code)->meaning).size() > 10);
  }
  CHECK(FindReason("nonsense") == nullptr);
}

TEST_CASE("The texts") {
  ProcessView view{.pid = 7, .program = "nginx", .library_loaded = true};
  view.sockets.push_back({.socket = Listening(4, Ipv4(1, 80)), .is_sdp = true, .reason = "", .text = ""});
  view.sockets.push_back({.socket = Open(9, Ipv4(1, 41000), Ipv4(2, 25)),
                          .is_sdp = false,
                          .reason = "pm-denied",
                          .text = "said no"});
  view.sockets.push_back({.socket = Open(10, Ipv4(1, 42000), Ipv4(1, 26)),
                          .is_sdp = true,
                          .reason = "tcp-link",
                          .text = "SDP_LINK=tcp"});
  view.past.push_back(Fallback(3, Ipv4(1, 1), Ipv4(2, 2), "rule", 5));
  const std::string text = RenderWhy({view});
  CHECK_THAT(text, Catch::StartsWith("nginx[7]: 2 of 3 TCP sockets are SDP\n"));
  CHECK_THAT(text, Catch::Contains("10.0.0.2:25") && Catch::Contains("pm-denied") &&
                       Catch::Contains("remote") && Catch::Contains("said no"));
  CHECK_THAT(text, Catch::Contains("10.0.0.1:26") && Catch::Contains("tcp-link") &&
                       Catch::Contains("SDP_LINK=tcp") &&
                       Catch::Contains("\ntcp-link: SDP within this host"));
  CHECK_THAT(text, Catch::Contains("closed") && Catch::Contains("\nrule: a rule of libsdp.conf says tcp."));
  const auto json = nlohmann::json::parse(RenderWhyJson({view}));
  CHECK(json["processes"][0]["sockets"][1]["reason"]["side"] == "remote");
  CHECK(json["processes"][0]["sockets"][0]["reason"].is_null());
  CHECK(json["processes"][0]["past"][0]["reason"]["code"] == "rule");
  ProcessView absent{.pid = 8, .program = "sshd", .reason = "static-binary", .text = "/bin/x is static"};
  CHECK_THAT(RenderWhy({absent}), Catch::Contains("sshd[8]: static-binary: a static program has no loader"));
}

TEST_CASE("The kernel's table of TCP sockets") {
  const auto sockets = kernel::ParseProcNetTcp(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 "
      "0000000000000000 100 0 0 10 0\n"
      "   1: 0100007F:C350 0200007F:0050 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 "
      "20 4 30 10 -1\n"
      "nonsense\n"
      "   2: 00000000000000000000000001000000:0050 00000000000000000000000001000000:C351 08 "
      "00000000:00000000 00:00000000 00000000  0 0 4713 1\n");
  REQUIRE(sockets.size() == 3);
  CHECK(sockets[0].socket.listening());
  CHECK(sockets[0].socket.local.port == 8080);
  CHECK(sockets[0].socket.peer.family == 0);
  CHECK(sockets[1].socket.local.ip[0] == 127);
  CHECK(sockets[1].socket.peer.ip[0] == 127);
  CHECK(sockets[1].socket.peer.ip[3] == 2);
  CHECK(sockets[1].inode == 4712);
  CHECK(sockets[2].socket.state == "CLOSE-WAIT");
  CHECK(sockets[2].socket.local.family == 6);
  CHECK(sockets[2].socket.local.ip[15] == 1);
}

}  // namespace
}  // namespace sdp::sdpstat
