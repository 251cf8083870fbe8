// The configuration in force, and the file it came from.
#ifndef SDP_PRELOAD_CONFIG_STORE_H_
#define SDP_PRELOAD_CONFIG_STORE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "preload/config.h"

namespace sdp::preload {

// One reading of environment and file. Never changes, never destroyed: whoever holds a reference may keep it.
// That costs some kilobytes for each time somebody edits the file while the process runs.
struct LoadedConfig {
  Config config;
  std::vector<Rule> rules;  // those that speak of this program
  std::string path;
  std::vector<std::string> problems;  // one line each
  std::vector<std::string> warnings;
  // What the environment said when it was asked, by name: the application may change its own meanwhile.
  std::vector<std::pair<std::string, std::string>> environment;
  // The reading before this one, for leak checkers: those who hold references need it no more than this.
  const LoadedConfig* before = nullptr;
  // Which state of the file this is.
  bool exists = false;
  uint64_t device = 0, inode = 0, size = 0;
  int64_t changed_ns = 0;
};

class ConfigStore {
 public:
  static constexpr int64_t kLookInterval = 1'000'000'000;  // ns

  // `lookup`: as getenv, asked by the first reading alone. `program`: what rules are matched with.
  constexpr ConfigStore(const char* (*lookup)(const char* name), const char* const* program)
      : lookup_(lookup), program_(program) {}

  // Reads environment and file when first called. Takes no lock (two threads may read at once, and one is
  // heard): fork is safe.
  const LoadedConfig& Get();
  // Reads the file again if it has changed since; looks at most once in kLookInterval. `now_ns`: of any
  // steady clock. Returns what has been newly read, else null. Any thread may call it; none waits for
  // another.
  const LoadedConfig* Refresh(int64_t now_ns);

 private:
  const LoadedConfig* First();
  // `before`: whose environment holds; null: asks for it.
  [[nodiscard]] const LoadedConfig* Load(const LoadedConfig* before) const;

  const char* (*const lookup_)(const char* name);
  const char* const* const program_;
  std::atomic<const LoadedConfig*> current_{nullptr};
  std::atomic<int64_t> next_look_{0};
};

// Logs what the readings complained about: the one in force, and each later one by itself.
void ReportConfig();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_STORE_H_
