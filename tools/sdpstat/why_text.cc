#include <fnmatch.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tools/sdp-run/program_check.h"
#include "tools/sdpstat/render.h"
#include "tools/sdpstat/why.h"
#include "tools/why/reasons.h"

namespace sdp::sdpstat {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

constexpr size_t kPastShown = 8;

std::string Meaning(const std::string& code) {
  const Reason* reason = FindReason(code);
  return reason == nullptr ? "?" : reason->meaning;
}

std::string Side(const std::string& code) {
  const Reason* reason = FindReason(code);
  return reason == nullptr ? "?" : reason->side;
}

std::string Layout(const std::vector<Cells>& rows) {
  std::vector<size_t> width;
  for (const Cells& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i)
      line += " " + row[i] + std::string(width[i] - row[i].size() + 1, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string Headline(const ProcessView& process) {
  std::string out = process.program + "[" + std::to_string(process.pid) + "]" +
                    (process.title.empty() ? "" : " (" + process.title + ")") + ": ";
  if (!process.descriptors_readable)
    return out + (geteuid() == 0 ? "the kernel does not let this root look at it (CAP_SYS_PTRACE)\n"
                                 : "it belongs to another user: run sdpstat as that user or as root\n");
  if (!process.reason.empty()) {
    return out + process.reason + ": " + Meaning(process.reason) +
           (process.text.empty() ? "" : " (" + process.text + ")") + "\n";
  }
  const auto sdp = std::count_if(process.sockets.begin(), process.sockets.end(),
                                 [](const Verdict& v) { return v.is_sdp; });
  const auto all = static_cast<long>(process.sockets.size());
  return out + std::to_string(sdp) + " of " + std::to_string(all) + " TCP sockets are SDP\n";
}

// Of listeners that a port mapper knows: where, and since when.
std::string Registrations(const ProcessView& process) {
  std::string out;
  for (const Verdict& verdict : process.sockets) {
    if (verdict.registered_at_ns == 0) continue;
    const auto since = static_cast<time_t>(verdict.registered_at_ns / 1'000'000'000);
    char when[32] = "?";
    if (tm parts{}; localtime_r(&since, &parts) != nullptr)
      std::strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &parts);
    out += "  " + ToString(verdict.socket.local) + " is registered" +
           (verdict.text.empty() ? "" : " at " + verdict.text) + " since " + when + "\n";
  }
  return out;
}

// Codes, each with what helps.
using Reasons = std::set<std::pair<std::string, std::string>>;

void AddReason(const std::string& code, const std::string& text, Reasons* reasons) {
  if (const Reason* reason = FindReason(code)) reasons->emplace(code, Remedy(*reason, text));
}

void AddSockets(const ProcessView& process, std::vector<Cells>* rows, Reasons* reasons) {
  for (const Verdict& verdict : process.sockets) {
    if (verdict.reason.empty()) continue;
    rows->push_back({std::to_string(verdict.socket.fd), verdict.socket.state, ToString(verdict.socket.local),
                     ToString(verdict.socket.peer), verdict.reason, Side(verdict.reason), verdict.text});
    AddReason(verdict.reason, verdict.text, reasons);
  }
}

void AddPast(const ProcessView& process, std::vector<Cells>* rows, Reasons* reasons) {
  std::vector<const stats::ConnectionRecord*> newest;
  for (const auto& record : process.past) newest.push_back(&record);
  std::sort(newest.begin(), newest.end(),
            [](const auto* a, const auto* b) { return a->opened_at_ns > b->opened_at_ns; });
  if (newest.size() > kPastShown) newest.resize(kPastShown);
  for (const auto* record : newest) {
    const bool failed = record->counters.state == stats::State::kFailed;
    rows->push_back({"-", failed ? "failed" : "closed", ToString(record->local), ToString(record->peer),
                     record->reason, Side(record->reason), record->reason_text});
    AddReason(record->reason, record->reason_text, reasons);
  }
}

Json ReasonJson(const std::string& code, const std::string& text) {
  if (code.empty()) return nullptr;
  return Json{{"code", code}, {"side", Side(code)}, {"meaning", Meaning(code)}, {"text", text}};
}

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// No such process runs: what would become of the program if it were started.
int ExplainProgram(const std::string& name) {
  const run::Check check = run::CheckProgram({name});
  if (check.verdict == run::Verdict::kNotFound) {
    std::fprintf(stderr, "sdpstat: neither a process nor a program is called %s\n", name.c_str());
    return 2;
  }
  std::printf(
      "%s: no such process runs; the program %s %s\n", name.c_str(), check.path.c_str(),
      check.verdict == run::Verdict::kFine ? "can be preloaded (sdp-run, or LD_PRELOAD)" : check.why.c_str());
  return check.verdict == run::Verdict::kFine ? 2 : 1;
}

}  // namespace

std::vector<uint32_t> ProcessesCalled(const std::string& name) {
  std::vector<uint32_t> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = entry.path().filename();
    if (!IsNumber(pid)) continue;
    std::error_code ignored;
    const std::string program = std::filesystem::read_symlink(entry.path() / "exe", ignored).filename();
    char comm[64] = "";
    if (FILE* file = std::fopen((entry.path() / "comm").c_str(), "r")) {
      if (std::fgets(comm, sizeof comm, file) != nullptr) comm[std::strcspn(comm, "\n")] = '\0';
      std::fclose(file);
    }
    if (fnmatch(name.c_str(), comm, 0) == 0 ||
        (!program.empty() && fnmatch(name.c_str(), program.c_str(), 0) == 0)) {
      out.push_back(static_cast<uint32_t>(std::strtoul(pid.c_str(), nullptr, 10)));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string RenderWhy(const std::vector<ProcessView>& processes) {
  std::string out;
  Reasons reasons;
  std::set<std::string> explained;
  for (const ProcessView& process : processes) {
    out += Headline(process);
    if (!process.reason.empty()) {
      AddReason(process.reason, process.text, &reasons);
      explained.insert(process.reason);
    }
    if (!process.stats_directory.empty())
      out +=
          "  its statistics are in " + process.stats_directory + ", where sdpstat does not look by itself\n";
    if (process.has_ring)
      out +=
          "  it has an io_uring: what goes over it the library does not see, and it must not be used on an "
          "SDP socket\n";
    out += Registrations(process);
    std::vector<Cells> rows = {{"FD", "State", "Local", "Peer", "Reason", "Side", "Noted by the process"}};
    AddSockets(process, &rows, &reasons);
    AddPast(process, &rows, &reasons);
    if (rows.size() > 1) out += Layout(rows);
    out += "\n";
  }
  for (const auto& [code, remedy] : reasons) {
    if (!explained.contains(code)) {
      out += code + ": " + Meaning(code) + "." + (remedy.empty() ? "" : " " + remedy) + "\n";
    } else if (!remedy.empty()) {
      out += code + ": " + remedy + "\n";  // the headline has said what it means
    }
  }
  return out;
}

std::string RenderReasons() {
  std::vector<Cells> rows;
  for (const Reason& reason : AllReasons()) {
    rows.push_back({reason.code, reason.side, reason.meaning});
    if (reason.remedy[0] != '\0') rows.push_back({"", "", std::string("-> ") + reason.remedy});
  }
  return Layout(rows);
}

std::string RenderWhyJson(const std::vector<ProcessView>& processes) {
  Json list = Json::array();
  for (const ProcessView& process : processes) {
    Json sockets = Json::array();
    for (const Verdict& verdict : process.sockets) {
      sockets.push_back(Json{
          {"fd", verdict.socket.fd},
          {"state", verdict.socket.state},
          {"local", ToString(verdict.socket.local)},
          {"peer", verdict.socket.peer.family == 0 ? Json(nullptr) : Json(ToString(verdict.socket.peer))},
          {"sdp", verdict.is_sdp},
          {"registered_at_ns",
           verdict.registered_at_ns == 0 ? Json(nullptr) : Json(verdict.registered_at_ns)},
          {"port_mapper",
           verdict.registered_at_ns == 0 || verdict.text.empty() ? Json(nullptr) : Json(verdict.text)},
          {"reason", ReasonJson(verdict.reason, verdict.text)}});
    }
    Json past = Json::array();
    for (const auto& record : process.past) {
      past.push_back(Json{{"state", stats::ToString(record.counters.state)},
                          {"peer", record.peer.family == 0 ? Json(nullptr) : Json(ToString(record.peer))},
                          {"opened_at_ns", record.opened_at_ns},
                          {"reason", ReasonJson(record.reason, record.reason_text)}});
    }
    list.push_back(Json{{"pid", process.pid},
                        {"program", process.program},
                        {"title", process.title.empty() ? Json(nullptr) : Json(process.title)},
                        {"library_loaded", process.library_loaded},
                        {"readable", process.descriptors_readable},
                        {"io_uring", process.has_ring},
                        {"reason", ReasonJson(process.reason, process.text)},
                        {"sockets", sockets},
                        {"past", past}});
  }
  return Json{{"schema", 1}, {"processes", list}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int Why(const std::string& who, const stats::Snapshot& snapshot, bool json) {
  std::vector<uint32_t> pids;
  if (IsNumber(who)) {
    pids.push_back(static_cast<uint32_t>(std::strtoul(who.c_str(), nullptr, 10)));
  } else {
    pids = ProcessesCalled(who);
  }
  std::vector<ProcessView> views;
  for (const uint32_t pid : pids) {
    if (auto view = LookAt(pid, snapshot)) views.push_back(std::move(*view));
  }
  if (views.empty() && IsNumber(who)) {
    std::fprintf(stderr, "sdpstat: there is no process %s\n", who.c_str());
    return 2;
  }
  if (views.empty()) return ExplainProgram(who);
  std::fputs((json ? RenderWhyJson(views) : RenderWhy(views)).c_str(), stdout);
  const bool all_sdp = std::all_of(views.begin(), views.end(), [](const ProcessView& view) {
    return view.reason.empty() && view.descriptors_readable &&
           std::all_of(view.sockets.begin(), view.sockets.end(), [](const Verdict& v) { return v.is_sdp; });
  });
  return all_sdp ? 0 : 1;
}

}  // namespace sdp::sdpstat
