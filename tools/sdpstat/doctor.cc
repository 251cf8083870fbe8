#include "tools/sdpstat/doctor.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "preload/config_reader.h"
#include "tools/probe/probe.h"
#include "tools/sdp-run/library.h"
#include "tools/sdp-run/program_check.h"
#include "tools/sdpstat/doctor_parts.h"
#include "tools/sdpstat/why.h"
#include "tools/stats/proc_text.h"
#include "tools/why/reasons.h"

namespace sdp::sdpstat {
namespace {

namespace fs = std::filesystem;
using Grade = Finding::Grade;

constexpr uint64_t kComfortableDescriptors = 4096;

Finding ExamineLibrary(const std::string& library) {
  if (library.empty()) {
    return {Grade::kFailure, "libsdp.so", "is not beside this program",
            "Install the package libsdp, or build the target sdp_library."};
  }
  return {Grade::kFine, "libsdp.so", library, ""};
}

// What the environment says that is not understood. Tools have it from the user, and the library has it too.
std::vector<Finding> ExamineEnvironment() {
  std::vector<std::string> problems;
  preload::ReadConfig(getenv, {}, "", &problems, environ);
  std::vector<Finding> out;
  for (const std::string& problem : problems) {
    const bool unknown = problem.starts_with("there is no variable");
    out.push_back({unknown ? Grade::kWarning : Grade::kFailure, "environment", problem,
                   unknown ? "Correct its name, or unset it." : "See sdp(7)."});
  }
  return out;
}

std::vector<Finding> ExamineConfigFile(const std::string& program) {
  bool named = false;
  const std::string path = preload::ConfigFilePath(getenv, &named);
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (!named)
      return {{Grade::kFine, "configuration", "there is no " + path + ": every socket may be SDP", ""}};
    return {{Grade::kFailure, "configuration", path + " is not there",
             "Correct SDP_CONFIG or LIBSDP_CONFIG_FILE."}};
  }
  if (access(path.c_str(), R_OK) != 0) {
    return {
        {Grade::kFailure, "configuration", path + " cannot be read by this user", "chmod a+r " + path + "."}};
  }
  return ExamineConfig(path, stats::ReadFile(path), program);
}

Finding ExamineLimits() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string soft = std::to_string(limit.rlim_cur);
  if (limit.rlim_cur >= kComfortableDescriptors)
    return {Grade::kFine, "open files", soft + " per process", ""};
  return {Grade::kNote, "open files",
          soft + " per process; a listener takes three more than with TCP, a connection none", ""};
}

std::vector<Finding> ExamineDevices() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", error))
    names.push_back(entry.path().filename());
  const char* wanted = getenv("SDP_RNIC");
  if (names.empty()) {
    const bool needed = wanted != nullptr && std::strcmp(wanted, "verbs") == 0;
    if (!needed) return {{Grade::kFine, "RDMA devices", "none; the embedded RNIC needs none", ""}};
    return {{Grade::kFailure, "RDMA devices", "none, and SDP_RNIC=verbs",
             "Unset SDP_RNIC, or load a driver (modprobe siw; rdma link add)."}};
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  std::vector<Finding> out = {{Grade::kFine, "RDMA devices", all, ""}};
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (64U << 20) && geteuid() != 0) {
    out.push_back({Grade::kWarning, "locked memory",
                   std::to_string(limit.rlim_cur / 1024) + " KiB: little for memory of kernel RNICs",
                   "Raise it (ulimit -l, LimitMEMLOCK=infinity)."});
  }
  return out;
}

bool HasFilter(uint32_t pid) { return stats::LastWord(stats::ProcStatus(pid, "Seccomp")) == "2"; }

Finding ExamineSeccomp() {
  if (!HasFilter(static_cast<uint32_t>(getpid())))
    return {Grade::kFine, "seccomp", "no filter on this shell", ""};
  return {
      Grade::kNote, "seccomp",
      "a filter is on this shell (a container?): sendmsg, recvmsg, eventfd2 and AF_UNIX sockets must pass",
      ""};
}

