// Finds the stats files of running processes and reads each one consistently, without mapping them: a hostile
// owner who truncates a mapped file would kill the reader.
#ifndef SDP_TOOLS_STATS_STATS_READER_H_
#define SDP_TOOLS_STATS_STATS_READER_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tools/stats/process_file.h"
#include "tools/stats/stats_image.h"

namespace sdp::stats {

struct Snapshot {
  std::vector<ProcessStats> processes;  // by pid
  std::vector<ProcessStats> ended;      // died a moment ago without saying so, as they were then; by pid
  std::vector<std::string> warnings;    // of files that look like stats files and cannot be used
};

// The directories that processes of this user (for root: of every user) publish to. SDP_STATS_DIR, if set, is
// the only one.
std::vector<std::string> DefaultDirectories();

struct FileWarning {
  std::string path;
  std::string cause;
};
// One line for each cause, with the first file and how many more there are: a user can put thousands into a
// directory of their own.
std::vector<std::string> GroupWarnings(const std::vector<FileWarning>& warnings);

// Reads every process in `directories`. A file is used if it is a regular file named <pid>-<start
// time>.stats, belongs to the process's user or to root, and the process is alive, started at that time and
// still has the file mapped. A file of a dead process is kept for a while and then removed (stats_files.h),
// where we may. Directories that do not exist are no error.
Snapshot ReadAll(const std::vector<std::string>& directories);

// The stats file of one process, open for `flags`; of one that ended a moment ago if there is none that runs.
// Empty: *why says what keeps us from it, if it is there.
struct FoundProcess {
  ProcessFile file;
  std::string directory;
};
std::optional<FoundProcess> FindProcess(const std::vector<std::string>& directories, pid_t pid, int flags,
                                        std::string* why);

// What one running process publishes in one of `directories`, which are named as the process names them:
// below its own root, and with its number in its own PID namespace. *where: the directory.
std::optional<ProcessStats> ReadStatsBelowRoot(uint32_t pid, const std::vector<std::string>& directories,
                                               std::string* where);

}  // namespace sdp::stats

#endif  // SDP_TOOLS_STATS_STATS_READER_H_
