// sdpstat: what is connected over SDP, in which mode, how fast, and why not.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tools/sdpstat/render.h"
#include "tools/stats/stats_reader.h"

namespace {

struct Options {
  bool json = false;
  bool summary = false;
  bool listening = false;
  bool all = false;
  bool extended = false;
  bool no_header = false;
  int64_t pid = 0;
  std::string directory;
};

void Declare(CLI::App& app, Options& options) {
  app.add_flag("-l,--listening", options.listening, "only listeners");
  app.add_flag("-a,--all", options.all,
               "also the last sockets of each process that fell back to TCP, with the reason");
  app.add_flag("-e,--extended", options.extended,
               "a second line per row: buffers, messages, stalls, the link's counters, the reason");
  app.add_option("-p,--pid", options.pid, "only this process")->check(CLI::PositiveNumber);
  app.add_flag("-s,--summary", options.summary, "totals over all processes, closed connections included");
  app.add_flag("-j,--json", options.json, "everything as JSON (schema: tools/README.md)");
  app.add_flag("-H,--no-header", options.no_header, "no titles above the columns");
  app.add_option(
      "--dir", options.directory,
      "read the stats files in this directory (default: SDP_STATS_DIR, or the runtime directories)");
  app.footer(
      "Mode: of the half-connection in which the process sends, and receives: B buffered, C combined, P "
      "pipelined.\n"
      "Credit: messages it may send / Private Buffers it has posted. In, Out: bytes by Bcopy, +R by Read "
      "Zcopy,\n"
      "+W by Write Zcopy, +T by Transaction.");
}

void Print(const Options& options) {
  std::vector<std::string> directories = sdp::stats::DefaultDirectories();
  if (!options.directory.empty()) directories = {options.directory};
  sdp::stats::Snapshot everything = sdp::stats::ReadAll(directories);
  for (const std::string& warning : everything.warnings) {
    std::fprintf(stderr, "sdpstat: %s\n", warning.c_str());
  }

  sdp::sdpstat::Selection selection;
  selection.pid = options.pid;
  // JSON and the summary show everything unless told otherwise: a program filters for itself.
  selection.fallbacks = options.all || options.json;
  if (options.listening) selection.connections = selection.fallbacks = false;
  sdp::stats::Snapshot selected = sdp::sdpstat::Select(everything, selection);

  if (options.json) {
    std::fputs(sdp::sdpstat::RenderJson(selected).c_str(), stdout);
    return;
  }
  if (options.summary) {
    selection.connections = selection.listeners = true;
    std::fputs(sdp::sdpstat::RenderSummary(sdp::sdpstat::Select(everything, selection)).c_str(), stdout);
    return;
  }
  std::string table =
      sdp::sdpstat::RenderTable(selected, {.header = !options.no_header, .extended = options.extended});
  std::fputs(table.c_str(), stdout);
  if (!table.empty()) return;
  if (everything.processes.empty()) {
    std::fputs(
        "No process runs over SDP. Start programs with sdp-run PROGRAM, or with LD_PRELOAD=libsdp.so.\n",
        stdout);
  } else if (options.listening) {
    std::fputs("No SDP listeners. Without -l the connections are shown, with -a the fall-backs to TCP.\n",
               stdout);
  } else {
    std::fputs("No SDP connections or listeners; sdpstat -a shows sockets that fell back to TCP, and why.\n",
               stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Shows SDP connections and listeners, one per row.", "sdpstat");
  Declare(app, options);
  CLI11_PARSE(app, argc, argv);
  Print(options);
  return 0;
}