// A connection over SDP to a listener of its own: all of it in one go. `mapped`: a port mapper answers.
Finding ExamineConnection(const std::string& library, bool mapped) {
  const probe::Result result =
      probe::Probe({.program = "sdp-doctor", .library = library, .host = "", .port = ""});
  if (!result.error.empty())
    return {Grade::kFailure, "self-test", result.error, "Look at ldd " + library + "."};
  if (result.record && result.record->kind == stats::Kind::kConnection) {
    char time[32];
    std::snprintf(time, sizeof time, "%.1f", result.milliseconds);
    return {Grade::kFine, "self-test",
            std::string("a connection to itself is SDP (") + result.record->rnic + "/" + result.record->link +
                "), open after " + time + " ms",
            ""};
  }
  if (!result.record) {
    return {Grade::kFailure, "self-test",
            result.connected ? "a connection to itself is TCP: rules or SDP_MODE leave the library out"
                             : result.connect_error,
            "See the lines above."};
  }
  const Reason* reason = FindReason(result.record->reason);
  return {Grade::kFailure, "self-test",
          std::string("a connection to itself is not SDP: ") + result.record->reason + ": " +
              result.record->reason_text,
          !mapped             ? "It needs the port mapper: see that line first."
          : reason == nullptr ? ""
                              : reason->remedy};
}

std::vector<Finding> ExamineProgram(const std::string& program) {
  const run::Check check = run::CheckProgram({program});
  if (check.verdict == run::Verdict::kNotFound)
    return {{Grade::kFailure, program, "is not found in PATH", "Name it with its directory."}};
  if (check.verdict != run::Verdict::kFine) {
    const Reason* reason = FindReason(check.code);
    return {
        {Grade::kFailure, program, check.path + " " + check.why, reason == nullptr ? "" : reason->remedy}};
  }
  std::vector<Finding> out = {{Grade::kFine, program, check.path + " can be preloaded", ""}};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const auto pid = static_cast<uint32_t>(std::strtoul(entry.path().filename().c_str(), nullptr, 10));
    std::error_code ignored;
    if (pid == 0 || !fs::equivalent(entry.path() / "exe", check.path, ignored)) continue;
    if (HasFilter(pid)) {
      out.push_back({Grade::kNote, program,
                     "process " + std::to_string(pid) +
                         " runs under a seccomp filter; SDP needs what TCP needs, and eventfd2 and AF_UNIX",
                     ""});
    }
    if (HasRing(pid)) {
      out.push_back({Grade::kNote, program,
                     "process " + std::to_string(pid) +
                         " has an io_uring: what goes over it cannot be SDP (SDP_IO_URING)",
                     ""});
    }
    if (stats::ReadFile(entry.path() / "maps").find("/libsdp.so") == std::string::npos) {
      out.push_back({Grade::kNote, program,
                     "process " + std::to_string(pid) + " runs without the library (sdpstat why " +
                         std::to_string(pid) + ")",
                     ""});
    }
  }
  return out;
}

void Add(std::vector<Finding>* all, std::vector<Finding> more) {
  for (Finding& finding : more) all->push_back(std::move(finding));
}

}  // namespace

std::vector<Finding> ExamineConfig(const std::string& path, const std::string& text,
                                   const std::string& program) {
  std::vector<Finding> out;
  const preload::ConfigFile file = preload::ParseConfigFile(text);
  for (const preload::ConfigProblem& problem : file.problems) {
    const bool is_error = problem.kind == preload::ConfigProblem::Kind::kError;
    out.push_back({is_error ? Grade::kFailure : Grade::kWarning, "configuration",
                   path + ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column) + ": " +
                       problem.text,
                   is_error ? "Correct the line: it is ignored as it stands." : ""});
  }
  std::vector<std::string> problems;
  preload::ReadConfig([](const char*) { return nullptr; }, file, path, &problems);
  for (const std::string& problem : problems)
    out.push_back({Grade::kFailure, "configuration", problem, "See libsdp.conf(5)."});
  if (out.empty())
    out.push_back(
        {Grade::kFine, "configuration",
         path + ": " + std::to_string(file.rules.size()) + (file.rules.size() == 1 ? " rule" : " rules"),
         ""});
  if (program.empty()) return out;
  const std::string name = program.substr(program.rfind('/') + 1);
  for (const preload::Rule& rule : file.rules) {
    if (!preload::MatchesProgram(rule, name.c_str())) continue;
    out.push_back(
        {Grade::kNote, name, path + ":" + std::to_string(rule.line) + ": " + preload::ToString(rule), ""});
  }
  return out;
}

