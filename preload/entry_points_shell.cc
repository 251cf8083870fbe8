// system and popen. The C library starts the shell by a call of its own that cannot be interposed, so this
// file changes the command. The shell sets the variable that names the sealed sockets, and execs the shell
// that runs the command.
#include <optional>
#include <string>

#include "preload/entry_points.h"
#include "preload/exec_target.h"
#include "preload/inheritance.h"

extern char** environ;

namespace sdp::preload {
namespace {

constexpr const char* kShell = "/bin/sh";

// Quotes the text as one word for a shell.
std::string Quoted(const char* text) {
  std::string out = "'";
  for (; *text != '\0'; ++text) {
    if (*text == '\'') {
      out += "'\\''";
    } else {
      out += *text;
    }
  }
  return out + "'";
}

// While this object exists, its sealed sockets are open for the command's programs.
class ShellCommand {
 public:
  explicit ShellCommand(const char* command) {
    const NoCancellation no_cancellation;
    if (TargetOf(std::string(kShell), environ) != Target::kWithLibrary) return;
    sealed_.emplace(Heirloom::kOpen);
    if (sealed_->fd() < 0) return;
    text_ = std::string(kInheritedVariable) + "=" + std::to_string(sealed_->fd()) + " exec " + kShell +
            " -c " + Quoted(command) + " sh";
  }

  // Returns the command to run; null: run the original command.
  [[nodiscard]] const char* text() const { return text_.empty() ? nullptr : text_.c_str(); }

 private:
  std::optional<SealedForChild> sealed_;
  std::string text_;
};

// `run(command)` is the real call.
template <typename Run>
auto RunCommand(const char* command, Run run) -> decltype(run(command)) {
  if (command == nullptr || !HasHeirlooms(Heirloom::kOpen)) return run(command);
  const ShellCommand with_sockets(command);
  return run(with_sockets.text() != nullptr ? with_sockets.text() : command);
}

}  // namespace

int SDP_ENTRY(system)(const char* command) {
  return RunCommand(command, [](const char* text) { return real.system(text); });
}

FILE* SDP_ENTRY(popen)(const char* command, const char* mode) {
  return RunCommand(command, [mode](const char* text) { return real.popen(text, mode); });
}

}  // namespace sdp::preload
