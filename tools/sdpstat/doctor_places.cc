// Places on this host: the directory of the statistics, the port mapper's socket.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "preload/stats_layout.h"
#include "tools/sdp-run/service.h"
#include "tools/sdpstat/doctor_parts.h"
#include "tools/sdpstat/render.h"
#include "tools/stats/stats_reader.h"
#include "tools/why/reasons.h"

namespace sdp::sdpstat {
namespace {

using Grade = Finding::Grade;
using run::DaemonState;

constexpr uint16_t kPortMapperPort = 3935;
constexpr uint16_t kFirstUnprivilegedPort = 1024;
constexpr char kAnother[] = "Let SDP_STATS_DIR name a directory of its own.";

uint16_t PmPort() {
  const char* text = getenv("SDP_PM_PORT");
  const long port = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  return port > 0 && port < 65536 ? static_cast<uint16_t>(port) : kPortMapperPort;
}

Finding Unusable(const std::string& text, const std::string& remedy) {
  return {Grade::kFailure, "statistics", text, remedy};
}

bool IsRoot(const struct stat& status) {
  struct stat root {};
  return stat("/", &root) == 0 && root.st_dev == status.st_dev && root.st_ino == status.st_ino;
}

Finding JudgeTrial(const std::string& path, int error) {
  if (error == 0) return {Grade::kFine, "statistics", path, ""};
  if (error == ENOSPC || error == EDQUOT)
    return Unusable(path + " has no room: sdpstat will not see programs that start now",
                    "Make room there (df " + path + "), or let SDP_STATS_DIR name another directory.");
  return Unusable(path + " cannot be written to: " + strerrordesc_np(error), kAnother);
}

// The library makes the directory itself, but nothing above it.
Finding JudgeMissing(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  if (access(parent.c_str(), W_OK | X_OK) == 0)
    return {Grade::kFine, "statistics", "no process has published any yet", ""};
  return Unusable(path + " is not there, and cannot be made: " + parent + ": " + strerrordesc_np(errno),
                  kAnother);
}

// A listener's port mapper, where that serves this user. *program: whose listener. Empty: there is none.
std::string PrivateDaemon(const stats::Snapshot& snapshot, std::string* program) {
  for (const stats::ProcessStats& process : snapshot.processes) {
    for (const stats::ConnectionRecord& record : process.records) {
      if (record.counters.registered_at_ns == 0 || !run::DaemonRuns(record.reason_text)) continue;
      *program = process.program + "[" + std::to_string(process.pid) + "]";
      return record.reason_text;
    }
  }
  return "";
}

std::string RemovalOf(const std::string& path, uid_t owner) {
  if (geteuid() == 0 || owner == geteuid()) return "Remove it (rm " + path + ").";
  return "Have root remove it (rm " + path + "), or let SDP_PMD_SOCKET name another.";
}

}  // namespace

int TryToWrite(const std::string& directory) {
  int fd = open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0 && errno != EOPNOTSUPP && errno != EISDIR) return errno;
  if (fd < 0) {  // a file system without files that have no name
    std::string name = directory + "/.sdpstat-doctor-XXXXXX";
    fd = mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0) return errno;
    unlink(name.c_str());
  }
  const std::string zeros(stats::kChunkSize, '\0');
  errno = ENOSPC;  // of a write that is too short
  const bool fits = write(fd, zeros.data(), zeros.size()) == static_cast<ssize_t>(zeros.size());
  const int error = fits ? 0 : errno;
  close(fd);
  return error;
}

Finding ExamineStatsPlace(const std::string& path, int (*try_to_write)(const std::string& directory)) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return JudgeMissing(path);
  const std::string remove = "Remove it, or let SDP_STATS_DIR name another directory.";
  if (S_ISLNK(status.st_mode))
    return Unusable(path + " is a symbolic link, and is not used",
                    "Let SDP_STATS_DIR name the directory itself, or remove the link.");
  if (!S_ISDIR(status.st_mode)) return Unusable(path + " is not a directory", remove);
  if (IsRoot(status)) return Unusable(path + " is the root directory, and is not used", kAnother);
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    return Unusable(path + " belongs to user " + std::to_string(status.st_uid) + ": sdpstat will see nothing",
                    remove);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Unusable(path + " can be written by others, and is not used",
                    (status.st_mode & S_ISVTX) != 0 ? kAnother : "chmod go-w " + path + ".");
  }
  return JudgeTrial(path, try_to_write(path));
}

