#include "tools/sdp-run/config_report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "preload/config_reader.h"

namespace sdp::run {

ConfigLook LookAtConfig(const preload::Lookup& lookup, const char* const* environment) {
  bool named = false;
  ConfigLook look{.path = preload::ConfigFilePath(lookup, &named), .file = {}, .problems = {}};
  const std::string& path = look.path;
  std::error_code error;
  look.is_there = std::filesystem::exists(path, error);
  std::string text;
  if (std::filesystem::is_regular_file(path, error)) {
    std::ifstream stream(path);
    if (!stream) look.problems.push_back(path + ": " + strerrordesc_np(errno));
    text.assign(std::istreambuf_iterator<char>(stream), {});
  } else if (std::filesystem::is_directory(path, error) || (named && !look.is_there)) {
    look.problems.push_back(path + ": " + strerrordesc_np(look.is_there ? EISDIR : ENOENT));
  }
  look.file = preload::ParseConfigFile(text);
  for (const preload::ConfigProblem& problem : look.file.problems) {
    const bool is_error = problem.kind == preload::ConfigProblem::Kind::kError;
    look.problems.push_back(path + ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column) +
                            ": " + problem.text + (is_error ? ": line ignored" : ""));
  }
  preload::ReadConfig(lookup, look.file, path, &look.problems, environment);
  return look;
}

std::vector<std::string> Shortened(std::vector<std::string> problems, size_t most) {
  if (problems.size() <= most) return problems;
  const size_t others = problems.size() - most;
  problems.resize(most);
  problems.push_back(std::to_string(others) + " more; sdpstat doctor lists them");
  return problems;
}

}  // namespace sdp::run
