// Holds the configuration in force, and knows the file it came from.
#ifndef SDP_PRELOAD_CONFIG_STORE_H_
#define SDP_PRELOAD_CONFIG_STORE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "preload/config.h"

namespace sdp::preload {

// One reading of the environment and the file. Never changed and never destroyed, so a caller may keep a
// reference. Each edit of the file while the process runs costs some kilobytes.
struct LoadedConfig {
  Config config;
  std::vector<Rule> rules;  // the rules that apply to this program
  std::string path;
  std::vector<std::string> problems;  // one line each
  std::vector<std::string> warnings;
  // What the environment said at the first reading, by name. The application may change its environment
  // later.
  std::vector<std::pair<std::string, std::string>> environment;
  // The previous reading. Keeps old readings reachable for leak checkers; nothing else uses it.
  const LoadedConfig* before = nullptr;
  // Identifies the state of the file.
  bool exists = false;
  uint64_t device = 0, inode = 0, size = 0;
  int64_t changed_ns = 0;
};

class ConfigStore {
 public:
  static constexpr int64_t kLookInterval = 1'000'000'000;  // ns

  // `lookup` is like getenv; only the first reading calls it. `program` gives the name that rules are matched
  // with. `environment`: environ's address; null: the names in it are not looked at.
  constexpr ConfigStore(const char* (*lookup)(const char* name), const char* (*program)(),
                        char*** environment = nullptr)
      : lookup_(lookup), program_(program), environment_(environment) {}

  // Reads the environment and the file at the first call. Takes no lock, so fork is safe; if two threads read
  // at once, one result is used.
  const LoadedConfig& Get();
  // Reads the file again if it has changed; looks at most once per kLookInterval. `now_ns` comes from any
  // steady clock. Returns the new reading, or null. Any thread may call it; no thread waits for another.
  const LoadedConfig* Refresh(int64_t now_ns);

 private:
  const LoadedConfig* First();
  // Uses the environment of `before`; if that is null, asks for it.
  [[nodiscard]] const LoadedConfig* Load(const LoadedConfig* before) const;

  const char* (*const lookup_)(const char* name);
  const char* (*const program_)();
  char*** const environment_;
  std::atomic<const LoadedConfig*> current_{nullptr};
  std::atomic<int64_t> next_look_{0};
};

// Logs the problems and warnings of the reading in force. RefreshConfig() does so for each later reading.
void ReportConfig();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_STORE_H_
