#include "tools/sdp-run/config_report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "preload/config_reader.h"

namespace sdp::run {

std::vector<std::string> ConfigProblems(const preload::Lookup& lookup, const char* const* environment,
                                        size_t most) {
  std::vector<std::string> out;
  bool named = false;
  const std::string path = preload::ConfigFilePath(lookup, &named);
  std::error_code error;
  std::string text;
  if (std::filesystem::is_regular_file(path, error)) {
    std::ifstream stream(path);
    if (!stream) out.push_back(path + ": " + strerrordesc_np(errno));
    text.assign(std::istreambuf_iterator<char>(stream), {});
  } else if (named && !std::filesystem::exists(path, error)) {
    out.push_back(path + ": " + strerrordesc_np(ENOENT));
  }
  const preload::ConfigFile file = preload::ParseConfigFile(text);
  for (const preload::ConfigProblem& problem : file.problems) {
    if (problem.kind != preload::ConfigProblem::Kind::kError) continue;
    out.push_back(path + ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column) + ": " +
                  problem.text + ": line ignored");
  }
  preload::ReadConfig(lookup, file, path, &out, environment);
  if (out.size() <= most) return out;
  const size_t others = out.size() - most;
  out.resize(most);
  out.push_back(std::to_string(others) + " more; sdpstat doctor lists them");
  return out;
}

}  // namespace sdp::run
