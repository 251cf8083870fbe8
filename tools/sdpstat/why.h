// sdpstat why: which TCP sockets of a process are not SDP, and the reason.
#ifndef SDP_TOOLS_SDPSTAT_WHY_H_
#define SDP_TOOLS_SDPSTAT_WHY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/kernel/process_facts.h"
#include "tools/kernel/tcp_sockets.h"
#include "tools/stats/stats_reader.h"

namespace sdp::sdpstat {

struct Verdict {
  kernel::TcpSocket socket;
  bool is_sdp = false;
  std::string reason;  // a code of reasons.h; if it is SDP, tcp-link or empty
  std::string text;    // what the process itself noted; of a registered listener, its port mapper's path
  uint64_t registered_at_ns = 0;  // an SDP listener: CLOCK_REALTIME
};

// What a process's sockets are. `stats`: what it publishes; null if nothing. Sockets of the library's own
// are left out: SDP listeners, and descriptors from `first_hidden` on of which it has published nothing.
// Pure.
std::vector<Verdict> Classify(const stats::ProcessStats* stats, const std::vector<kernel::TcpSocket>& sockets,
                              int first_hidden = kernel::kNoHiddenNumber);

// A process as it looks from outside.
struct ProcessView {
  uint32_t pid = 0;
  std::string program = {};
  std::string title = {};  // what it calls itself beside that
  bool library_loaded = false;
  std::string reason = {};  // why the library is not in it, or does nothing: a code; empty: it works
  std::string text = {};
  std::string stats_directory =
      {};  // where it publishes, below its own root, if that is not looked at usually
  bool descriptors_readable = true;
  bool has_ring = false;  // of io_uring
  std::vector<Verdict> sockets = {};
  // Connections that ended up as TCP, or failed, and are closed meanwhile.
  std::vector<stats::ConnectionRecord> past = {};
};

// The process has a descriptor of io_uring.
bool HasRing(uint32_t pid);

// Looks at a running process; empty if there is none.
std::optional<ProcessView> LookAt(uint32_t pid, const stats::Snapshot& snapshot);

// Running processes of that name (a pattern), by their command or their program's file.
std::vector<uint32_t> ProcessesCalled(const std::string& name);

std::string RenderWhy(const std::vector<ProcessView>& processes);
std::string RenderWhyJson(const std::vector<ProcessView>& processes);

// Every reason: its code, which side caused it, what it means and, on a line of its own, what helps.
std::string RenderReasons();

// The command: `who` is a process id or a program's name. Exit status: 0 everything is SDP, 1 something is
// not, 2 there is no such process.
int Why(const std::string& who, const stats::Snapshot& snapshot, bool json);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_WHY_H_
