#include "tools/kernel/process_facts.h"

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "tools/stats/proc_text.h"

namespace sdp::kernel {
namespace {

constexpr unsigned long kKernelThread = 0x00200000;  // PF_KTHREAD of the kernel's sched.h
constexpr uint64_t kHighestLimit = 65536;            // HiddenFds::kHighestLimit

int OpenBelow(uint32_t pid, int end) {
  DIR* const entries = opendir(stats::ProcPath(pid, "fd").c_str());
  if (entries == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(entries)) {
    if (entry->d_name[0] != '.' && std::atoi(entry->d_name) < end) ++count;
  }
  closedir(entries);
  return count;
}

}  // namespace

ProcessFacts ParseProcStat(std::string_view text) {
  ProcessFacts out;
  const size_t end = text.rfind(')');  // the name may contain spaces and brackets
  if (end == std::string_view::npos) return out;
  std::istringstream fields(std::string(text.substr(end + 1)));
  std::string state, skipped;
  unsigned long flags = 0;
  long threads = 0;
  fields >> state;                                            // field 3
  for (int field = 4; field < 9; ++field) fields >> skipped;  // flags are field 9
  fields >> flags;
  for (int field = 10; field < 20; ++field) fields >> skipped;  // threads are field 20
  if (!(fields >> threads)) return out;
  // The first thread is a zombie, too, if it has ended before others.
  out.zombie = state == "Z" && threads <= 1;
  out.kernel_thread = (flags & kKernelThread) != 0;
  return out;
}

std::optional<uint32_t> EffectiveUser(uint32_t pid) {
  std::istringstream users(stats::ProcStatus(pid, "Uid"));
  uint32_t real = 0, effective = 0;
  return users >> real >> effective ? std::optional(effective) : std::nullopt;
}

ProcessFacts FactsOf(uint32_t pid) { return ParseProcStat(stats::ReadProc(pid, "stat")); }

int FirstHiddenNumber(uint64_t limit, int (*below)(uint32_t pid, int end), uint32_t pid) {
  const int first = static_cast<int>(std::min(limit, kHighestLimit)) / 4 * 3;
  return first > 0 && below(pid, first) < first ? first : kNoHiddenNumber;
}

int FirstHiddenNumber(uint32_t pid) {
  std::istringstream lines(stats::ReadProc(pid, "limits"));
  constexpr std::string_view kTitle = "Max open files";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kTitle))
      return FirstHiddenNumber(std::strtoull(line.c_str() + kTitle.size(), nullptr, 10), OpenBelow, pid);
  }
  return kNoHiddenNumber;
}

}  // namespace sdp::kernel
