#include "tools/stats/stats_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "tools/stats/proc_text.h"
#include "tools/stats/process_root.h"
#include "tools/stats/process_title.h"

namespace sdp::stats {
namespace {

constexpr size_t kMaxFileSize = kMaxChunks * kChunkSize;
constexpr int kMaxFilesPerDirectory = 65536;

// Lists an open directory. Another user may own it and fill it, so the list ends after so many entries.
class Entries {
 public:
  // Takes over `fd`, which may be -1.
  explicit Entries(int fd) : directory_(fd < 0 ? nullptr : fdopendir(fd)) {
    if (directory_ == nullptr && fd >= 0) close(fd);
  }
  explicit Entries(const std::string& path)
      : Entries(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {}
  Entries(const Entries&) = delete;
  Entries& operator=(const Entries&) = delete;
  ~Entries() {
    if (directory_ != nullptr) closedir(directory_);
  }

  [[nodiscard]] DIR* get() const { return directory_; }
  [[nodiscard]] int fd() const { return dirfd(directory_); }
  // The next name of ours; empty: there is none, or none within reason.
  std::optional<FileName> Next() {
    while (directory_ != nullptr && seen_++ < kMaxFilesPerDirectory) {
      const dirent* const entry = readdir(directory_);
      if (entry == nullptr) break;
      if (auto name = ParseFileName(entry->d_name)) return name;
    }
    return std::nullopt;
  }

 private:
  DIR* const directory_;
  int seen_ = 0;
};

// `pid`: of the process, whatever the file says. The error says what is wrong with the file.
Result<ProcessStats, std::string> ReadProcess(const ProcessFile& file, uint32_t pid) {
  const auto image = ReadImage(file);
  if (!image) return unexpected(std::string("cannot be read"));
  auto process = ParseImage(*image);
  if (!process) return unexpected(std::string(ToString(process.error())));
  process->pid = pid;
  process->uid = file.uid;
  if (file.name.kind == FileKind::kEnded) {
    process->ended_at_ns = file.ended_at_ns;
  } else {
    process->title = ProcessTitle(pid, process->program);
  }
  return *std::move(process);
}

// The number that the process has in its own PID namespace.
pid_t NumberThere(uint32_t pid) {
  const std::string numbers = ProcStatus(pid, "NSpid");
  return numbers.empty() ? static_cast<pid_t>(pid) : std::atoi(LastWord(numbers).c_str());
}

class DirectoryReader {
 public:
  DirectoryReader(const std::string& path, Snapshot* out, std::vector<FileWarning>* warnings)
      : path_(path), out_(out), warnings_(warnings) {}

  void Read() {
    Entries entries(path_);
    if (entries.get() == nullptr) return;
    SweepDirectory(PlainSystemCalls(), entries.get());
    rewinddir(entries.get());
    while (const auto name = entries.Next()) ReadFile(entries.fd(), *name);
  }

 private:
  void ReadFile(int directory, const FileName& name) {
    if (name.kind == FileKind::kTrace) return;
    // A file that we may not sweep.
    if (name.kind == FileKind::kStats && IsDead(PlainSystemCalls(), name)) return;
    std::string why;
    const auto file = OpenProcessFile(directory, name, O_RDONLY, kMaxFileSize, &why);
    if (!file) return Warn(name, why);
    auto process = ReadProcess(*file, static_cast<uint32_t>(name.pid));
    if (!process) return Warn(name, process.error());
    (name.kind == FileKind::kEnded ? out_->ended : out_->processes).push_back(std::move(*process));
  }

  void Warn(const FileName& name, const std::string& why) {
    if (!why.empty()) warnings_->push_back({path_ + "/" + name.ToString(), why});
  }

  const std::string& path_;
  Snapshot* out_;
  std::vector<FileWarning>* warnings_;
};

void AddMatching(const char* pattern, std::vector<std::string>* out) {
  glob_t found{};
  if (glob(pattern, 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) out->push_back(found.gl_pathv[i]);
  }
  globfree(&found);
}

// Where a link of /proc/PID/ns leads; empty: we may not look.
std::string Namespace(const std::string& pid, const char* kind) {
  char target[64];
  const ssize_t length = readlink(("/proc/" + pid + "/ns/" + kind).c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : std::string();
}

// `pattern`: under /tmp. A service with PrivateTmp publishes in a /tmp that only it sees. Not a container
// with process numbers of its own, whose files name processes that are others here.
void AddOfPrivateTmp(const char* pattern, std::vector<std::string>* out) {
  std::set<std::string> seen = {Namespace("self", "mnt"), std::string()};
  std::set<std::pair<dev_t, ino_t>> known;
  const auto is_new = [&](const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) != 0 || known.emplace(status.st_dev, status.st_ino).second;
  };
  for (const std::string& path : *out) (void)is_new(path);
  const std::string processes = Namespace("self", "pid");
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return;
  while (const dirent* entry = readdir(proc)) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!seen.insert(Namespace(pid, "mnt")).second || Namespace(pid, "pid") != processes) continue;
    std::vector<std::string> found;
    AddMatching(("/proc/" + pid + "/root" + pattern).c_str(), &found);
    for (std::string& path : found) {
      if (is_new(path)) out->push_back(std::move(path));
    }
  }
  closedir(proc);
}

}  // namespace

