// sdp-pmd: tells SDP clients of other hosts which port of this host speaks SDP.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/usage_message.h"
#include "portmapper/daemon/daemon.h"
#include "portmapper/daemon/log.h"
#include "portmapper/daemon/sandbox.h"
#include "portmapper/registrar.h"

namespace sdp::pm {
namespace {

constexpr int kUsageError = 2;

constexpr std::pair<const char*, LogLevel> kLogLevels[] = {
    {"error", LogLevel::kError}, {"info", LogLevel::kInfo}, {"debug", LogLevel::kDebug}};
constexpr std::pair<const char*, LogFormat> kLogFormats[] = {
    {"text", LogFormat::kText}, {"logfmt", LogFormat::kLogfmt}, {"json", LogFormat::kJson}};

template <typename Enum, size_t kCount>
std::vector<std::string> Names(const std::pair<const char*, Enum> (&words)[kCount]) {
  std::vector<std::string> names;
  for (const auto& [name, meaning] : words) names.emplace_back(name);
  return names;
}

// `name` is one of them: the command line was checked.
template <typename Enum, size_t kCount>
Enum Meaning(const std::string& name, const std::pair<const char*, Enum> (&words)[kCount]) {
  return std::find_if(std::begin(words), std::end(words),
                      [&](const auto& word) { return name == word.first; })
      ->second;
}

struct CommandLine {
  std::vector<std::string> listen;
  std::string socket_path = DefaultSocketPath(geteuid(), secure_getenv);
  std::string socket_mode;
  std::string user;
  bool no_seccomp = false;
  int pm_time = 20;
  int ack_timeout_ms = 5000;
  AdmissionOptions admission;
  std::string metrics;
  std::string registry;
  std::vector<std::string> serve;
  std::vector<std::string> central;
  std::vector<std::string> addresses;
  int lifetime = 6;
  int weight = 1;
  std::string log_level = "info";
  std::string log_format = "text";
  int ready_fd = -1;
};

void Declare(CLI::App& app, CommandLine& line) {
  app.add_option("--listen", line.listen,
                 "UDP address to serve; repeatable; default all addresses, port 3935")
      ->type_name("ADDR[:PORT]");
  app.add_option("--socket", line.socket_path, "socket where the processes of this host register")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--socket-mode", line.socket_mode,
                 "who may register, as the socket's permissions; default 0666 for root, else 0600")
      ->type_name("OCTAL")
      ->check([](const std::string& text) {
        return text.size() <= 4 && text.find_first_not_of("01234567") == std::string::npos &&
                       std::stoul("0" + text, nullptr, 8) <= 0777
                   ? std::string()
                   : "not a permission such as 0660: " + text;
      });
  app.add_option("--user", line.user, "whom to become when everything is open; for root")->type_name("USER");
  app.add_flag("--no-seccomp", line.no_seccomp, "do not forbid the system calls that are not needed");
  app.add_option("--pmtime", line.pm_time,
                 "how long clients may cache an answer: 0 not at all, 1-127 in 250 ms, 128-254 in seconds, "
                 "255 for ever")
      ->capture_default_str()
      ->check(CLI::Range(0, 255));
  app.add_option("--ack-timeout", line.ack_timeout_ms, "how long an answer waits for its PMAck")
      ->type_name("MS")
      ->capture_default_str()
      ->check(CLI::Range(10, 600000));
  app.add_option("--registry", line.registry, "services, access lists and hosts to serve; see sdp-pmd(8)")
      ->type_name("FILE");
  app.add_option(
         "--serve", line.serve,
         "answer for these hosts, from what they announce; for services of PREFIX with where the HOSTs have "
         "them; repeatable")
      ->type_name("PREFIX[=HOST,...]");
  app.add_option("--central", line.central, "announce our listeners to this central port mapper; repeatable")
      ->type_name("ADDR[:PORT]");
  app.add_option(
         "--address", line.addresses,
         "address to announce listeners on the wildcard with; repeatable; default the one used towards "
         "the central port mapper")
      ->type_name("ADDR");
  app.add_option("--lifetime", line.lifetime,
                 "seconds an announcement holds; it is renewed three times as often")
      ->type_name("S")
      ->capture_default_str()
      ->check(CLI::Range(1, 255));
  app.add_option(
         "--weight", line.weight,
         "share of the clients beside other hosts with the same address; 0: only if there is no other")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--limit-source", line.admission.source_rate,
                 "datagrams a second heard from one IPv4 address or one IPv6 /64; 0: no limit")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{0}, UINT32_MAX));
  app.add_option("--limit-total", line.admission.total_rate, "datagrams a second heard from all; 0: no limit")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{0}, UINT32_MAX));
  app.add_flag(
      "--privileged-ports", line.admission.privileged_ports,
      "answer questions from ports below 1024 too; a forged one would make the answer hit a service");
  app.add_option("--metrics", line.metrics,
                 "serve counters as OpenMetrics here: a unix socket or a loopback port")
      ->type_name("unix:PATH|[ADDR:]PORT");
  app.add_option("--log-level", line.log_level, "error, info (the default) or debug")
      ->option_text("LEVEL")
      ->check(CLI::IsMember(Names(kLogLevels)));
  app.add_option("--log-format", line.log_format, "text (the default), logfmt or json: a line for each event")
      ->option_text("FORMAT")
      ->check(CLI::IsMember(Names(kLogFormats)));
  app.add_option("--ready-fd", line.ready_fd, "write \"ready\" to this descriptor when serving, and close it")
      ->check(CLI::Range(0, 1 << 20));
  app.set_version_flag("-V,--version", "sdp-pmd " SDP_VERSION);
}

