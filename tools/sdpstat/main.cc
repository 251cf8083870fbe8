// sdpstat: what is connected over SDP, in which mode, how fast, and why not.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/usage_message.h"
#include "tools/probe/probe.h"
#include "tools/sdpstat/doctor.h"
#include "tools/sdpstat/live.h"
#include "tools/sdpstat/mistyped.h"
#include "tools/sdpstat/plain_clients.h"
#include "tools/sdpstat/render.h"
#include "tools/sdpstat/trace.h"
#include "tools/sdpstat/why.h"
#include "tools/stats/stats_reader.h"

namespace {

namespace stats = sdp::stats;
namespace sdpstat = sdp::sdpstat;

constexpr int kUsageError = 2;
constexpr int kOutputLost = 1;
constexpr int64_t kLargestPid = 4194304;  // the kernel's bound

struct Options {
  bool json = false;
  bool summary = false;
  bool metrics = false;
  bool listening = false;
  bool all = false;
  bool tcp = false;
  bool internals = false;
  bool extended = false;
  bool no_header = false;
  bool ipv4 = false, ipv6 = false;
  bool watch = false;
  double interval = 1;
  bool ignored = false;  // what ss has and is always so here
  int64_t pid = 0;
  std::string directory;
  std::vector<std::string> filter;

  bool ended = false;

