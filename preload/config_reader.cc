#include "preload/config_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/closest_word.h"
#include "preload/config_names.h"

namespace sdp::preload {
namespace {

constexpr size_t kMostGuesses = 16;

class Reader {
 public:
  Reader(const Lookup& lookup, const ConfigFile& file, const std::string& file_name,
         std::vector<std::string>* problems)
      : lookup_(lookup), file_(file), file_name_(file_name), problems_(problems) {}

  [[nodiscard]] bool InEnvironment(const char* name) const {
    const char* value = lookup_(name);
    return value != nullptr && *value != '\0';
  }

  void Text(const char* name, std::string* out) {
    if (const char* value = Value(name)) *out = value;
  }

  // Every program may put files there: not into the root directory.
  void Directory(const char* name, std::string* out) {
    const char* value = Value(name);
    if (value == nullptr) return;
    if (value[std::strspn(value, "/")] == '\0') return Complain(name, value, "a directory of its own");
    *out = value;
  }

  template <typename Enum, size_t kChoices>
  void Choice(const char* name, const std::pair<std::string_view, Enum> (&choices)[kChoices], Enum* out) {
    const char* value = Value(name);
    if (value == nullptr) return;
    for (const auto& [word, meaning] : choices) {
      if (word == value) {
        *out = meaning;
        return;
      }
    }
    std::string words;
    for (const auto& [word, meaning] : choices) words.append(words.empty() ? "" : ", ").append(word);
    Complain(name, value, "one of " + words);
  }

  // Returns whether there was a valid number; if so, *out receives it.
  template <typename Number>
  bool Count(const char* name, Number least, Number most, Number* out) {
    const char* value = Value(name);
    if (value == nullptr) return false;
    const char* end = value + std::strlen(value);
    Number number{};
    const auto [stop, error] = std::from_chars(value, end, number);
    if (error != std::errc{} || stop != end || number < least || number > most) {
      Complain(name, value, "a number from " + std::to_string(least) + " to " + std::to_string(most));
      return false;
    }
    *out = number;
    return true;
  }

  template <typename Number>
  void Count(const char* name, Number least, Number most, std::optional<Number>* out) {
    Number number{};
    if (Count(name, least, most, &number)) *out = number;
  }

  void Address(const char* name, uint16_t default_port, std::optional<pm::Endpoint>* out) {
    const char* value = Value(name);
    if (value == nullptr) return;
    const auto address = pm::ParseEndpoint(value, default_port);
    if (!address || address->port == 0 || address->IsWildcard()) {
      Complain(name, value,
               "an IP address with an optional port, such as 10.0.0.1, 10.0.0.1:3935 or [2001:db8::1]:3935");
      return;
    }
    *out = address;
  }

  void Ports(const char* name, std::optional<PortRange>* out) {
    const char* value = Value(name);
    if (value == nullptr) return;
    const char* const end = value + std::strlen(value);
    PortRange ports;
    std::from_chars_result read = std::from_chars(value, end, ports.first);
    ports.last = ports.first;
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, ports.last);
    if (read.ec != std::errc{} || read.ptr != end || ports.first == 0 || ports.last < ports.first)
      return Complain(name, value, "a port or two, such as 45000-45099");
    *out = ports;
  }

  void Flag(const char* name, bool* out) { Choice<bool>(name, {{"0", false}, {"1", true}}, out); }

  template <typename Unit>
  void Time(const char* name, int64_t most, Duration* out) {
    int64_t count = std::chrono::duration_cast<Unit>(*out).count();
    Count<int64_t>(name, 0, most, &count);
    *out = Unit(count);
  }

  template <typename Unit>
  void Time(const char* name, int64_t most, std::optional<Duration>* out) {
    std::optional<int64_t> count;
    Count<int64_t>(name, 0, most, &count);
    if (count) *out = Unit(*count);
  }