Finding ExamineStatsDirectory() {
  std::vector<std::string> paths = stats::DefaultDirectories();
  if (geteuid() == 0) paths.resize(1);  // root reads other users' too; they are theirs
  const char* wanted = getenv("SDP_STATS_DIR");
  const bool named = wanted != nullptr && *wanted != '\0';
  for (const std::string& path : paths) {
    struct stat status {};
    if (named || lstat(path.c_str(), &status) == 0) return ExamineStatsPlace(path, TryToWrite);
  }
  return {Grade::kFine, "statistics", "no process has published any yet", ""};
}

Finding JudgeDaemon(const std::string& path, const run::DaemonLook& look) {
  const auto failure = [](const std::string& text, const std::string& remedy) {
    return Finding{Grade::kFailure, "port mapper", text, remedy};
  };
  const std::string start = "systemctl start sdp-pmd, or start servers with sdp-run --pmd.";
  const std::string owner = "user " + std::to_string(look.user);
  switch (look.state) {
    case DaemonState::kAnswers:
      return {Grade::kFine, "port mapper", "answers at " + path, ""};
    case DaemonState::kNoSocket:
      return failure("none answers at " + path + ": servers stay TCP (clients need none here)", start);
    case DaemonState::kNoDaemon:
      if (look.user == geteuid() || look.user == 0)
        return failure("none answers at " + path + ", which a daemon has left behind: servers stay TCP",
                       start);
      return failure("none answers at " + path + ", which belongs to " + owner + ": servers stay TCP",
                     RemovalOf(path, look.user));
    case DaemonState::kForbidden:
      if (look.user == geteuid() || look.user == 0)
        return failure("this user may not use " + path + ": servers stay TCP",
                       "Start sdp-pmd with a --socket-mode that lets this user in, such as 0666.");
      return failure("this user may not use " + path + ", which belongs to " + owner + ": servers stay TCP",
                     RemovalOf(path, look.user));
    case DaemonState::kStranger:
      return failure(path + " is served by " + owner +
                         ", who is neither root nor this user, and is not asked: servers stay TCP",
                     RemovalOf(path, look.user));
    case DaemonState::kBroken:
      break;
  }
  return failure(path + " cannot be used: " + strerrordesc_np(look.error), "Correct SDP_PMD_SOCKET.");
}

std::vector<Finding> ExamineServices(const std::string& root) {
  std::vector<Finding> out;
  std::string fine;
  for (const run::EnabledService& service : run::EnabledServices(root)) {
    const std::string disable = "sdp-run --disable " + service.unit + " takes the file away.";
    if (!service.is_there) {
      out.push_back({Grade::kNote, "services", service.unit + " is enabled, and not there", disable});
    } else if (service.library.starts_with('/') && service.library.find('$') == std::string::npos &&
               access((root + service.library).c_str(), R_OK) != 0) {
      out.push_back({Grade::kFailure, "services",
                     service.unit + " is to load " + service.library + ", which is not there",
                     "sdp-run --enable " + service.unit + " writes it anew; " + disable});
    } else {
      fine += (fine.empty() ? "" : ", ") + service.unit;
    }
  }
  if (!fine.empty()) out.push_back({Grade::kFine, "services", "enabled: " + fine, ""});
  return out;
}

