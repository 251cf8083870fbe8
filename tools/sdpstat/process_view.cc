// A process from outside: is the library in it, and if not, why.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tools/sdp-run/program_check.h"
#include "tools/sdpstat/why.h"
#include "tools/stats/process_title.h"

namespace sdp::sdpstat {
namespace {

std::string ReadProc(uint32_t pid, const char* leaf) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + leaf);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Of the environment that the process was started with; empty if it is not there or may not be read.
std::string InitialVariable(uint32_t pid, const std::string& name) {
  const std::string environment = ReadProc(pid, "environ");
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find('\0', at), environment.size());
    if (environment.compare(at, name.size() + 1, name + "=") == 0)
      return environment.substr(at + name.size() + 1, end - at - name.size() - 1);
    at = end + 1;
  }
  return "";
}

// False: the program could be preloaded.
bool ExplainProgram(ProcessView* view) {
  std::error_code error;
  const std::string path =
      std::filesystem::read_symlink("/proc/" + std::to_string(view->pid) + "/exe", error).string();
  if (error || !std::filesystem::exists(path, error)) return false;
  const run::Check check = run::CheckProgram({path});
  if (check.verdict != run::Verdict::kNotPreloadable) return false;
  view->reason = check.code;
  view->text = path + " " + check.why;
  return true;
}

// A process that the library is not in.
void ExplainAbsence(ProcessView* view) {
  if (ExplainProgram(view)) return;
  const std::string preload = InitialVariable(view->pid, "LD_PRELOAD");
  view->reason = preload.find("libsdp") != std::string::npos ? "preload-ignored" : "not-preloaded";
  if (!preload.empty()) view->text = "LD_PRELOAD=" + preload;
}

// A process that the library is in, and that has published nothing.
void ExplainSilence(ProcessView* view) {
  if (InitialVariable(view->pid, "SDP_MODE") == "tcp") {
    view->reason = "mode-tcp";
  } else if (!ExplainProgram(view)) {
    view->reason = "idle";
  }
}

bool StillOpen(const stats::ConnectionRecord& record, const std::vector<Verdict>& sockets) {
  return std::any_of(sockets.begin(), sockets.end(), [&](const Verdict& verdict) {
    // A listener that was registered late is SDP by now, and has forgotten nothing.
    if (verdict.is_sdp && verdict.socket.listening() && record.role == stats::Role::kAccepting)
      return verdict.socket.fd == record.fd;
    return !verdict.is_sdp && verdict.socket.fd == record.fd && verdict.reason == record.reason &&
           verdict.text == record.reason_text;
  });
}

}  // namespace

bool HasRing(uint32_t pid) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry.path(), ignored) == "anon_inode:[io_uring]") return true;
  }
  return false;
}

std::optional<ProcessView> LookAt(uint32_t pid, const stats::Snapshot& snapshot) {
  std::string name = ReadProc(pid, "comm");
  if (name.empty()) return std::nullopt;
  while (!name.empty() && name.back() == '\n') name.pop_back();
  for (char& c : name) {
    if (c < ' ' || c > '~') c = '?';
  }
  const auto found = std::find_if(snapshot.processes.begin(), snapshot.processes.end(),
                                  [&](const auto& p) { return p.pid == pid; });
  const stats::ProcessStats* stats = found == snapshot.processes.end() ? nullptr : &*found;
  ProcessView view{.pid = pid, .program = stats != nullptr ? stats->program : name};
  view.title = stats::ProcessTitle(pid, view.program);
  const std::string maps = ReadProc(pid, "maps");
  view.library_loaded = stats != nullptr || maps.find("/libsdp.so") != std::string::npos;
  if (!view.library_loaded && maps.empty() && geteuid() != 0) {
    view.descriptors_readable = false;
    return view;
  }
  view.sockets = Classify(stats, kernel::TcpSocketsOf(pid, &view.descriptors_readable));
  view.has_ring = HasRing(pid);
  if (!view.library_loaded) {
    ExplainAbsence(&view);
  } else if (stats == nullptr) {
    ExplainSilence(&view);
  }
  if (!view.reason.empty()) {
    for (Verdict& verdict : view.sockets) verdict.reason = view.reason;
  }
  if (stats != nullptr) {
    for (const stats::ConnectionRecord& record : stats->records) {
      if (record.kind == stats::Kind::kFallback && !StillOpen(record, view.sockets))
        view.past.push_back(record);
    }
  }
  return view;
}

}  // namespace sdp::sdpstat
