#include "tools/sdpstat/why.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "test/tools/stats_fixture.h"
#include "tools/sdpstat/process_rules.h"
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
  listener.counters.registered_at_ns = 1'700'000'000'000'000'000;
  stats::SetText(listener.reason_text, "/run/sdp/pmd.sock");
  process.records.push_back(listener);
  stats::ConnectionRecord unregistered = listener;
  unregistered.fd = 5;
  unregistered.counters.state = stats::State::kUnregistered;
  unregistered.counters.registered_at_ns = 0;
  stats::SetText(unregistered.reason, "not-registered");
  stats::SetText(unregistered.reason_text, "no sdp-pmd (/a)");
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
  CHECK(verdicts[0].reason.empty());
  CHECK_FALSE(verdicts[1].is_sdp);
  CHECK(verdicts[1].reason == "not-registered");
  CHECK(verdicts[1].text == "no sdp-pmd (/a)");
  ProcessView view;
  view.sockets = verdicts;
  const std::string why = RenderWhy({view});
  CHECK(why.find("10.0.0.1:80 is registered at /run/sdp/pmd.sock since 2023-11-1") != std::string::npos);
  CHECK(why.find("10.0.0.1:81 is registered") == std::string::npos);
  const std::string json = RenderWhyJson({view});
  const size_t where = json.find("\"port_mapper\": \"/run/sdp/pmd.sock\"");
  CHECK(where != std::string::npos);
  CHECK(json.find("\"port_mapper\": \"", where + 1) == std::string::npos);
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

TEST_CASE("Descriptors that the library keeps for itself are not the program's") {
  stats::ProcessStats process;
  process.records.push_back(stats::EstablishedConnection());
  const std::vector<TcpSocket> sockets = {Open(5, Ipv4(1, 42000), Ipv4(2, 26)),
                                          Open(800, Ipv4(1, 50001), Ipv4(2, 50002)),
                                          Open(801, Ipv4(1, 42001), Ipv4(2, 26))};
  const auto verdicts = Classify(&process, sockets, 768);
  REQUIRE(verdicts.size() == 2);
  CHECK(verdicts[0].reason == "unknown");
  CHECK(verdicts[1].is_sdp);  // whatever its number is
  CHECK(Classify(&process, sockets).size() == 3);

  const auto some = [](uint32_t, int) { return 10; };
  const auto all = [](uint32_t, int end) { return end; };
  CHECK(kernel::FirstHiddenNumber(1024, some, 1) == 768);
  CHECK(kernel::FirstHiddenNumber(1024, all, 1) == kernel::kNoHiddenNumber);
  CHECK(kernel::FirstHiddenNumber(1 << 20, some, 1) == 49152);
}

TEST_CASE("A process has its effective user") {
  CHECK(kernel::EffectiveUser(getpid()) == geteuid());
  CHECK_FALSE(kernel::EffectiveUser(std::numeric_limits<uint32_t>::max()));
}

TEST_CASE("Zombies and threads of the kernel run no program") {
  const auto ends = [](const char* behind_name) {
    return kernel::ParseProcStat(std::string("12 (a) b) ") + behind_name);
  };
  CHECK(ends("Z 1 1 1 0 -1 4228364 0 0 0 0 0 0 0 0 20 0 1 0 77 0").zombie);
  CHECK_FALSE(ends("Z 1 1 1 0 -1 4228364 0 0 0 0 0 0 0 0 20 0 3 0 77 0").zombie);  // other threads live
  CHECK_FALSE(ends("S 1 1 1 0 -1 4228364 0 0 0 0 0 0 0 0 20 0 1 0 77 0").kernel_thread);
  CHECK(ends("I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 77 0").kernel_thread);
  CHECK_FALSE(kernel::ParseProcStat("nonsense").zombie);
}

TEST_CASE("A rule that leaves a whole program to TCP is found") {
  const auto against = [](const char* text, const char* program) {
    return RuleAgainstAll(preload::ParseConfigFile(text), "/etc/sdp/libsdp.conf", program);
  };
  const char* const all = "use both server nginx *:*\nuse tcp server * *:*\nuse tcp client * *:*\n";
  CHECK(against(all, "sshd") ==
        "/etc/sdp/libsdp.conf:2: use tcp server * *:*, /etc/sdp/libsdp.conf:3: use tcp client * *:*");
  CHECK(against(all, "nginx").empty());
  CHECK(against("use tcp server * *:*\n", "sshd").empty());  // its connections may be SDP
  CHECK(against("use tcp server * *:80\nuse tcp client * *:*\n", "sshd").empty());
  CHECK(against("set mode tcp\n", "sshd") == "/etc/sdp/libsdp.conf:1: set mode tcp");
  CHECK(against("", "sshd").empty());

  using namespace std::string_literals;
  CHECK(NameForRules("/usr/sbin/nginx\0-c\0x\0"s, "nginx-debug") == "nginx");
  CHECK(NameForRules("nginx: worker process\0"s, "nginx") == "nginx");
  CHECK(NameForRules("", "nginx") == "nginx");
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
  CHECK_THAT(RenderWhy({absent}), Catch::Contains("sshd[8]: static-binary: a static program has no loader") &&
                                      Catch::EndsWith("\nstatic-binary: Use a dynamically linked build.\n"));
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
