#include "tools/stats/process_title.h"

#include <iterator>
#include <sstream>
#include <vector>

#include "tools/stats/proc_text.h"

namespace sdp::stats {
namespace {

constexpr size_t kLongest = 40;

// From that word on the title repeats the command: "master process nginx -c nginx.conf". A database may bear
// the program's name, too: "postgres postgres 10.0.0.2(41000) idle".
bool BeginsCommand(const std::vector<std::string>& words, size_t i, std::string_view program) {
  const bool ends = i + 1 == words.size() || words[i + 1].front() == '-';
  return (words[i] == program && ends) || words[i].front() == '/' || words[i].front() == '-';
}

}  // namespace

std::string TitleIn(std::string_view arguments, std::string_view program) {
  // A title is one argument, and its first word ends with a colon.
  const std::string title(arguments.substr(0, arguments.find('\0')));
  const size_t colon = title.find(": ");
  if (colon == std::string::npos || title.find_first_of(" /") < colon) return "";
  std::istringstream text(title.substr(colon + 2));
  const std::vector<std::string> words(std::istream_iterator<std::string>(text), {});
  std::string out;
  for (size_t i = 0; i < words.size() && !BeginsCommand(words, i, program); ++i)
    out += (i == 0 ? "" : " ") + words[i];
  if (out.size() > kLongest) out.replace(kLongest - 3, std::string::npos, "...");
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

std::string ProcessTitle(uint32_t pid, std::string_view program) {
  return TitleIn(ReadProc(pid, "cmdline", 4096), program);
}

}  // namespace sdp::stats
