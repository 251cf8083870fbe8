// sdp-run: starts a program with libsdp.so preloaded, or says why that cannot work.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/sdp-run/library.h"
#include "tools/sdp-run/program_check.h"
#include "tools/sdp-run/supervise.h"

namespace {

constexpr int kOwnFailure = 125;  // as env and nice: 126 cannot be run, 127 not found
constexpr uint16_t kPortMapperPort = 3935;

struct Options {
  std::string library;
  std::string mode, rnic, log, log_file, stats_directory;
  bool private_pmd = false;
  bool anyway = false;
  std::vector<std::string> command;
};

void Declare(CLI::App& app, Options& options) {
  app.add_option("--lib", options.library, "libsdp.so to use (default: the one beside this program)");
  app.add_option("--mode", options.mode, "sdp, tcp, or both: SDP with fall-back to TCP (SDP_MODE)")
      ->check(CLI::IsMember({"sdp", "tcp", "both"}));
  app.add_option("--rnic", options.rnic, "soft, verbs or auto (SDP_RNIC)")
      ->check(CLI::IsMember({"soft", "verbs", "auto"}));
  app.add_option("--log", options.log, "error, info or debug (SDP_LOG)")
      ->check(CLI::IsMember({"error", "info", "debug"}));
  app.add_option("--log-file", options.log_file,
                 "where the log goes (SDP_LOG_FILE; default: standard error)");
  app.add_option("--stats-dir", options.stats_directory, "where sdpstat finds the process (SDP_STATS_DIR)");
  app.add_flag("--pmd", options.private_pmd,
               "start a port mapper for as long as PROGRAM runs, unless one runs already");
  app.add_flag("--anyway", options.anyway, "run PROGRAM even if it cannot be preloaded");
  app.prefix_command();
  app.footer(
      "Exit status: PROGRAM's own; 125 sdp-run failed; 126 PROGRAM cannot be run or preloaded; 127 not "
      "found.");
}

void SetEnvironment(const Options& options) {
  auto set = [](const char* name, const std::string& value) {
    if (!value.empty()) setenv(name, value.c_str(), 1);
  };
  set("SDP_MODE", options.mode);
  set("SDP_RNIC", options.rnic);
  set("SDP_LOG", options.log);
  set("SDP_LOG_FILE", options.log_file);
  set("SDP_STATS_DIR", options.stats_directory);
}

int Say(int status, const std::string& text) {
  std::fprintf(stderr, "sdp-run: %s\n", text.c_str());
  return status;
}

// Empty and `out` set, or what is wrong.
std::string ChooseLibrary(const Options& options, std::string* out) {
  *out = options.library.empty() ? sdp::run::FindLibrary() : options.library;
  if (out->empty()) return "no libsdp.so beside this program; name it with --lib";
  char* absolute = realpath(out->c_str(), nullptr);
  if (absolute == nullptr || access(absolute, R_OK) != 0) return *out + " cannot be read";
  *out = absolute;
  std::free(absolute);
  if (out->find_first_of(": ") != std::string::npos) {
    return *out + ": LD_PRELOAD takes no path with a space or a colon in it";
  }
  return "";
}

// Whether a port mapper of our own is needed and can serve; says why not.
bool WantsPrivateDaemon() {
  if (sdp::run::DaemonRuns(sdp::run::LocalSocketPath())) return false;
  if (sdp::run::UdpPortIsFree(kPortMapperPort)) return true;
  Say(0,
      "a port mapper that this user cannot register with has UDP port 3935: servers will be reachable over "
      "TCP only");
  return false;
}

int Run(const Options& options) {
  std::string library;
  if (std::string wrong = ChooseLibrary(options, &library); !wrong.empty()) return Say(kOwnFailure, wrong);

  sdp::run::Check check = sdp::run::CheckProgram(options.command);
  using sdp::run::Verdict;
  if (check.verdict == Verdict::kNotFound) return Say(127, check.path + " " + check.why);
  if (check.verdict == Verdict::kNotExecutable) return Say(126, check.path + " " + check.why);
  if (check.verdict == Verdict::kNotPreloadable) {
    Say(126, check.path + " " + check.why + ". It would use plain TCP" +
                 (options.anyway ? "." : "; --anyway runs it so."));
    if (!options.anyway) return 126;
  }

  SetEnvironment(options);
  std::vector<char*> arguments;
  for (const std::string& argument : options.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  sdp::run::PrivateDaemon daemon;
  bool supervise = options.private_pmd && WantsPrivateDaemon();
  if (supervise) {
    std::string program = sdp::run::FindDaemon();
    if (program.empty()) return Say(kOwnFailure, "no sdp-pmd beside this program");
    if (std::string wrong = daemon.Start(program); !wrong.empty()) return Say(kOwnFailure, wrong);
    setenv("SDP_PMD_SOCKET", daemon.socket_path().c_str(), 1);
  }
  setenv("LD_PRELOAD", sdp::run::PreloadWith(library).c_str(), 1);
  return supervise ? sdp::run::RunAsChild(arguments, &daemon) : sdp::run::Execute(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Runs a program with its TCP connections carried over SDP: sdp-run [OPTIONS] PROGRAM [ARGUMENTS].",
      "sdp-run");
  Declare(app, options);
  CLI11_PARSE(app, argc, argv);
  // Everything from the first word that is not an option of ours.
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with("-")) {
    return Say(kOwnFailure, "no such option: " + options.command.front());
  }
  if (options.command.empty()) return Say(kOwnFailure, "which program? See sdp-run --help");
  return Run(options);
}
