// What a program says of a command line that it does not understand. For CLI::App, which is not included
// here: libsdp.so has no use for it.
#ifndef SDP_CORE_BASE_USAGE_MESSAGE_H_
#define SDP_CORE_BASE_USAGE_MESSAGE_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/closest_word.h"

namespace sdp {

// The option of `app` that `typed`, as in --lisening or --lisening=1, was meant to be; empty if there is
// none.
template <typename App>
std::string ClosestOption(const App& app, std::string_view typed) {
  if (!typed.starts_with("--")) return "";
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return ClosestWord(typed.substr(0, typed.find('=')), names);
}

// The text of a CLI::ParseError of `app` or of the command that was given, what to type instead, and where
// the options are listed. Ends its lines.
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
