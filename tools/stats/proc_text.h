// What the kernel tells of a process in text files below /proc. The process may be a stranger's, and may end
// meanwhile: then nothing is there.
#ifndef SDP_TOOLS_STATS_PROC_TEXT_H_
#define SDP_TOOLS_STATS_PROC_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sdp::stats {

// /proc/PID/`leaf`.
std::string ProcPath(uint32_t pid, std::string_view leaf);

// All of a file's text; empty for a directory.
std::string ReadFile(const std::string& path);

// Returns at most `limit` bytes of /proc/PID/`leaf`: a process can make some of these texts as long as it
// likes.
std::string ReadProc(uint32_t pid, std::string_view leaf, size_t limit = 8192);

// Returns what /proc/PID/status has behind "`name`:", as "\t2" for Seccomp; empty if there is no such line.
std::string ProcStatus(uint32_t pid, std::string_view name);

// The last word of such a text.
std::string LastWord(std::string_view text);

}  // namespace sdp::stats

#endif  // SDP_TOOLS_STATS_PROC_TEXT_H_