Finding JudgeListeners(const stats::Snapshot& snapshot) {
  const Sums sums = Summarise(snapshot);
  if (sums.unregistered == 0) {
    return {Grade::kFine, "listeners",
            sums.listeners == 0 ? "none runs" : std::to_string(sums.listeners) + " registered", ""};
  }
  std::string first, remedy;
  for (const stats::ProcessStats& process : snapshot.processes) {
    for (const stats::ConnectionRecord& record : process.records) {
      if (!first.empty() || !stats::IsUnregisteredListener(record)) continue;
      const Reason* reason = FindReason("not-registered");
      if (const std::string special = Remedy(*reason, record.reason_text); special != reason->remedy)
        remedy = special;
      first = process.program + "[" + std::to_string(process.pid) + "] on " + ToString(record.local) + ": " +
              record.reason_text;
    }
  }
  return {Grade::kWarning, "listeners",
          std::to_string(sums.unregistered) + " of " + std::to_string(sums.listeners + sums.unregistered) +
              " not registered, such as " + first,
          remedy.empty() ? "Start sdp-pmd: they register when the next client comes; sdpstat -l shows all."
                         : remedy};
}

std::vector<Finding> JudgeSdpPorts(const stats::Snapshot& snapshot) {
  size_t refused = 0;
  std::string first;
  for (const stats::ProcessStats& process : snapshot.processes) {
    for (const stats::ConnectionRecord& record : process.records) {
      if (record.kind != stats::Kind::kListener || record.local.port >= kFirstUnprivilegedPort ||
          record.sdp_local.port < kFirstUnprivilegedPort)
        continue;
      if (++refused > 1) continue;
      first = process.program + "[" + std::to_string(process.pid) + "] on " + ToString(record.local) + ": " +
              std::to_string(record.sdp_local.port);
    }
  }
  if (refused == 0) return {};
  return {{Grade::kWarning, "SDP ports",
           std::to_string(refused) + " from " + std::to_string(kFirstUnprivilegedPort) +
               " on for services below, such as " + first + ": clients use TCP (pm-untrusted)",
           FindReason("pm-untrusted")->remedy}};
}

Finding JudgeUdpPort(uint16_t port, bool answers, bool is_free) {
  const std::string number = std::to_string(port);
  if (is_free && answers) {
    return {Grade::kWarning, "UDP port",
            "no program has " + number + ": clients elsewhere will not find this host's servers",
            "Let sdp-pmd listen there (--listen), or set SDP_PM_PORT at the clients."};
  }
  if (is_free) return {Grade::kFine, "UDP port", number + " is free for sdp-pmd", ""};
  if (answers) return {Grade::kFine, "UDP port", number + " is in use, as it should be", ""};
  return {Grade::kWarning, "UDP port",
          number + " is taken, perhaps by the port mapper of an sdp-run --pmd, for its program alone",
          "ss -lunp sport = :" + number + " names the program; end it before you start sdp-pmd."};
}

std::vector<Finding> ExamineDaemon(const stats::Snapshot& snapshot, std::string* socket) {
  const std::vector<std::string> places = run::LocalSocketPaths();
  const char* wanted = getenv("SDP_PMD_SOCKET");
  const bool named = wanted != nullptr && *wanted != '\0';
  std::vector<Finding> out;
  socket->clear();
  bool answers = false;
  for (const std::string& place : places) {
    const run::DaemonLook look = run::LookForDaemon(place);
    answers = look.state == DaemonState::kAnswers;
    // No daemon of the user's own is no fault where the host's answers.
    if (answers || look.state != DaemonState::kNoSocket || out.empty())
      out.push_back(JudgeDaemon(place, look));
    if (answers) *socket = place;
    if (answers) break;
  }
  if (std::string program; !answers && !named) {
    *socket = PrivateDaemon(snapshot, &program);
    answers = !socket->empty();
    if (answers) {
      out.push_back({Grade::kNote, "port mapper",
                     "none answers at " + places.back() + "; " + program + " has one for itself",
                     "With SDP_PMD_SOCKET=" + *socket +
                         " it serves another server, too. For all servers start one sdp-pmd instead."});
    }
  }
  if (answers) {
    std::erase_if(out, [](const Finding& finding) {
      return finding.grade == Grade::kFailure && finding.text.starts_with("none answers");
    });
    for (Finding& finding : out) {
      if (finding.grade == Grade::kFailure) finding.grade = Grade::kWarning;
    }
  }
  out.push_back(JudgeUdpPort(PmPort(), answers, run::UdpPortIsFree(PmPort())));
  return out;
}

}  // namespace sdp::sdpstat
