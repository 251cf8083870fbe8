// Names the files in a stats directory, and sweeps those whose process is dead. No state.
//
//   <pid>-<start time>.stats   of a running process (stats_layout.h)
//   <pid>-<start time>.trace   its message trace (stats_messages.h)
//   <pid>-<start time>.ended   the stats file of a process that died without removing it, kept for kEndedKept
//
// Shared by libsdp.so and sdpstat: each sweeps the directories that it uses.
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
inline constexpr size_t kMaxEnded = 16;                // per directory; the newest are kept

enum class FileKind : uint8_t { kStats, kTrace, kEnded };
struct FileName {
  pid_t pid = 0;
  uint64_t start_time = 0;  // of the process, clock ticks since boot (/proc/PID/stat, field 22)
  FileKind kind = FileKind::kStats;

  [[nodiscard]] std::string ToString() const;
};
std::optional<FileName> ParseFileName(const char* name);

// Returns 0 if there is no such process, or if /proc does not tell.
uint64_t ProcessStartTime(const SystemCalls& calls, pid_t pid);
// Returns whether the process is dead. A zombie is; a running process that cannot be examined is not.
bool IsDead(const SystemCalls& calls, const FileName& name);

// Renames stats files of dead processes to .ended. Removes their traces, and .ended files that are too old or
// too many. Does as much as this user may, for a bounded number of files. Reads `directory` from its current
// position.
void SweepDirectory(const SystemCalls& calls, DIR* directory);

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_FILES_H_
