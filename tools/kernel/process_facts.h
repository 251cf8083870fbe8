// What the kernel says of a process beside its sockets.
#ifndef SDP_TOOLS_KERNEL_PROCESS_FACTS_H_
#define SDP_TOOLS_KERNEL_PROCESS_FACTS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace sdp::kernel {

struct ProcessFacts {
  bool zombie = false;  // it has ended, and its parent has not asked how
  bool kernel_thread = false;
};
// `text`: of /proc/PID/stat. What makes no sense gives an ordinary process.
ProcessFacts ParseProcStat(std::string_view text);
ProcessFacts FactsOf(uint32_t pid);

// The effective user, also of a process whose files in /proc are root's because it has changed its user.
// Empty: there is no such process.
std::optional<uint32_t> EffectiveUser(uint32_t pid);

inline constexpr int kNoHiddenNumber = std::numeric_limits<int>::max();
// The lowest number of the descriptors that libsdp.so hides in a process whose soft limit on open files is
// `limit`. `below`: how many descriptors below that number are open. If all are, the program itself may have
// gone on above it, and there is no such number (kNoHiddenNumber).
int FirstHiddenNumber(uint64_t limit, int (*below)(uint32_t pid, int end), uint32_t pid);
int FirstHiddenNumber(uint32_t pid);

}  // namespace sdp::kernel

#endif  // SDP_TOOLS_KERNEL_PROCESS_FACTS_H_
