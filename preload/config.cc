#include "preload/config.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "preload/config_reader.h"

namespace sdp::preload {
namespace {

class EnvironmentReader {
 public:
  EnvironmentReader(const char* (*lookup)(const char*), std::vector<std::string>* problems)
      : lookup_(lookup), problems_(problems) {}

  void Text(const char* name, std::string* out) const {
    if (const char* value = Value(name)) *out = value;
  }

  template <typename Enum, size_t kChoices>
  void Choice(const char* name, const std::pair<std::string_view, Enum> (&choices)[kChoices],
              Enum* out) const {
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

  template <typename Number>
  void Count(const char* name, Number least, Number most, Number* out) const {
    const char* value = Value(name);
    if (value == nullptr) return;
    const char* end = value + std::strlen(value);
    Number number{};
    const auto [stop, error] = std::from_chars(value, end, number);
    if (error != std::errc{} || stop != end || number < least || number > most) {
      Complain(name, value, "a number from " + std::to_string(least) + " to " + std::to_string(most));
      return;
    }
    *out = number;
  }

  void Flag(const char* name, bool* out) const { Choice<bool>(name, {{"0", false}, {"1", true}}, out); }

  template <typename Unit>
  void Time(const char* name, int64_t most, Duration* out) const {
    int64_t count = std::chrono::duration_cast<Unit>(*out).count();
    Count<int64_t>(name, 0, most, &count);
    *out = Unit(count);
  }

 private:
  const char* Value(const char* name) const {
    const char* value = lookup_(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  }
  void Complain(const char* name, const char* value, const std::string& wanted) const {
    problems_->push_back(std::string(name) + "=" + value + " is not " + wanted + ": ignored");
  }

  const char* (*lookup_)(const char*);
  std::vector<std::string>* problems_;
};

struct ProcessConfig {
  std::vector<std::string> problems;
  Config config;
};

// Never destroyed: threads may run on while the process exits.
const ProcessConfig& process_config() {
  static const ProcessConfig* const instance = [] {
    auto* read = new ProcessConfig;
    read->config =
        ReadConfig([](const char* name) -> const char* { return secure_getenv(name); }, &read->problems);
    return read;
  }();
  return *instance;
}

}  // namespace

Config ReadConfig(const char* (*lookup)(const char* name), std::vector<std::string>* problems) {
  Config config;
  const EnvironmentReader environment(lookup, problems);
  environment.Choice<Mode>("SDP_MODE", {{"both", Mode::kBoth}, {"sdp", Mode::kSdp}, {"tcp", Mode::kTcp}},
                           &config.mode);
  environment.Choice<RnicChoice>(
      "SDP_RNIC", {{"auto", RnicChoice::kAuto}, {"soft", RnicChoice::kSoft}, {"verbs", RnicChoice::kVerbs}},
      &config.rnic);
  environment.Choice<LogLevel>(
      "SDP_LOG", {{"error", LogLevel::kError}, {"info", LogLevel::kInfo}, {"debug", LogLevel::kDebug}},
      &config.log_level);
  environment.Text("SDP_LOG_FILE", &config.log_file);
  environment.Count<uint16_t>("SDP_PM_PORT", 1, 65535, &config.pm_port);
  environment.Text("SDP_PMD_SOCKET", &config.pmd_socket);
  environment.Time<std::chrono::milliseconds>("SDP_PM_TIMEOUT_MS", 3'600'000, &config.pm_timeout);
  environment.Time<std::chrono::seconds>("SDP_PM_NEGATIVE_S", 1'000'000, &config.pm_negative);
  environment.Time<std::chrono::milliseconds>("SDP_HANDSHAKE_TIMEOUT_MS", 3'600'000,
                                              &config.handshake_timeout);
  environment.Flag("SDP_MPA_CRC", &config.mpa_crc);
  environment.Flag("SDP_MPA_MARKERS", &config.mpa_markers);
  environment.Flag("SDP_MPA_P2P", &config.mpa_peer_to_peer);
  environment.Count<uint16_t>("SDP_PRIVATE_BUFFERS", 3, 4096, &config.receive_buffers);
  environment.Count<uint32_t>("SDP_PRIVATE_BUFFER_SIZE", 128, 1 << 20, &config.receive_buffer_size);
  environment.Count<uint32_t>("SDP_SEND_BUFFER", 0, 1 << 30, &config.send_buffer);
  environment.Text("SDP_STATS_DIR", &config.stats_dir);
  return config;
}

const Config& config() { return process_config().config; }
const std::vector<std::string>& ConfigProblems() { return process_config().problems; }

}  // namespace sdp::preload
