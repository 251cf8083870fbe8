// The one configuration in force in this process.
#include <stdlib.h>
#include <unistd.h>

#include "preload/config.h"
#include "preload/config_store.h"
#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/log.h"
#include "preload/program_name.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

constinit ConfigStore store([](const char* name) -> const char* { return secure_getenv(name); }, ProgramName,
                            &environ);

std::string Leaf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// A mistake in a file for the whole host would be on every program's standard error: there it counts as
// information. sdp-run and sdpstat doctor report it, too.
void Report(const LoadedConfig& loaded) {
  const bool to_program = loaded.config.log_destination == LogDestination::kStandardError;
  for (const std::string& problem : loaded.problems)
    LogLine(to_program ? LogLevel::kInfo : LogLevel::kError, "%s", problem.c_str());
  for (const std::string& warning : loaded.warnings) SDP_LOG(kInfo, "%s", warning.c_str());
}

}  // namespace

const Config& config() { return store.Get().config; }

void ReportConfig() { Report(store.Get()); }

void RefreshConfig() {
  const KeepErrno keep;
  const NoCancellation no_cancellation;
  if (const LoadedConfig* loaded = store.Refresh(CoarseNow().time_since_epoch().count())) {
    FollowLogFile();
    SDP_LOG(kInfo, "%s has changed: %zu rule%s for %s", loaded->path.c_str(), loaded->rules.size(),
            loaded->rules.size() == 1 ? "" : "s", ProgramName());
    Report(*loaded);
  }
}

Ruling DecideSocket(RuleRole role, const sockaddr* address, socklen_t length) {
  const LoadedConfig& loaded = store.Get();
  if (loaded.config.mode_is_forced) return {.mode = loaded.config.mode};
  const Rule* rule = FindRule(loaded.rules, role, address, length);
  return {.mode = rule == nullptr ? loaded.config.mode : rule->mode, .rule = rule};
}

bool TurnedOff() {
  const Config& now = store.Get().config;
  return now.mode_is_forced && now.mode == Mode::kTcp;
}

bool NothingButTcp() {
  const LoadedConfig& loaded = store.Get();
  if (loaded.config.mode_is_forced) return loaded.config.mode == Mode::kTcp;
  return AlwaysTcp(loaded.rules, RuleRole::kServer, loaded.config.mode) &&
         AlwaysTcp(loaded.rules, RuleRole::kClient, loaded.config.mode);
}

std::string Ruling::ToString() const {
  if (native) return "AF_INET_SDP";
  if (rule == nullptr) return std::string("SDP_MODE=") + preload::ToString(mode);
  return Leaf(store.Get().path) + ":" + std::to_string(rule->line) + ": " + preload::ToString(*rule);
}

}  // namespace sdp::preload
