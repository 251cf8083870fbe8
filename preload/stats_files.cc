#include "preload/stats_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace sdp::stats {
namespace {

constexpr int kMaxSwept = 4096;
constexpr const char* kEnds[] = {"stats", "trace", "ended"};

struct ProcStat {
  char state = '\0';
  uint64_t threads = 0;
  uint64_t start_time = 0;  // 0: nothing is known
};

// Reads /proc/PID/stat. The fields are counted from the end of the program's name, which may contain spaces
// and brackets.
ProcStat ReadProcStat(const SystemCalls& calls, pid_t pid) {
  ProcStat out;
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = ::open(path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return out;
  char text[1024];
  ssize_t size = calls.read(fd, text, sizeof text - 1);
  calls.close(fd);
  if (size <= 0) return out;
  text[size] = '\0';
  const char* at = strrchr(text, ')');
  for (int field = 3; at != nullptr && field <= 22; ++field) {
    at = strchr(at + 1, ' ');
    if (at == nullptr) break;
    if (field == 3) out.state = at[1];
    if (field == 20) out.threads = strtoull(at + 1, nullptr, 10);
    if (field == 22) out.start_time = strtoull(at + 1, nullptr, 10);
  }
  return out;
}

struct Ended {
  FileName name;
  time_t since = 0;
};

}  // namespace

std::string FileName::ToString() const {
  return std::to_string(pid) + "-" + std::to_string(start_time) + "." + kEnds[static_cast<size_t>(kind)];
}

std::optional<FileName> ParseFileName(const char* name) {
  FileName out;
  int end = 0;
  unsigned long long start_time = 0;
  if (sscanf(name, "%d-%llu.%n", &out.pid, &start_time, &end) != 2 || end == 0 || out.pid <= 0)
    return std::nullopt;
  out.start_time = start_time;
  for (const FileKind kind : {FileKind::kStats, FileKind::kTrace, FileKind::kEnded}) {
    out.kind = kind;
    if (strcmp(name + end, kEnds[static_cast<size_t>(kind)]) == 0) return out;
  }
  return std::nullopt;
}

uint64_t ProcessStartTime(const SystemCalls& calls, pid_t pid) { return ReadProcStat(calls, pid).start_time; }

bool IsDead(const SystemCalls& calls, const FileName& name) {
  if (kill(name.pid, 0) != 0 && errno == ESRCH) return true;
  const ProcStat now = ReadProcStat(calls, name.pid);
  // A process's first thread is a zombie, too, if it ended before other threads.
  if (now.state == 'Z' && now.threads <= 1) return true;
  return now.start_time != 0 && name.start_time != 0 && now.start_time != name.start_time;
}

// glibc's directory functions make no interposed calls, so they are safe here.
void SweepDirectory(const SystemCalls& calls, DIR* directory) {
  const int fd = dirfd(directory);
  const time_t now = time(nullptr);
  std::vector<Ended> ended;
  for (int i = 0; i < kMaxSwept; ++i) {
    const dirent* entry = readdir(directory);
    if (entry == nullptr) break;
    auto name = ParseFileName(entry->d_name);
    if (!name) continue;
    if (name->kind == FileKind::kEnded) {
      struct stat status {};
      // A rename sets the file's change time: the file has been .ended since then.
      if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0)
        ended.push_back({*name, status.st_ctime});
    } else if (!IsDead(calls, *name)) {
      continue;
    } else if (name->kind == FileKind::kTrace) {
      unlinkat(fd, entry->d_name, 0);
    } else {
      name->kind = FileKind::kEnded;
      if (renameat(fd, entry->d_name, fd, name->ToString().c_str()) == 0) ended.push_back({*name, now});
    }
  }
  std::sort(ended.begin(), ended.end(), [](const Ended& a, const Ended& b) { return a.since > b.since; });
  for (size_t i = 0; i < ended.size(); ++i) {
    const bool keep = i < kMaxEnded && now - ended[i].since <= kEndedKept.count();
    if (!keep) unlinkat(fd, ended[i].name.ToString().c_str(), 0);
  }
}

}  // namespace sdp::stats