  std::string why;
  bool codes = false;
  std::string program;
  sdpstat::TraceOptions trace;
};

// Help shows the value's name, without the type and the range.
template <typename Number>
CLI::Validator Within(Number least, Number most) {
  return CLI::Range(least, most).description("");
}

void Declare(CLI::App& app, Options& options) {
  app.add_flag("-l,--listening", options.listening, "only listeners");
  app.add_flag("-a,--all", options.all,
               "also the last sockets of each process that are TCP, and plain clients, with the reason");
  app.add_flag("-t,--tcp", options.tcp, "only those");
  app.add_flag("-i,--info", options.internals,
               "a second line: buffers, messages, stalls, the link's counters, rtt and retransmissions");
  app.add_flag("-e,--extended", options.extended, "a second line: user, role, age, the reason");
  app.add_flag("--ended", options.ended, "processes found dead within the last minute, as they were");
  app.add_flag("-4,--ipv4", options.ipv4, "only IPv4");
  app.add_flag("-6,--ipv6", options.ipv6, "only IPv6");
  app.add_flag("-s,--summary", options.summary, "totals over all processes, closed connections included");
  app.add_flag("-j,--json", options.json, "everything as JSON (schema: sdpstat.schema.json)");
  app.add_flag("--metrics", options.metrics, "totals of each process as metrics for Prometheus");
  app.add_flag("-w,--watch", options.watch, "a live screen with rates; h shows its keys");
  app.add_option("--interval", options.interval, "of the live screen, in seconds (1)")
      ->type_name("SECONDS")
      ->check(Within(0.1, 60.0));
  app.add_flag("-H,--no-header", options.no_header, "no titles above the columns");
  app.add_flag("-n,--numeric,-p,--processes", options.ignored, "as ss has them; always so");
  app.add_option("--pid", options.pid, "only this process")
      ->type_name("PID")
      ->check(Within(int64_t{1}, kLargestPid));
  app.add_option(
         "--dir", options.directory,
         "read the stats files in this directory (default: SDP_STATS_DIR, or the runtime directories)")
      ->type_name("DIR");
  app.add_option(
         "filter", options.filter,
         "state established, sport = :80, dst 10.0.0.0/8, process nginx, reason pm-denied; and, or, not, ( )")
      ->type_name("FILTER");
  app.set_version_flag("-V,--version", "sdpstat " SDP_VERSION);
  app.footer(
      "Mode: of the half-connection in which the process sends, and receives: B buffered, C combined, P "
      "pipelined.\n"
      "Credit: messages it may send / Private Buffers it has posted. In, Out: bytes by Bcopy, +R by Read "
      "Zcopy,\n"
      "+W by Write Zcopy, +T by Transaction.");
}

void DeclareTrace(CLI::App& trace, Options& options) {
  trace.add_option("process", options.trace.process, "a process id, or a program's name")
      ->type_name("PID|NAME")
      ->required();
  trace.add_option("fd", options.trace.fd, "only the connection with this descriptor")
      ->type_name("NUMBER")
      ->check(Within(0, 1 << 30));
  trace.add_option("--pcap", options.trace.pcap, "write a capture there instead (-: standard output)")
      ->type_name("FILE");
  trace.add_option("-c,--count", options.trace.count, "stop after so many messages")
      ->type_name("NUMBER")
      ->check(Within(1, INT_MAX));
  trace.add_option("--seconds", options.trace.seconds, "stop after so long")
      ->type_name("SECONDS")
      ->check(Within(0.1, 1e6));
  trace.add_flag("--last", options.trace.last,
                 "only the last messages of each connection, which are always kept");
  trace.add_option("--dir", options.directory, "read the stats files in this directory")->type_name("DIR");
  trace.footer(
      "The process is on the left of the ladder, its peer on the right. Payload is not shown, and not "
      "captured.\n"
      "wireshark -X lua_script:/usr/share/sdp/sdp.lua FILE shows the fields of SDP's messages in a capture.\n"
      "Exit status: 0; 1 there is nothing to trace; 2 there is no such process.");
}

const char* Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

uint64_t WallClock() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

std::vector<std::string> Directories(const Options& options) {
  return options.directory.empty() ? stats::DefaultDirectories()
                                   : std::vector<std::string>{options.directory};
}

stats::Snapshot ReadQuietly(const Options& options) { return stats::ReadAll(Directories(options)); }

stats::Snapshot ReadEverything(const Options& options) {
  stats::Snapshot everything = ReadQuietly(options);
  for (const std::string& warning : everything.warnings)
    std::fprintf(stderr, "sdpstat: %s\n", warning.c_str());
  return everything;
}

bool HasRecords(const stats::Snapshot& snapshot) {
  return std::any_of(snapshot.processes.begin(), snapshot.processes.end(),
                     [](const stats::ProcessStats& process) { return !process.records.empty(); });
}

void SayThatNothingIsThere(const Options& options, const stats::Snapshot& everything) {
  if (!isatty(STDERR_FILENO)) return;
  const std::string own = geteuid() == 0 ? "" : " of your own";
  std::string text = "No SDP connections or listeners" + (own.empty() ? own : own + " processes") +
                     "; sdpstat -a shows sockets that are TCP, and why.";
  if (options.ended) {
    text = "No process" + own + " that ran over SDP was found dead within the last minute.";
  } else if (everything.processes.empty()) {
    text = "No process" + own +
           " runs over SDP. Start programs with sdp-run PROGRAM, or with LD_PRELOAD=libsdp.so.";
  } else if (!options.filter.empty()) {
    text = "Nothing" + (own.empty() ? own : own + " processes") + " matches the filter.";
  } else if (options.listening) {
    text = "No SDP listeners" + (own.empty() ? own : own + " processes") +
           ". Without -l the connections are shown, with -a the sockets that are TCP.";
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

size_t ScreenWidth() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int Show(const Options& options) {
  auto filter = sdpstat::ParseFilter(options.filter);
  if (!filter) {
    std::fprintf(stderr, "sdpstat: filter: %s\n", filter.error().c_str());
    const std::string command = sdpstat::CommandLike(options.filter.front());
    if (!command.empty()) std::fprintf(stderr, "sdpstat: or did you mean the command %s?\n", command.c_str());
    return kUsageError;
  }
  const int family = options.ipv4 == options.ipv6 ? 0 : options.ipv4 ? 4 : 6;
  if (options.watch) {
    std::string text;
    for (const std::string& word : options.filter) text += (text.empty() ? "" : " ") + word;
    if (options.json || options.summary || options.metrics || options.ended) {
      std::fputs(
          "sdpstat: --watch shows what lives, as a table: leave out --json, --summary, --metrics and "
          "--ended\n",
          stderr);
      return kUsageError;
    }
    const sdpstat::Selection wanted{.connections = !options.listening && !options.tcp,
                                    .listeners = options.listening || !options.tcp,
                                    .fallbacks = true,
                                    .pid = options.pid,
                                    .family = family};
    const auto read = [&] {
      stats::Snapshot everything = ReadQuietly(options);
      sdpstat::AddPlainClients(&everything);
      return sdpstat::Select(everything, wanted);
    };
    return sdpstat::Watch({.read = read,
                           .interval = std::chrono::duration<double>(options.interval),
                           .filter = text,
                           .fallbacks = options.all || options.tcp});
  }
  if (options.metrics) {
    if (options.json || options.summary || options.ended || !options.filter.empty()) {
      std::fputs("sdpstat: --metrics takes no filter, and no --json, --summary or --ended\n", stderr);
      return kUsageError;
    }
    stats::Snapshot all = ReadEverything(options);
    std::erase_if(all.processes, [&](const auto& p) { return options.pid != 0 && p.pid != options.pid; });
    std::fputs(sdpstat::RenderMetrics(all).c_str(), stdout);
    return 0;
  }
  stats::Snapshot everything = ReadEverything(options);
  if (options.ended && !options.json) std::swap(everything.processes, everything.ended);
  sdpstat::Selection selection{.pid = options.pid, .family = family, .filter = std::move(*filter)};
  // JSON shows everything unless told otherwise: a program filters for itself. A filter that names TCP's
  // state wants to see it.
  selection.fallbacks = options.all || options.json || options.tcp || !options.filter.empty();
  if (options.tcp) selection.connections = selection.listeners = false;
  // ss -tl, which is a habit: all listeners.
  if (options.listening) {
    selection.connections = selection.fallbacks_of_clients = false;
    selection.listeners = true;
  }
  if (selection.fallbacks && !options.ended) sdpstat::AddPlainClients(&everything);
  const stats::Snapshot selected = sdpstat::Select(everything, selection);

  const sdp::kernel::LinkTable links =
      options.json || options.internals ? sdp::kernel::LinkTable::Read() : sdp::kernel::LinkTable();
  if (options.json) {
    std::fputs(sdpstat::RenderJson(selected, &links).c_str(), stdout);
  } else if (options.summary) {
    std::fputs(sdpstat::RenderSummary(sdpstat::Select(everything, {.pid = options.pid})).c_str(), stdout);
  } else {
    const std::string table = sdpstat::RenderTable(selected, {.header = !options.no_header,
                                                              .internals = options.internals,
                                                              .extended = options.extended,
                                                              .now_ns = WallClock(),
                                                              .width = ScreenWidth(),
                                                              .links = &links});
    std::fputs(table.c_str(), stdout);
    if (!HasRecords(selected)) SayThatNothingIsThere(options, everything);
  }
  return 0;
}

int Run(int argc, char** argv) {
  Options options;
  CLI::App app("Shows SDP connections and listeners, one per row.", "sdpstat");
  Declare(app, options);
  CLI::App* why = app.add_subcommand("why", "which TCP sockets of a process are not SDP, and the reason");
  why->add_option("process", options.why, "a process id, or a program's name")->type_name("PID|NAME");
  why->add_flag("--codes", options.codes, "all reasons there are, what each means and what helps");
  why->add_flag("-j,--json", options.json, "as JSON");
  why->add_option("--dir", options.directory, "read the stats files in this directory")->type_name("DIR");
  why->footer("Exit status: 0 everything is SDP, 1 something is not, 2 there is no such process.");
  CLI::App* doctor = app.add_subcommand(
      "doctor", "what on this host, or on the way to another, would keep programs from SDP");
  doctor
      ->add_option("program", options.program,
                   "a program to look at too; or HOST:PORT, to try the way there step by step")
      ->type_name("NAME|HOST:PORT");
  doctor->footer("Exit status: 0 nothing is wrong, 1 something is.");
  app.failure_message(
      [](const CLI::App* whole, const CLI::Error& error) { return sdp::UsageMessage(*whole, error); });
  DeclareTrace(*app.add_subcommand(
                   "trace", "the SDP messages of a process as they come, as a ladder or for Wireshark"),
               options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  const std::string place = options.directory.empty() ? Variable("SDP_STATS_DIR") : options.directory;
  if (!doctor->parsed() && !place.empty() && place.find_first_not_of('/') == std::string::npos) {
    std::fprintf(stderr,
                 "sdpstat: %s is the root directory, where no process keeps statistics: name another\n",
                 place.c_str());
    return kUsageError;
  }
  // The default ones need not be there; one that was named is misspelt.
  if (!options.directory.empty() && !std::filesystem::is_directory(options.directory)) {
    std::fprintf(stderr,
                 "sdpstat: --dir %s: no such directory; processes publish in SDP_STATS_DIR, sdpstat doctor "
                 "says where\n",
                 options.directory.c_str());
    return kUsageError;
  }
  if (app.got_subcommand("trace")) {
    options.trace.directories = Directories(options);
    return sdpstat::Trace(options.trace);
  }
  if (doctor->parsed()) return sdpstat::Doctor(options.program);
  if (why->parsed() && options.codes) {
    std::fputs(sdpstat::RenderReasons().c_str(), stdout);
    return 0;
  }
  if (why->parsed() && options.why.empty()) {
    std::fputs(
        "sdpstat: which process? As in sdpstat why 4711 or sdpstat why psql; `sdpstat why --help` lists the "
        "options\n",
        stderr);
    return kUsageError;
  }
  if (why->parsed()) return sdpstat::Why(options.why, ReadEverything(options), options.json);
  return Show(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (int status = 0; sdp::probe::ServeProbe(argc, argv, &status)) return status;
  const int status = Run(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "sdpstat: the output is not complete: %s\n", std::strerror(errno));
  return kOutputLost;
}
