// The files in a stats directory, by name, and what becomes of those whose process is dead.
//
//   <pid>-<start time>.stats   of a process that runs (stats_layout.h)
//   <pid>-<start time>.trace   beside it (stats_messages.h)
//   <pid>-<start time>.ended   the stats file of a process that died without removing it, kept for kEndedKept
//
// Shared by libsdp.so and sdpstat: whoever comes by sweeps.
#ifndef SDP_PRELOAD_STATS_FILES_H_
#define SDP_PRELOAD_STATS_FILES_H_

#include <dirent.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "preload/stats_calls.h"

namespace sdp::stats {

inline constexpr std::chrono::seconds kEndedKept{60};  // from when the death was noticed
inline constexpr size_t kMaxEnded = 16;                // of one directory, the newest

enum class FileKind : uint8_t { kStats, kTrace, kEnded };
struct FileName {
  pid_t pid = 0;
  uint64_t start_time = 0;  // of the process, clock ticks since boot (/proc/PID/stat, field 22)
  FileKind kind = FileKind::kStats;

  [[nodiscard]] std::string ToString() const;
};
std::optional<FileName> ParseFileName(const char* name);

// 0: there is no such process, or /proc does not tell.
uint64_t ProcessStartTime(const SystemCalls& calls, pid_t pid);
// A zombie is dead. Not one that runs and cannot be looked at.
bool IsDead(const SystemCalls& calls, const FileName& name);

// Renames stats files of dead processes to .ended, and removes those that are too old or too many, and
// traces. Does as much as this user may, of a bounded number of files. Reads `directory` from where it
// stands.
void SweepDirectory(const SystemCalls& calls, DIR* directory);

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_FILES_H_
