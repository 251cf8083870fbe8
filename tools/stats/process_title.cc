#include "tools/stats/process_title.h"

#include <fstream>
#include <sstream>

namespace sdp::stats {
namespace {

constexpr size_t kLongest = 40;

// A word from which on the title repeats the command: "master process nginx -c nginx.conf".
bool BeginsCommand(const std::string& word, std::string_view program) {
  return word == program || word.front() == '/' || word.front() == '-';
}

}  // namespace

std::string TitleIn(std::string_view arguments, std::string_view program) {
  // A title is one argument, and its first word ends with a colon.
  const std::string title(arguments.substr(0, arguments.find('\0')));
  const size_t colon = title.find(": ");
  if (colon == std::string::npos || title.find_first_of(" /") < colon) return "";
  std::istringstream words(title.substr(colon + 2));
  std::string out;
  for (std::string word; words >> word && !BeginsCommand(word, program);) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  if (out.size() > kLongest) out.replace(kLongest - 3, std::string::npos, "...");
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

std::string ProcessTitle(uint32_t pid, std::string_view program) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string arguments(4096, '\0');
  file.read(arguments.data(), static_cast<std::streamsize>(arguments.size()));
  arguments.resize(static_cast<size_t>(file.gcount()));
  return TitleIn(arguments, program);
}

}  // namespace sdp::stats
