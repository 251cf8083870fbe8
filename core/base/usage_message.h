// The message of a program that does not understand its command line. The templates work on CLI::App without
// including it, because libsdp.so does not use it.
#ifndef SDP_CORE_BASE_USAGE_MESSAGE_H_
#define SDP_CORE_BASE_USAGE_MESSAGE_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/closest_word.h"

namespace sdp {

// Returns the option of `app` that `typed` (--lisening or --lisening=1, say) was meant to be; empty if none.
template <typename App>
std::string ClosestOption(const App& app, std::string_view typed) {
  if (!typed.starts_with("--")) return "";
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return ClosestWord(typed.substr(0, typed.find('=')), names);
}

// Returns the text of a CLI::ParseError of `app` or of the given subcommand, a suggestion, and where to find
// the options. Each line ends with a newline.
template <typename App, typename Error>
std::string UsageMessage(const App& app, const Error& error) {
  const auto commands = app.get_subcommands();
  const App& asked = commands.empty() ? app : *commands.front();
  const std::string command = app.get_name() + (commands.empty() ? "" : " " + asked.get_name());
  std::string text = app.get_name() + ": " + error.what() + "\n" + app.get_name() + ": ";
  for (const std::string& typed : app.remaining(true)) {
    const std::string option = ClosestOption(asked, typed);
    if (option.empty()) continue;
    text += "did you mean " + option + "? ";
    break;
  }
  return text + "`" + command + " --help` lists the options\n";
}

}  // namespace sdp

#endif  // SDP_CORE_BASE_USAGE_MESSAGE_H_
