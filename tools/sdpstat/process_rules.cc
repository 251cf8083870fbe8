#include "tools/sdpstat/process_rules.h"

#include <algorithm>

namespace sdp::sdpstat {
namespace {

using preload::ConfigFile;
using preload::Mode;
using preload::Rule;
using preload::RuleRole;

bool TakesAll(const Rule& rule) { return rule.address.family == 0 && rule.first_port == 0; }

std::string Position(const std::string& path, int line) { return path + ":" + std::to_string(line) + ": "; }

// What sockets become that no rule speaks of, if the file says so.
const preload::Setting* ModeSetting(const ConfigFile& file) {
  const auto found = std::find_if(file.settings.rbegin(), file.settings.rend(),
                                  [](const auto& setting) { return setting.variable == "SDP_MODE"; });
  return found == file.settings.rend() ? nullptr : &*found;
}

// Where it says that all sockets of the role are TCP; the file's rules are this program's.
std::string Decision(const ConfigFile& file, const std::string& path, RuleRole role) {
  for (const Rule& rule : file.rules) {
    if (rule.role == role && rule.mode == Mode::kTcp && TakesAll(rule))
      return Position(path, rule.line) + preload::ToString(rule);
  }
  const preload::Setting* const setting = ModeSetting(file);
  return setting == nullptr ? "" : Position(path, setting->line) + "set mode " + setting->value;
}

}  // namespace

std::string RuleAgainstAll(const ConfigFile& file, const std::string& path, const std::string& program) {
  ConfigFile own = file;
  std::erase_if(own.rules, [&](const Rule& rule) { return !preload::MatchesProgram(rule, program.c_str()); });
  const preload::Setting* const setting = ModeSetting(own);
  const Mode otherwise = setting != nullptr && setting->value == "tcp" ? Mode::kTcp : Mode::kBoth;
  for (const RuleRole role : {RuleRole::kServer, RuleRole::kClient}) {
    if (!preload::AlwaysTcp(own.rules, role, otherwise)) return "";
  }
  const std::string server = Decision(own, path, RuleRole::kServer);
  const std::string client = Decision(own, path, RuleRole::kClient);
  return server == client ? server : server + ", " + client;
}

std::string NameForRules(const std::string& arguments, const std::string& executable) {
  const std::string first = arguments.substr(0, arguments.find('\0'));
  if (first.empty() || first.find(": ") != std::string::npos) return executable;
  return first.substr(first.rfind('/') + 1);
}

}  // namespace sdp::sdpstat
