#include "tools/stats/stats_reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

namespace sdp::stats {
namespace {

constexpr size_t kMaxFileSize = kMaxChunks * kChunkSize;
constexpr int kMaxFilesPerDirectory = 65536;
constexpr int kSettleTries = 100;

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

struct FileName {
  int pid = 0;
  unsigned long long start_time = 0;
};

std::optional<FileName> ParseName(const char* name) {
  FileName out;
  int end = 0;
  if (sscanf(name, "%d-%llu.stats%n", &out.pid, &out.start_time, &end) != 2 || end == 0 ||
      name[end] != '\0' || out.pid <= 0) {
    return std::nullopt;
  }
  return out;
}

std::string ProcPath(int pid, const char* leaf) { return "/proc/" + std::to_string(pid) + "/" + leaf; }

// Field 22 of /proc/PID/stat; 0 if there is no such process.
unsigned long long StartTime(int pid) {
  std::ifstream file(ProcPath(pid, "stat"));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  size_t at = text.rfind(')');
  if (at == std::string::npos) return 0;
  std::istringstream fields(text.substr(at + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return strtoull(field.c_str(), nullptr, 10);
}

// The real, effective and saved user of a process (a server's worker may have given up root after its file
// was made).
bool RunsAs(int pid, uid_t user) {
  std::ifstream file(ProcPath(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Uid:", 0) != 0) continue;
    std::istringstream users(line.substr(4));
    for (uid_t one; users >> one;) {
      if (one == user) return true;
    }
  }
  return false;
}

// Whether the process still has the file mapped: not after it called exec, nor after it moved to another
// file. Yes, if we may not look.
bool HasMapped(int pid, ino_t inode, const std::string& name) {
  std::ifstream file(ProcPath(pid, "maps"));
  bool any_line = false;
  for (std::string line; std::getline(file, line);) {
    any_line = true;
    std::istringstream fields(line);
    std::string range, permissions, offset, device, path;
    unsigned long long number = 0;
    fields >> range >> permissions >> offset >> device >> number;
    if (number == inode && line.size() > name.size() && line.ends_with("/" + name)) return true;
  }
  return !any_line;
}

bool ReadAt(int fd, std::byte* out, size_t size, size_t offset) {
  while (size > 0) {
    ssize_t got = pread(fd, out, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    offset += static_cast<size_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

// Each slot is copied until its sequence is even and the same in a later copy: then nothing was written in
// between.
void Settle(int fd, std::vector<std::byte>& image, size_t slot) {
  std::byte again[kSlotSize];
  for (int i = 0; i < kSettleTries; ++i) {
    uint64_t before = SlotSequence(image, slot);
    if (!ReadAt(fd, again, kSlotSize, SlotOffset(slot))) return;
    uint64_t after;
    std::memcpy(&after, again, sizeof after);
    if (before == after && before % 2 == 0) return;
    std::memcpy(image.data() + SlotOffset(slot), again, kSlotSize);
  }
}

std::optional<std::vector<std::byte>> ReadImage(int fd, size_t size) {
  std::vector<std::byte> image(size);
  if (!ReadAt(fd, image.data(), size, 0)) return std::nullopt;
  size_t slots = CountSlots(image).value_or(0);
  for (size_t i = 0; i < slots; ++i) {
    // A slot that was never used needs no second look.
    if (SlotSequence(image, i) != 0) Settle(fd, image, i);
  }
  return image;
}

class DirectoryReader {
 public:
  DirectoryReader(const std::string& path, Snapshot* out) : path_(path), out_(out) {}

  void Read() {
    int fd = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR* entries = fd < 0 ? nullptr : fdopendir(fd);
    if (entries == nullptr) return;
    for (int i = 0; i < kMaxFilesPerDirectory; ++i) {
      const dirent* entry = readdir(entries);
      if (entry == nullptr) break;
      if (auto name = ParseName(entry->d_name)) ReadFile(fd, entry->d_name, *name);
    }
    closedir(entries);
  }

 private:
  void ReadFile(int directory, const char* leaf, const FileName& name) {
    unsigned long long now = StartTime(name.pid);
    if (now != name.start_time) {
      // Where /proc cannot be read, a process that answers to kill is taken for dead by nobody.
      if (now != 0 || kill(name.pid, 0) != 0) unlinkat(directory, leaf, 0);
      return;
    }
    OwnedFd fd(openat(directory, leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (fd.get() < 0) {
      if (errno != ENOENT) Warn(leaf, strerror(errno));
      return;
    }
    struct stat status {};
    if (fstat(fd.get(), &status) != 0) return;
    if (!S_ISREG(status.st_mode)) return Warn(leaf, "not a regular file");
    if (status.st_uid != 0 && !RunsAs(name.pid, status.st_uid)) {
      return Warn(leaf, "belongs to another user than its process");
    }
    auto size = static_cast<size_t>(status.st_size);
    if (size > kMaxFileSize) return Warn(leaf, "too large");
    if (!HasMapped(name.pid, status.st_ino, leaf)) return;
    auto image = ReadImage(fd.get(), size);
    if (!image) return Warn(leaf, "cannot be read");
    auto process = ParseImage(*image);
    if (!process) return Warn(leaf, ToString(process.error()));
    process->pid = static_cast<uint32_t>(name.pid);  // whatever the file says
    process->uid = status.st_uid;
    out_->processes.push_back(std::move(*process));
  }

  void Warn(const char* leaf, const char* why) { out_->warnings.push_back(path_ + "/" + leaf + ": " + why); }

  const std::string& path_;
  Snapshot* out_;
};

void AddMatching(const char* pattern, std::vector<std::string>* out) {
  glob_t found{};
  if (glob(pattern, 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) out->push_back(found.gl_pathv[i]);
  }
  globfree(&found);
}

}  // namespace

std::vector<std::string> DefaultDirectories() {
  const char* wanted = getenv("SDP_STATS_DIR");
  if (wanted != nullptr && *wanted != '\0') return {wanted};
  uid_t user = geteuid();
  std::vector<std::string> out;
  if (user == 0) {
    out.push_back("/run/sdp/stats");
    AddMatching("/run/user/*/sdp", &out);
    AddMatching("/tmp/sdp-*", &out);
    return out;
  }
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') out.push_back(std::string(runtime) + "/sdp");
  out.push_back("/tmp/sdp-" + std::to_string(user));
  return out;
}

Snapshot ReadAll(const std::vector<std::string>& directories) {
  Snapshot out;
  for (const std::string& directory : directories) DirectoryReader(directory, &out).Read();
  std::sort(out.processes.begin(), out.processes.end(),
            [](const ProcessStats& a, const ProcessStats& b) { return a.pid < b.pid; });
  return out;
}

}  // namespace sdp::stats