// Empty, with a message, if something does not make sense.
std::optional<DaemonOptions> ToOptions(const CommandLine& line) {
  DaemonOptions options;
  options.socket_path = line.socket_path;
  if (!line.socket_mode.empty()) options.socket_mode = std::stoul(line.socket_mode, nullptr, 8);
  options.admission = line.admission;
  options.pm_time = PmTime(static_cast<uint8_t>(line.pm_time));
  options.ack_timeout = std::chrono::milliseconds(line.ack_timeout_ms);
  options.registry = line.registry;
  options.metrics = line.metrics;
  options.restrict_system_calls = !line.no_seccomp;
  if (!line.user.empty()) {
    const auto user = FindUser(line.user);
    if (!user.ok() || geteuid() != 0) {
      Log(LogLevel::kError, "--user %s: %s", line.user,
          user.ok() ? "only root can become another user" : user.status().message());
      return std::nullopt;
    }
    options.user = *user;
  }
  const auto bad = [](const char* option, const std::string& text, const char* wanted) {
    Log(LogLevel::kError, "%s %s: not %s", option, text, wanted);
    return std::nullopt;
  };
  for (const std::string& text : line.listen) {
    const auto address = ParseEndpoint(text, kPmUdpPort);
    if (!address || NormalizeMapped(*address).IsMulticastOrBroadcast())
      return bad("--listen", text, "an IP address of this host with an optional port");
    options.listen.push_back(*address);
  }
  for (const std::string& text : line.serve) {
    if (!ParseServe(text, &options.serve)) {
      return bad(
          "--serve", text,
          "a prefix such as 10.0.0.0/8, with no bits beyond its length, or such a prefix and the hosts that "
          "stand for it, as in 10.0.0.9=10.0.0.1,10.0.0.2");
    }
  }
  AnnouncerOptions announcer;
  announcer.lifetime = static_cast<uint8_t>(line.lifetime);
  announcer.weight = static_cast<uint16_t>(line.weight);
  for (const std::string& text : line.addresses) {
    const auto address = ParseEndpoint(text, uint16_t{0});
    if (!address || address->port != 0 || address->IsWildcard())
      return bad("--address", text, "an IP address");
    announcer.addresses.push_back(*address);
  }
  for (const std::string& text : line.central) {
    const auto address = ParseEndpoint(text, kPmUdpPort);
    if (!address || address->IsWildcard())
      return bad("--central", text, "an IP address with an optional port");
    announcer.central = *address;
    options.announcers.push_back(announcer);
  }
  return options;
}

int Serve(const CommandLine& line) {
  SetLogLevel(Meaning(line.log_level, kLogLevels));
  SetLogFormat(Meaning(line.log_format, kLogFormats));
  const auto options = ToOptions(line);
  if (!options) return kUsageError;
  signal(SIGPIPE, SIG_IGN);
  auto daemon = Daemon::Open(*options);
  if (!daemon.ok()) {
    LogLines(LogLevel::kError, std::string(daemon.status().message()));
    return absl::IsInvalidArgument(daemon.status()) ? kUsageError : 1;
  }
  std::printf("sdp-pmd: ready, %s\n", (*daemon)->Describe().c_str());
  std::fflush(stdout);
  if (line.ready_fd >= 0) {
    (void)!write(line.ready_fd, "ready\n", 6);
    close(line.ready_fd);
  }
  const absl::Status status = (*daemon)->Run();
  if (status.ok()) return 0;
  Log(LogLevel::kError, "%s", status.message());
  return 1;
}

}  // namespace
}  // namespace sdp::pm

int main(int argc, char** argv) {
  CLI::App app("SDP port mapper daemon: answers, on UDP port 3935, which port of this host speaks SDP.",
               "sdp-pmd");
  sdp::pm::CommandLine line;
  sdp::pm::Declare(app, line);
  app.failure_message(
      [](const CLI::App* whole, const CLI::Error& error) { return sdp::UsageMessage(*whole, error); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : sdp::pm::kUsageError;
  }
  return sdp::pm::Serve(line);
}