std::vector<std::string> DefaultDirectories() {
  const char* wanted = getenv("SDP_STATS_DIR");
  if (wanted != nullptr && *wanted != '\0') return {wanted};
  uid_t user = geteuid();
  std::vector<std::string> out;
  if (user == 0) {
    out.push_back("/run/sdp-stats");
    AddMatching("/run/user/*/sdp", &out);
    constexpr char kOfUsers[] = "/tmp/sdp-*";
    AddMatching(kOfUsers, &out);
    AddOfPrivateTmp(kOfUsers, &out);
    return out;
  }
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') out.push_back(std::string(runtime) + "/sdp");
  const std::string own = "/tmp/sdp-" + std::to_string(user);
  out.push_back(own);
  AddOfPrivateTmp(own.c_str(), &out);
  return out;
}

std::vector<std::string> GroupWarnings(const std::vector<FileWarning>& warnings) {
  std::vector<std::pair<FileWarning, size_t>> causes;  // the first file of each, and how many
  for (const FileWarning& warning : warnings) {
    const auto same = std::find_if(causes.begin(), causes.end(),
                                   [&](const auto& one) { return one.first.cause == warning.cause; });
    if (same == causes.end()) {
      causes.emplace_back(warning, 1);
    } else {
      ++same->second;
    }
  }
  std::vector<std::string> out;
  for (const auto& [first, count] : causes) {
    out.push_back(first.path + ": " + first.cause +
                  (count == 1 ? "" : "; so " + std::to_string(count - 1) + " more"));
  }
  return out;
}

Snapshot ReadAll(const std::vector<std::string>& directories) {
  Snapshot out;
  std::vector<FileWarning> warnings;
  for (const std::string& directory : directories) DirectoryReader(directory, &out, &warnings).Read();
  out.warnings = GroupWarnings(warnings);
  for (auto* processes : {&out.processes, &out.ended}) {
    const auto key = [](const ProcessStats& process) { return std::pair(process.pid, process.start_time); };
    std::stable_sort(processes->begin(), processes->end(),
                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
    // A process that has changed its user may have two files mapped.
    processes->erase(std::unique(processes->begin(), processes->end(),
                                 [&](const auto& a, const auto& b) { return key(a) == key(b); }),
                     processes->end());
  }
  return out;
}

std::optional<FoundProcess> FindProcess(const std::vector<std::string>& directories, pid_t pid, int flags,
                                        std::string* why) {
  why->clear();
  for (const FileKind kind : {FileKind::kStats, FileKind::kEnded}) {
    for (const std::string& path : directories) {
      Entries entries(path);
      while (const auto name = entries.Next()) {
        if (name->pid != pid || name->kind != kind) continue;
        std::string reason;
        auto file = OpenProcessFile(entries.fd(), *name, flags, kMaxFileSize, &reason);
        if (file) return FoundProcess{std::move(*file), path};
        if (!reason.empty()) *why = path + "/" + name->ToString() + ": " + reason;
      }
    }
  }
  return std::nullopt;
}

std::optional<ProcessStats> ReadStatsBelowRoot(uint32_t pid, const std::vector<std::string>& directories,
                                               std::string* where) {
  const pid_t there = NumberThere(pid);
  for (const std::string& path : directories) {
    const OwnedFd directory = OpenBelowRoot(pid, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (directory.get() < 0) continue;
    Entries entries(fcntl(directory.get(), F_DUPFD_CLOEXEC, 0));
    while (const auto name = entries.Next()) {
      if (name->pid != there || name->kind != FileKind::kStats) continue;
      std::string ignored;
      const auto file =
          OpenProcessFile(entries.fd(), *name, O_RDONLY, kMaxFileSize, &ignored, static_cast<pid_t>(pid));
      if (!file) continue;
      auto process = ReadProcess(*file, pid);
      if (!process) continue;
      *where = path;
      return *std::move(process);
    }
  }
  return std::nullopt;
}

}  // namespace sdp::stats
