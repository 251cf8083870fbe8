#include "preload/config_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "preload/config_reader.h"
#include "preload/privileged.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// Returns the file's text. If the file cannot be read, returns nothing and sets *error. Anything but a
// regular file (/dev/null) counts as empty.
std::string ReadText(const std::string& path, LoadedConfig* out, std::string* error) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) {
    *error = strerrordesc_np(errno);
    if (fd >= 0) real.close(fd);
    return "";
  }
  out->exists = true;
  out->device = status.st_dev;
  out->inode = status.st_ino;
  out->size = static_cast<uint64_t>(status.st_size);
  out->changed_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  std::string text;
  if (S_ISREG(status.st_mode)) {
    char piece[4096];
    ssize_t got;
    while (text.size() < kLargestConfigFile && (got = real.read(fd, piece, sizeof piece)) > 0)
      text.append(piece, static_cast<size_t>(got));
  }
  real.close(fd);
  return text;
}

bool IsUnchanged(const LoadedConfig& loaded) {
  struct stat status {};
  if (stat(loaded.path.c_str(), &status) != 0) return !loaded.exists;
  return loaded.exists && loaded.device == status.st_dev && loaded.inode == status.st_ino &&
         loaded.size == static_cast<uint64_t>(status.st_size) &&
         loaded.changed_ns == status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace

const LoadedConfig& ConfigStore::Get() {
  const LoadedConfig* loaded = current_.load(std::memory_order_acquire);
  return loaded != nullptr ? *loaded : *First();
}

const LoadedConfig* ConfigStore::First() {
  const LoadedConfig* loaded = Load(nullptr);
  const LoadedConfig* other = nullptr;
  if (current_.compare_exchange_strong(other, loaded, std::memory_order_acq_rel)) return loaded;
  delete loaded;
  return other;
}

const LoadedConfig* ConfigStore::Load(const LoadedConfig* before) const {
  auto* loaded = new LoadedConfig;
  loaded->before = before;
  if (before != nullptr) loaded->environment = before->environment;
  if (IsPrivileged()) {
    loaded->config.mode = Mode::kTcp;
    loaded->config.mode_is_forced = true;
    return loaded;
  }
  const Lookup lookup = [&](const char* name) -> const char* {
    for (const auto& [variable, value] : loaded->environment) {
      if (variable == name) return value.c_str();
    }
    const char* value = before == nullptr ? lookup_(name) : nullptr;
    if (value == nullptr) return nullptr;
    return loaded->environment.emplace_back(name, value).second.c_str();
  };
  bool named = false;
  loaded->path = ConfigFilePath(lookup, &named);
  std::string error;
  const std::string text = ReadText(loaded->path, loaded, &error);
  if (!error.empty() && named) loaded->problems.push_back(loaded->path + ": " + error);
  ConfigFile file = ParseConfigFile(text);
  for (const ConfigProblem& problem : file.problems) {
    const bool is_error = problem.kind == ConfigProblem::Kind::kError;
    (is_error ? loaded->problems : loaded->warnings)
        .push_back(loaded->path + ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column) +
                   ": " + problem.text + (is_error ? ": line ignored" : ""));
  }
  // The application may have changed its environment meanwhile.
  const char* const* const names = before == nullptr && environment_ != nullptr ? *environment_ : nullptr;
  loaded->config = ReadConfig(lookup, file, loaded->path, &loaded->problems, names);
  for (Rule& rule : file.rules) {
    if (MatchesProgram(rule, program_())) loaded->rules.push_back(std::move(rule));
  }
  return loaded;
}

const LoadedConfig* ConfigStore::Refresh(int64_t now_ns) {
  int64_t look = next_look_.load(std::memory_order_relaxed);
  if (now_ns < look || !next_look_.compare_exchange_strong(look, now_ns + kLookInterval)) return nullptr;
  const LoadedConfig& before = Get();
  if (IsUnchanged(before)) return nullptr;
  const LoadedConfig* loaded = Load(&before);
  current_.store(loaded, std::memory_order_release);
  return loaded;
}

}  // namespace sdp::preload
