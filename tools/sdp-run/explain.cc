#include "tools/sdp-run/explain.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "preload/config_file.h"
#include "tools/probe/probe.h"
#include "tools/sdp-run/config_report.h"
#include "tools/sdp-run/program_check.h"
#include "tools/sdp-run/target.h"
#include "tools/stats/address_text.h"
#include "tools/why/reasons.h"

namespace sdp::run {
namespace {

constexpr int kOwnFailure = 125;

void Line(const char* step, const std::string& text) { std::printf("%-14s %s\n", step, text.c_str()); }

void ExplainRules(const std::string& program, const sockaddr* address, socklen_t length) {
  ConfigLook look = LookAtConfig(getenv, environ);
  for (const std::string& problem : look.problems) Line("configuration", problem);
  const char* mode = getenv("SDP_MODE");
  if (mode != nullptr && *mode != '\0')
    return Line("configuration", std::string("SDP_MODE=") + mode + ", which stands above all rules");
  if (!look.is_there) return Line("configuration", "there is no " + look.path + ": every socket may be SDP");
  std::erase_if(look.file.rules,
                [&](const preload::Rule& rule) { return !preload::MatchesProgram(rule, program.c_str()); });
  const preload::Rule* rule = preload::FindRule(look.file.rules, preload::RuleRole::kClient, address, length);
  Line("configuration",
       rule != nullptr ? look.path + ":" + std::to_string(rule->line) + ": " + preload::ToString(*rule)
                       : "no rule of " + look.path + " speaks of " + program + " and this address: both");
}

int ExplainSdp(const stats::ConnectionRecord& record, double milliseconds) {
  char time[32];
  std::snprintf(time, sizeof time, "%.1f", milliseconds);
  Line("port mapper", "says: SDP at " + stats::ToString(record.sdp_peer));
  Line("RNIC", std::string(record.rnic) + ", over the link " + record.link);
  Line("handshake", "done; Private Buffers of " + std::to_string(record.remote_buffer_size) +
                        " bytes there, " + std::to_string(record.local_buffer_size) + " here");
  Line("result", std::string("SDP, after ") + time + " ms in all");
  return 0;
}

// `what`: the outcome for the program. `detail` may be empty.
int ExplainReason(const std::string& what, const std::string& code, const std::string& detail) {
  const sdpstat::Reason* reason = sdpstat::FindReason(code);
  Line("result", what + ": " + code +
                     (reason == nullptr ? "" : std::string(" (") + reason->side + "): " + reason->meaning));
  if (!detail.empty()) Line("", detail);
  if (reason != nullptr && reason->remedy[0] != '\0') Line("", reason->remedy);
  return 1;
}

}  // namespace

int Explain(const std::string& target, const std::vector<std::string>& command, const std::string& library) {
  const auto parsed = ParseTarget(target);
  if (!parsed) {
    std::fprintf(stderr, "sdp-run: --explain wants %s\n", parsed.error().c_str());
    return kOwnFailure;
  }
  const auto address = Resolve(*parsed);
  if (!address) {
    std::fprintf(stderr, "sdp-run: %s: %s\n", target.c_str(), address.error().c_str());
    return kOwnFailure;
  }

  std::string program = command.empty() ? "sdp-run" : command.front();
  program.erase(0, program.rfind('/') + 1);
  if (!command.empty()) {
    const Check check = CheckProgram(command);
    if (check.verdict == Verdict::kNotPreloadable) {
      std::printf("How %s would connect to %s:\n\n", program.c_str(), target.c_str());
      return ExplainReason("TCP", check.code, check.path + " " + check.why);
    }
  }
  std::printf("How %s would connect to %s, by trying it:\n\n", program.c_str(), target.c_str());
  ExplainRules(program, reinterpret_cast<const sockaddr*>(&address->address), address->length);
  std::fflush(stdout);
  const probe::Result result =
      probe::Probe({.program = program, .library = library, .host = parsed->host, .port = parsed->port});
  if (!result.error.empty()) {
    std::fprintf(stderr, "sdp-run: %s\n", result.error.c_str());
    return kOwnFailure;
  }
  int status = 1;
  if (result.record && result.record->kind == stats::Kind::kConnection) {
    status = ExplainSdp(*result.record, result.milliseconds);
  } else if (result.record) {
    status = ExplainReason(result.connected ? "TCP" : "no connection: " + result.connect_error,
                           result.record->reason, result.record->reason_text);
  } else {
    Line("result", result.connected ? "TCP: the library leaves such sockets alone"
                                    : "no connection: " + result.connect_error);
  }
  if (!result.log.empty()) std::printf("\nThe library's log (SDP_LOG=info):\n%s", result.log.c_str());
  return status;
}

}  // namespace sdp::run
