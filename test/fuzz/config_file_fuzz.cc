// Any text as libsdp.conf: every rule that comes out reads back as itself, every problem names a place in the
// file, and settings give a configuration, whatever they say.
#include <algorithm>

#include "core/base/check.h"
#include "preload/config_file.h"
#include "preload/config_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sdp::preload;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 1;
  const ConfigFile file = ParseConfigFile(text);
  for (const ConfigProblem& problem : file.problems) {
    SDP_CHECK(problem.line >= 1 && problem.line <= lines && problem.column >= 1);
    SDP_CHECK(problem.text.size() < 4096 || problem.kind == ConfigProblem::Kind::kWarning);
  }
  for (const Rule& rule : file.rules) {
    const ConfigFile again = ParseConfigFile(ToString(rule));
    SDP_CHECK(again.problems.empty() && again.rules.size() == 1 && again.rules[0].SameAs(rule));
    MatchesProgram(rule, "nginx");
  }
  AlwaysTcp(file.rules, RuleRole::kClient, Mode::kBoth);
  std::vector<std::string> problems;
  const Config config = ReadConfig([](const char*) { return nullptr; }, file, "x", &problems);
  SDP_CHECK(config.receive_buffers == 0 || config.receive_buffers >= 3);
  SDP_CHECK(config.receive_buffer_size == 0 || config.receive_buffer_size >= 128);
  SDP_CHECK(config.receive_buffer_limit == 0 || config.receive_buffer_limit >= 128);
  SDP_CHECK(problems.size() <= file.settings.size());
  for (const std::string& problem : problems) SDP_CHECK(problem.starts_with("x:"));
  return 0;
}
