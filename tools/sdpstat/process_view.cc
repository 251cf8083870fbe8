// A process from outside: is the library in it, and if not, why.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "preload/config_file.h"
#include "tools/kernel/process_facts.h"
#include "tools/sdp-run/program_check.h"
#include "tools/sdpstat/process_rules.h"
#include "tools/sdpstat/why.h"
#include "tools/stats/proc_text.h"
#include "tools/stats/process_root.h"
#include "tools/stats/process_title.h"

namespace sdp::sdpstat {
namespace {

constexpr size_t kShort = 4096;
constexpr size_t kLong = 8 << 20;

// What a stranger has written is not to reach the terminal as it stands.
void MakePrintable(std::string* text) {
  for (char& c : *text) {
    if (c < ' ' || c > '~') c = '?';
  }
}

// Of the environment that the process was started with; empty if it is not there or may not be read.
std::string InitialVariable(uint32_t pid, const std::string& name) {
  const std::string environment = stats::ReadProc(pid, "environ", kLong);
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find('\0', at), environment.size());
    if (environment.compare(at, name.size() + 1, name + "=") == 0)
      return environment.substr(at + name.size() + 1, end - at - name.size() - 1);
    at = end + 1;
  }
  return "";
}

std::string ExecutableOf(uint32_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink(stats::ProcPath(pid, "exe"), error).filename().string();
}

// What the process reads as its libsdp.conf.
preload::ConfigFile ConfigOf(uint32_t pid, std::string* path) {
  std::string value;
  bool named = false;
  *path = preload::ConfigFilePath(
      [&](const char* name) {
        value = InitialVariable(pid, name);
        return value.empty() ? nullptr : value.c_str();
      },
      &named);
  return preload::ParseConfigFile(stats::ReadBelowRoot(pid, *path, preload::kLargestConfigFile));
}

// The directories in which the process may publish, as it names them.
std::vector<std::string> PlacesOf(uint32_t pid) {
  std::string place = InitialVariable(pid, "SDP_STATS_DIR");
  if (!place.empty()) return {place};
  std::string path;
  for (const preload::Setting& setting : ConfigOf(pid, &path).settings) {
    if (setting.variable == "SDP_STATS_DIR") place = setting.value;
  }
  if (!place.empty()) return {place};
  std::vector<std::string> out = {"/run/sdp-stats"};
  const std::string runtime = InitialVariable(pid, "XDG_RUNTIME_DIR");
  if (!runtime.empty()) out.push_back(runtime + "/sdp");
  if (const auto user = kernel::EffectiveUser(pid)) out.push_back("/tmp/sdp-" + std::to_string(*user));
  return out;
}

// False: the program could be preloaded.
bool ExplainProgram(ProcessView* view) {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink(stats::ProcPath(view->pid, "exe"), error).string();
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

std::string RuleAgainst(uint32_t pid) {
  if (!InitialVariable(pid, "SDP_MODE").empty()) return "";  // it stands above all rules
  std::string path;
  const preload::ConfigFile file = ConfigOf(pid, &path);
  return RuleAgainstAll(file, path, NameForRules(stats::ReadProc(pid, "cmdline", kShort), ExecutableOf(pid)));
}

// A process that the library is in, and that has published nothing.
void ExplainSilence(ProcessView* view) {
  if (InitialVariable(view->pid, "SDP_MODE") == "tcp") {
    view->reason = "mode-tcp";
  } else if (view->text = RuleAgainst(view->pid); !view->text.empty()) {
    view->reason = "rule";
  } else if (!ExplainProgram(view)) {
    view->reason = "idle";
    if (view->sockets.empty()) view->text = "it has no TCP socket";
  }
}

// What has no program that could load a library. False: it is an ordinary process.
bool ExplainKind(ProcessView* view) {
  const kernel::ProcessFacts facts = kernel::FactsOf(view->pid);
  view->reason = facts.kernel_thread ? "kernel-thread" : facts.zombie ? "zombie" : "";
  return !view->reason.empty();
}

bool StillOpen(const stats::ConnectionRecord& record, const std::vector<Verdict>& sockets) {
  return std::any_of(sockets.begin(), sockets.end(), [&](const Verdict& verdict) {
    // A listener that was registered late is SDP by now, and has forgotten nothing. Its own record says more.
    if (verdict.socket.listening() && record.role == stats::Role::kAccepting)
      return verdict.socket.fd == record.fd;
    return !verdict.is_sdp && verdict.socket.fd == record.fd && verdict.reason == record.reason &&
           verdict.text == record.reason_text;
  });
}

}  // namespace

bool HasRing(uint32_t pid) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(stats::ProcPath(pid, "fd"), error)) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry.path(), ignored) == "anon_inode:[io_uring]") return true;
  }
  return false;
}

std::optional<ProcessView> LookAt(uint32_t pid, const stats::Snapshot& snapshot) {
  std::string name = stats::ReadProc(pid, "comm", kShort);
  if (name.empty()) return std::nullopt;
  while (!name.empty() && name.back() == '\n') name.pop_back();
  MakePrintable(&name);
  const auto found = std::find_if(snapshot.processes.begin(), snapshot.processes.end(),
                                  [&](const auto& p) { return p.pid == pid; });
  const stats::ProcessStats* stats = found == snapshot.processes.end() ? nullptr : &*found;
  ProcessView view{.pid = pid, .program = stats != nullptr ? stats->program : name};
  view.title = stats::ProcessTitle(pid, view.program);
  if (ExplainKind(&view)) {
    MakePrintable(&view.text);
    return view;
  }
  const std::string maps = stats::ReadProc(pid, "maps", kLong);
  view.library_loaded = stats != nullptr || maps.find("/libsdp.so") != std::string::npos;
  if (!view.library_loaded && maps.empty() && geteuid() != 0) {
    view.descriptors_readable = false;
    return view;
  }
  std::optional<stats::ProcessStats> elsewhere;
  if (stats == nullptr && view.library_loaded)
    elsewhere = stats::ReadStatsBelowRoot(pid, PlacesOf(pid), &view.stats_directory);
  if (elsewhere) stats = &*elsewhere;
  view.sockets = Classify(stats, kernel::TcpSocketsOf(pid, &view.descriptors_readable),
                          view.library_loaded ? kernel::FirstHiddenNumber(pid) : kernel::kNoHiddenNumber);
  view.has_ring = HasRing(pid);
  if (!view.library_loaded) {
    ExplainAbsence(&view);
  } else if (stats == nullptr) {
    ExplainSilence(&view);
  }
  MakePrintable(&view.text);
  MakePrintable(&view.stats_directory);
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