  // Reports the settings that no variable corresponds to.
  void ComplainOfUnknown() const {
    for (const Setting& setting : file_.settings) {
      if (std::find(asked_.begin(), asked_.end(), setting.variable) != asked_.end()) continue;
      const std::string name = FileName(setting.variable);
      // A file that is something else altogether does not get a guess for every line.
      const std::string likely = problems_->size() < kMostGuesses ? KnownNameLike(name) : std::string();
      problems_->push_back(Position(setting) + "there is no setting '" + name + "'" +
                           (likely.empty() ? "" : ", perhaps " + likely) + ": ignored");
    }
  }

  // Reports the variables that look like the library's and are not. `environment` may be null.
  void ComplainOfUnknown(const char* const* environment) const {
    for (; environment != nullptr && *environment != nullptr; ++environment) {
      const std::string_view entry(*environment);
      const std::string name(entry.substr(0, entry.find('=')));
      if (!name.starts_with("SDP_") || IsNoSetting(name) ||
          std::find(asked_.begin(), asked_.end(), name) != asked_.end())
        continue;
      const std::string likely = problems_->size() < kMostGuesses ? ClosestWord(name, asked_) : std::string();
      problems_->push_back("there is no variable " + name + (likely.empty() ? "" : ", perhaps " + likely) +
                           ": ignored");
    }
  }

 private:
  const char* Value(const char* name) {
    asked_.emplace_back(name);
    if (InEnvironment(name)) return lookup_(name);
    const Setting* setting = InFile(name);
    return setting == nullptr ? nullptr : setting->value.c_str();
  }
  [[nodiscard]] const Setting* InFile(std::string_view name) const {
    for (auto setting = file_.settings.rbegin(); setting != file_.settings.rend(); ++setting) {
      if (setting->variable == name) return &*setting;
    }
    return nullptr;
  }
  [[nodiscard]] std::string Position(const Setting& setting) const {
    return file_name_ + ":" + std::to_string(setting.line) + ":" + std::to_string(setting.column) + ": ";
  }
  // SDP_PRIVATE_BUFFERS is private-buffers in the file.
  static std::string FileName(std::string_view variable) {
    std::string name;
    for (const char c : variable.substr(4))
      name += c == '_' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return name;
  }
  [[nodiscard]] std::string KnownNameLike(const std::string& name) const {
    std::vector<std::string> names;
    for (const std::string& variable : asked_) names.push_back(FileName(variable));
    return ClosestWord(name, names);
  }
  void Complain(const char* name, const char* value, const std::string& wanted) const {
    const Setting* setting = InEnvironment(name) ? nullptr : InFile(name);
    const std::string what =
        setting == nullptr ? std::string(name) + "=" : Position(*setting) + FileName(name) + " ";
    problems_->push_back(what + value + " is not " + wanted + ": ignored");
  }

  const Lookup& lookup_;
  const ConfigFile& file_;
  const std::string& file_name_;
  std::vector<std::string>* problems_;
  std::vector<std::string> asked_;
};

void ReadLog(Reader& reader, Config* config) {
  reader.Choice<LogLevel>(
      "SDP_LOG", {{"error", LogLevel::kError}, {"info", LogLevel::kInfo}, {"debug", LogLevel::kDebug}},
      &config->log_level);
  reader.Text("SDP_LOG_FILE", &config->log_file);
  if (!config->log_file.empty()) config->log_destination = LogDestination::kFile;
  LogDestination named = config->log_destination;
  reader.Choice<LogDestination>("SDP_LOG_DESTINATION",
                                {{"stderr", LogDestination::kStandardError},
                                 {"syslog", LogDestination::kSyslog},
                                 {"file", LogDestination::kFile}},
                                &named);
  // A log file from the environment overrides a destination from the file.
  if (reader.InEnvironment("SDP_LOG_FILE") && !reader.InEnvironment("SDP_LOG_DESTINATION")) return;
  config->log_destination =
      named == LogDestination::kFile && config->log_file.empty() ? LogDestination::kStandardError : named;
}

}  // namespace

