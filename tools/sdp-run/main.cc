// sdp-run: starts a program with libsdp.so preloaded, or says why that cannot work.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/usage_message.h"
#include "preload/config_reader.h"
#include "tools/probe/probe.h"
#include "tools/sdp-run/config_report.h"
#include "tools/sdp-run/daemon.h"
#include "tools/sdp-run/explain.h"
#include "tools/sdp-run/library.h"
#include "tools/sdp-run/program_check.h"
#include "tools/sdp-run/service.h"
#include "tools/sdp-run/supervise.h"

namespace {

constexpr int kOwnFailure = 125;  // as env and nice: 126 cannot be run, 127 not found
constexpr uint16_t kPortMapperPort = 3935;
constexpr size_t kMostProblems = 5;  // that are reported one by one

// Each is an option of the same name, and the variable SDP_NAME. What a value must be is known where it is
// read (ReadConfig).
struct Knob {
  const char* name;
  const char* help;
};
constexpr Knob kKnobs[] = {
    {"mode", "sdp, tcp, or both: SDP with fall-back to TCP; stands above all rules"},
    {"rnic", "soft, verbs or auto"},
    {"log", "error, info or debug"},
    {"log-file", "where the log goes (default: standard error)"},
    {"log-destination", "stderr, file or syslog"},
    {"stats-dir", "where sdpstat finds the process"},
    {"pm-port", "UDP port of the port mappers that are asked (3935)"},
    {"pm-server", "ADDR[:PORT] of a central port mapper that is asked about every target"},
    {"pm-timeout-ms", "how long a silent port mapper may delay a first connect (300)"},
    {"pm-negative-s", "for how long a host without a port mapper is not asked again (60)"},
    {"pmd-socket", "where servers register"},
    {"pm-redirect", "1: a target's port mapper may name another host"},
    {"any-privileged-port", "1: a target's port below 1024 may have any SDP port"},
    {"ports", "FIRST-LAST: SDP listeners take their ports from there (any)"},
    {"port-offset", "the SDP port is the conventional one plus this"},
    {"connect-budget-ms",
     "how long an SDP port may be silent before TCP is tried, too (three round trips, 50 to 300)"},
    {"handshake-timeout-ms", "for the start-up of a connection (10000)"},
    {"mpa-crc", "1: ask for CRC32c on every FPDU"},
    {"mpa-markers", "1: ask the peer for MPA markers"},
    {"mpa-p2p", "0: no peer-to-peer start-up"},
    {"private-buffers", "receive buffers of a connection (64; 16 on a kernel RNIC)"},
    {"private-buffer-size", "bytes of each (64528)"},
    {"private-buffer-limit", "bytes of each that a peer's stream may have them made (64528)"},
    {"send-buffer", "bytes taken from the program at most while credit is missing (262144)"},
    {"bcopy-threshold",
     "larger blocking writes may go by Zcopy, in bytes (524288 on a kernel RNIC; the embedded one copies)"},
    {"poll-us",
     "how long a call looks at its links before it sleeps, at most, in microseconds; 0: never (about what a "
     "sleep costs, 50 to 500)"},
    {"link", "links of the embedded RNIC: auto (shared memory within the host), local, tcp"},
    {"io-uring", "may a program that may have SDP sockets use io_uring: deny, allow"},
    {"force", "chosen, or for measurements: bcopy, read, write, transaction"},
};
constexpr size_t kKnobCount = sizeof kKnobs / sizeof *kKnobs;

struct Options {
  std::string library, config, explain, enable, disable, root;
  std::string values[kKnobCount];
  std::vector<std::string> set;
  bool require = false;
  bool private_pmd = false;
  bool anyway = false;
  std::vector<std::string> command;
};

void Declare(CLI::App& app, Options& options) {
  app.add_option("--lib", options.library, "libsdp.so to use (default: the one beside this program)")
      ->type_name("FILE");
  app.add_option("--config", options.config, "configuration file (SDP_CONFIG; default: /etc/sdp/libsdp.conf)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile.description(""));
  for (size_t i = 0; i < kKnobCount; ++i) {
    app.add_option(std::string("--") + kKnobs[i].name, options.values[i], kKnobs[i].help)
        ->type_name("VALUE")
        ->group("Settings (SDP_... in the environment)");
  }
  app.add_option("--set", options.set, "any setting of libsdp.conf(5); may be repeated")
      ->type_name("NAME=VALUE")
      ->take_all()
      ->allow_extra_args(false)
      ->group("Settings (SDP_... in the environment)");
  app.add_flag("--require", options.require, "SDP or an error, never TCP: --mode sdp");
  app.add_option("--explain", options.explain,
                 "say which rule matches and what a connection would be, by trying it")
      ->type_name("HOST:PORT");
  app.add_option("--enable", options.enable,
                 "write a drop-in that names the library and the settings for this service")
      ->type_name("SERVICE");
  app.add_option("--disable", options.disable, "remove that drop-in")->type_name("SERVICE");
  app.add_option("--root", options.root, "for --enable and --disable: the services of another root directory")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory.description(""));
  app.add_flag("--pmd", options.private_pmd,
               "start a port mapper for as long as PROGRAM runs, unless one runs already");
  app.add_flag("--anyway", options.anyway, "run PROGRAM even if it cannot be preloaded");
  app.set_version_flag("-V,--version", "sdp-run " SDP_VERSION);
  app.prefix_command();
  app.footer(
      "Exit status: PROGRAM's own; 125 sdp-run failed; 126 PROGRAM cannot be run or preloaded; 127 not "
      "found.\nWith --explain: 0 it would be SDP, 1 it would not.");
}

std::string Variable(const std::string& name) {
  std::string variable = "SDP_";
  for (const char c : name)
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

// What the options set, in the form of a configuration file's settings. Empty, or what is wrong with one.
std::string TakeSettings(const Options& options, std::vector<sdp::preload::Setting>* out) {
  for (size_t i = 0; i < kKnobCount; ++i) {
    if (!options.values[i].empty()) out->push_back({Variable(kKnobs[i].name), options.values[i]});
  }
  for (const std::string& text : options.set) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return "--set wants NAME=VALUE, but there is '" + text + "'";
    out->push_back({Variable(text.substr(0, equals)), text.substr(equals + 1)});
  }
  if (options.require) {
    const auto other = std::find_if(out->begin(), out->end(), [](const sdp::preload::Setting& setting) {
      return setting.variable == "SDP_MODE" && setting.value != "sdp";
    });
    if (other != out->end())
      return "--require wants SDP alone, and the mode is to be " + other->value + ": leave out one of them";
    out->push_back({"SDP_MODE", "sdp"});
  }
  for (const sdp::preload::Setting& setting : *out) {
    std::vector<std::string> problems;
    sdp::preload::ConfigFile alone;
    alone.settings = {setting};
    sdp::preload::ReadConfig([](const char*) { return nullptr; }, alone, "", &problems);
    if (problems.empty()) continue;
    // ":0:0: NAME VALUE is not WANTED: ignored"
    std::string text = problems.front();
    if (text.starts_with(":0:0: ")) text.erase(0, 6);
    const size_t end = text.rfind(": ignored");
    return text.substr(0, end) + "; sdp-run --help lists the settings";
  }
  return "";
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
  if (!sdp::run::LooksLikeOurs(*out)) return *out + " is no libsdp.so";
  if (out->find_first_of(": ") != std::string::npos) {
    return *out + ": LD_PRELOAD takes no path with a space or a colon in it";
  }
  return "";
}

// Whether a port mapper of our own is needed and can serve; says why not.
bool WantsPrivateDaemon() {
  const std::vector<std::string> places = sdp::run::LocalSocketPaths();
  if (std::any_of(places.begin(), places.end(), sdp::run::DaemonRuns)) return false;
  if (sdp::run::UdpPortIsFree(kPortMapperPort)) return true;
  Say(0,
      "UDP port 3935 is taken, perhaps by the port mapper of another sdp-run --pmd: servers will be "
      "reachable "
      "over TCP only. For several servers start one sdp-pmd");
  return false;
}

int ChangeService(const Options& options, const std::vector<sdp::preload::Setting>& settings,
                  const std::string& library) {
  if (!options.command.empty() || (!options.enable.empty() && !options.disable.empty()))
    return Say(kOwnFailure, "--enable and --disable want one service, and no program");
  const bool enables = !options.enable.empty();
  sdp::run::ServiceRequest request{.unit = enables ? options.enable : options.disable,
                                   .root = options.root,
                                   .library = library,
                                   .settings = {},
                                   .anyway = options.anyway};
  for (const sdp::preload::Setting& setting : settings)
    request.settings.emplace_back(setting.variable, setting.value);
  if (!options.config.empty()) request.settings.emplace_back("SDP_CONFIG", options.config);
  const sdp::run::ServiceOutcome outcome =
      enables ? sdp::run::EnableService(request) : sdp::run::DisableService(request);
  return Say(outcome.done ? 0 : kOwnFailure, outcome.text);
}

int Run(const Options& options) {
  std::vector<sdp::preload::Setting> settings;
  if (std::string wrong = TakeSettings(options, &settings); !wrong.empty()) return Say(kOwnFailure, wrong);
  std::string library;
  if (std::string wrong = ChooseLibrary(options, &library); !wrong.empty()) return Say(kOwnFailure, wrong);
  if (!options.enable.empty() || !options.disable.empty()) return ChangeService(options, settings, library);
  for (const sdp::preload::Setting& setting : settings)
    setenv(setting.variable.c_str(), setting.value.c_str(), 1);
  if (!options.config.empty()) setenv("SDP_CONFIG", options.config.c_str(), 1);
  if (!options.explain.empty()) return sdp::run::Explain(options.explain, options.command, library);

  std::vector<std::string> problems = sdp::run::LookAtConfig(getenv, environ).problems;
  for (const std::string& problem : sdp::run::Shortened(std::move(problems), kMostProblems)) Say(0, problem);
  sdp::run::Check check = sdp::run::CheckProgram(options.command);
  using sdp::run::Verdict;
  if (check.verdict == Verdict::kNotFound) return Say(127, check.path + " " + check.why);
  if (check.verdict == Verdict::kNotExecutable) return Say(126, check.path + " " + check.why);
  if (check.verdict == Verdict::kNotPreloadable) {
    Say(126, check.path + " " + check.why + ". It would use plain TCP" +
                 (options.anyway ? "." : "; --anyway runs it so."));
    if (!options.anyway) return 126;
  }

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
  if (int status = 0; sdp::probe::ServeProbe(argc, argv, &status)) return status;
  Options options;
  CLI::App app(
      "Runs a program with its TCP connections carried over SDP: sdp-run [OPTIONS] PROGRAM [ARGUMENTS].",
      "sdp-run");
  Declare(app, options);
  app.failure_message(
      [](const CLI::App* whole, const CLI::Error& error) { return sdp::UsageMessage(*whole, error); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kOwnFailure;
  }
  // Everything from the first word that is not an option of ours.
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with("-")) {
    const std::string likely = sdp::ClosestOption(app, options.command.front());
    return Say(kOwnFailure, "no such option: " + options.command.front() +
                                (likely.empty() ? "" : "; did you mean " + likely + "?") +
                                "; see sdp-run --help");
  }
  if (options.command.empty() && options.explain.empty() && options.enable.empty() && options.disable.empty())
    return Say(kOwnFailure, "which program? See sdp-run --help");
  return Run(options);
}