std::vector<Finding> ExaminePreloadFile(const std::string& text) {
  std::vector<Finding> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    std::replace(line.begin(), line.end(), ':', ' ');
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.find("libsdp.so") == std::string::npos) continue;
      std::error_code error;
      if (word.find('/') == std::string::npos) {
        out.push_back({Grade::kWarning, "ld.so.preload",
                       "names " + word + " without its directory: setuid programs print an error",
                       "Write the whole path into /etc/ld.so.preload."});
      } else if (word.find('$') == std::string::npos && !fs::exists(word, error)) {
        out.push_back({Grade::kFailure, "ld.so.preload", word + " is not there: every program complains",
                       "Correct the path in /etc/ld.so.preload, or delete it."});
      } else {
        out.push_back({Grade::kFine, "ld.so.preload", "every program loads " + word, ""});
      }
    }
  }
  return out;
}

std::vector<Finding> Examine(const std::string& program) {
  const std::string library = run::FindLibrary();
  std::vector<Finding> out = {ExamineLibrary(library)};
  Add(&out, ExaminePreloadFile(stats::ReadFile("/etc/ld.so.preload")));
  Add(&out, ExamineServices(""));
  Add(&out, ExamineConfigFile(program));
  Add(&out, ExamineEnvironment());
  const stats::Snapshot snapshot = stats::ReadAll(stats::DefaultDirectories());
  std::string socket;
  Add(&out, ExamineDaemon(snapshot, &socket));
  Add(&out, ExamineDevices());
  out.push_back(JudgeListeners(snapshot));
  Add(&out, JudgeSdpPorts(snapshot));
  Add(&out, {ExamineLimits(), ExamineStatsDirectory(), ExamineSeccomp()});
  const char* mode = getenv("SDP_MODE");
  if (mode != nullptr && std::strcmp(mode, "tcp") == 0) {
    out.push_back(
        {Grade::kWarning, "SDP_MODE", "is tcp in this environment: the library does nothing", "Unset it."});
  }
  if (!socket.empty()) setenv("SDP_PMD_SOCKET", socket.c_str(), 1);
  if (!library.empty()) out.push_back(ExamineConnection(library, !socket.empty()));
  if (!program.empty()) Add(&out, ExamineProgram(program));
  return out;
}

std::string RenderFindings(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.subject.size());
  std::string out;
  for (const Finding& finding : findings) {
    constexpr const char* kGrades[] = {"ok    ", "note  ", "WARN  ", "FAIL  "};
    out += kGrades[static_cast<size_t>(finding.grade)] + finding.subject +
           std::string(width - finding.subject.size() + 2, ' ') + finding.text + "\n";
    if (!finding.remedy.empty()) out += std::string(width + 8, ' ') + "-> " + finding.remedy + "\n";
  }
  return out;
}

namespace {

int Report(const std::vector<Finding>& findings, const char* fine) {
  std::fputs(RenderFindings(findings).c_str(), stdout);
  const auto count = [&](Grade grade) {
    return std::count_if(findings.begin(), findings.end(),
                         [grade](const Finding& finding) { return finding.grade == grade; });
  };
  const auto failures = count(Grade::kFailure);
  const auto warnings = count(Grade::kWarning);
  if (failures + warnings == 0) {
    std::printf("\n%s\n", fine);
  } else {
    std::printf("\n%ld failed, %ld to look at.\n", static_cast<long>(failures), static_cast<long>(warnings));
  }
  return failures == 0 ? 0 : 1;
}

// What of this host matters to a client.
std::vector<Finding> ExamineTarget(const std::string& target) {
  const std::string library = run::FindLibrary();
  std::vector<Finding> out = {ExamineLibrary(library)};
  Add(&out, ExamineConfigFile(""));
  Add(&out, ExamineEnvironment());
  if (!library.empty()) Add(&out, ExamineWay(target, library));
  return out;
}

}  // namespace

int Doctor(const std::string& subject) {
  const bool is_target = subject.find(':') != std::string::npos && access(subject.c_str(), F_OK) != 0;
  if (is_target) return Report(ExamineTarget(subject), "Nothing stands in SDP's way to this host.");
  return Report(Examine(subject), "Nothing stands in SDP's way on this host.");
}

}  // namespace sdp::sdpstat
