// The way to another host, step by step, from one connection that is tried.
#include <array>
#include <cstdio>

#include "tools/sdp-run/target.h"
#include "tools/sdpstat/doctor_parts.h"
#include "tools/stats/address_text.h"
#include "tools/why/reasons.h"

namespace sdp::sdpstat {
namespace {

using Grade = Finding::Grade;

// In the order in which a connection takes them, each with the reasons that end it there.
struct Step {
  const char* subject;
  const char* fine;
  std::array<const char*, 5> reasons;
};
constexpr Step kSteps[] = {
    {"rules", "leave such a connection to SDP", {"rule", "mode-tcp"}},
    {"this host", "has an RNIC for it", {"no-rnic", "resources", "address-family", "socket-option"}},
    {"port mapper", "answers", {"pm-unreachable", "pm-timeout", "pm-cached"}},
    {"its answer", "names an SDP port", {"pm-denied", "pm-unusable"}},
    {"trust", "that port may be taken", {"pm-untrusted"}},
    {"SDP port", "takes connections", {"sdp-refused", "sdp-silent"}},
    {"MPA", "iWARP has started", {"mpa-rejected", "mpa-failed"}},
    {"handshake", "the peer speaks SDP", {"hello-failed"}},
};

bool EndsHere(const Step& step, const std::string& reason) {
  for (const char* one : step.reasons) {
    if (one != nullptr && reason == one) return true;
  }
  return false;
}

Finding Failure(const char* subject, const stats::ConnectionRecord& record) {
  const Reason* reason = FindReason(record.reason);
  const std::string detail =
      record.reason_text[0] == '\0' ? "" : std::string(" (") + record.reason_text + ")";
  if (reason == nullptr) return {Grade::kFailure, subject, record.reason + detail, ""};
  return {Grade::kFailure, subject, std::string(record.reason) + ": " + reason->meaning + detail,
          reason->remedy};
}

Finding Outcome(const probe::Result& result, bool sdp) {
  char text[64];
  std::snprintf(text, sizeof text, "is %s, open after %.1f ms", sdp ? "SDP" : "TCP", result.milliseconds);
  if (!result.connected)
    return {Grade::kFailure, "connection", "fails: " + result.connect_error,
            "Look whether the server runs, and whether a firewall lets its own port through."};
  return {sdp ? Grade::kFine : Grade::kWarning, "connection", text, sdp ? "" : "See the step that failed."};
}

}  // namespace

std::vector<Finding> JudgeWay(const std::string& host, const probe::Result& result) {
  std::vector<Finding> out;
  const bool sdp = result.record && result.record->kind == stats::Kind::kConnection;
  const std::string reason = sdp || !result.record ? "" : result.record->reason;
  if (!result.record && result.connected) {
    out.push_back({Grade::kFailure, "rules", "the library leaves such a connection alone",
                   "Look at SDP_MODE and at the rules of libsdp.conf."});
  } else if (result.record) {
    bool ended = false;
    for (const Step& step : kSteps) {
      ended = EndsHere(step, reason);
      if (ended) {
        out.push_back(Failure(step.subject, *result.record));
        break;
      }
      out.push_back({Grade::kFine, step.subject, step.fine, ""});
    }
    // A cause without a step says nothing of the steps.
    if (!sdp && !ended) out = {Failure("SDP", *result.record)};
  }
  for (Finding& finding : out) {
    if (finding.grade != Grade::kFine) continue;
    if (finding.subject == "port mapper") finding.text += " for " + host;
    if (finding.subject == "its answer" && result.record->sdp_peer.family != 0)
      finding.text = "SDP at " + stats::ToString(result.record->sdp_peer);
    if (finding.subject == "this host" && sdp)
      finding.text = std::string(result.record->rnic) + ", over the link " + result.record->link;
  }
  out.push_back(Outcome(result, sdp));
  return out;
}

std::vector<Finding> ExamineWay(const std::string& target, const std::string& library) {
  const auto parsed = run::ParseTarget(target);
  if (!parsed) return {{Grade::kFailure, "target", "wanted is " + parsed.error(), "Name it so."}};
  const auto address = run::Resolve(*parsed);
  if (!address) {
    return {{Grade::kFailure, "name", parsed->host + ": " + address.error(),
             "Correct the name, or look at the resolver (getent hosts " + parsed->host + ")."}};
  }
  std::vector<Finding> out = {{Grade::kFine, "name", parsed->host + " is " + address->text, ""}};
  const probe::Result result =
      probe::Probe({.program = "sdp-doctor", .library = library, .host = parsed->host, .port = parsed->port});
  if (!result.error.empty()) {
    out.push_back({Grade::kFailure, "connection", result.error, "Look at ldd " + library + "."});
    return out;
  }
  for (Finding& finding : JudgeWay(address->text, result)) out.push_back(std::move(finding));
  return out;
}

}  // namespace sdp::sdpstat
