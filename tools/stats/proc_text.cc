#include "tools/stats/proc_text.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace sdp::stats {

std::string ProcPath(uint32_t pid, std::string_view leaf) {
  return "/proc/" + std::to_string(pid) + "/" + std::string(leaf);
}

std::string ReadFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return {};  // a stream would open it, and throw
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();  // unlike an iterator it does not throw where a process has ended
  return out.str();
}

std::string ReadProc(uint32_t pid, std::string_view leaf, size_t limit) {
  std::ifstream file(ProcPath(pid, leaf));
  std::string text(limit, '\0');
  file.read(text.data(), static_cast<std::streamsize>(limit));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string ProcStatus(uint32_t pid, std::string_view name) {
  std::ifstream file(ProcPath(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':')
      return line.substr(name.size() + 1);
  }
  return {};
}

std::string LastWord(std::string_view text) { return std::string(text.substr(text.find_last_of(" \t") + 1)); }

}  // namespace sdp::stats