Config ReadConfig(const Lookup& lookup, const ConfigFile& file, const std::string& file_name,
                  std::vector<std::string>* problems, const char* const* environment) {
  Config config;
  Reader reader(lookup, file, file_name, problems);
  reader.Choice<Mode>("SDP_MODE", {{"both", Mode::kBoth}, {"sdp", Mode::kSdp}, {"tcp", Mode::kTcp}},
                      &config.mode);
  config.mode_is_forced = reader.InEnvironment("SDP_MODE");
  reader.Choice<RnicChoice>(
      "SDP_RNIC", {{"auto", RnicChoice::kAuto}, {"soft", RnicChoice::kSoft}, {"verbs", RnicChoice::kVerbs}},
      &config.rnic);
  reader.Choice<LinkChoice>(
      "SDP_LINK", {{"auto", LinkChoice::kAuto}, {"local", LinkChoice::kLocal}, {"tcp", LinkChoice::kTcp}},
      &config.link);
  ReadLog(reader, &config);
  reader.Count<uint16_t>("SDP_PM_PORT", 1, 65535, &config.pm_port);
  reader.Address("SDP_PM_SERVER", config.pm_port, &config.pm_server);
  reader.Text("SDP_PMD_SOCKET", &config.pmd_socket);
  reader.Time<std::chrono::milliseconds>("SDP_PM_TIMEOUT_MS", 3'600'000, &config.pm_timeout);
  reader.Time<std::chrono::seconds>("SDP_PM_NEGATIVE_S", 1'000'000, &config.pm_negative);
  reader.Flag("SDP_PM_REDIRECT", &config.pm_redirect);
  reader.Flag("SDP_ANY_PRIVILEGED_PORT", &config.any_privileged_port);
  reader.Ports("SDP_PORTS", &config.sdp_ports);
  reader.Count<uint16_t>("SDP_PORT_OFFSET", 1, 65534, &config.sdp_port_offset);
  reader.Time<std::chrono::milliseconds>("SDP_CONNECT_BUDGET_MS", 3'600'000, &config.connect_budget);
  reader.Time<std::chrono::milliseconds>("SDP_HANDSHAKE_TIMEOUT_MS", 3'600'000, &config.handshake_timeout);
  reader.Flag("SDP_MPA_CRC", &config.mpa_crc);
  reader.Flag("SDP_MPA_MARKERS", &config.mpa_markers);
  reader.Flag("SDP_MPA_P2P", &config.mpa_peer_to_peer);
  reader.Count<uint16_t>("SDP_PRIVATE_BUFFERS", kLeastPrivateBuffers, kMostPrivateBuffers,
                         &config.receive_buffers);
  reader.Count<uint32_t>("SDP_PRIVATE_BUFFER_SIZE", kLeastPrivateBufferSize, kMostPrivateBufferSize,
                         &config.receive_buffer_size);
  reader.Count<uint32_t>("SDP_PRIVATE_BUFFER_LIMIT", kLeastPrivateBufferSize, kMostPrivateBufferSize,
                         &config.receive_buffer_limit);
  reader.Count<uint32_t>("SDP_SEND_BUFFER", 0, 1 << 30, &config.send_buffer);
  reader.Count<uint32_t>("SDP_BCOPY_THRESHOLD", 0, UINT32_MAX, &config.bcopy_threshold);
  reader.Time<std::chrono::microseconds>("SDP_CQ_POLL_US", 10'000, &config.poll);  // its old name
  reader.Time<std::chrono::microseconds>("SDP_POLL_US", 10'000, &config.poll);
  reader.Choice<Mechanism>("SDP_FORCE",
                           {{"chosen", Mechanism::kChosen},
                            {"bcopy", Mechanism::kBcopy},
                            {"read", Mechanism::kRead},
                            {"write", Mechanism::kWrite},
                            {"transaction", Mechanism::kTransaction}},
                           &config.force);
  reader.Choice<IoUringUse>("SDP_IO_URING", {{"deny", IoUringUse::kDeny}, {"allow", IoUringUse::kAllow}},
                            &config.io_uring);
  reader.Directory("SDP_STATS_DIR", &config.stats_dir);
  reader.ComplainOfUnknown();
  reader.ComplainOfUnknown(environment);
  return config;
}

}  // namespace sdp::preload
