#include "tools/probe/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tools/probe/probe_words.h"
#include "tools/stats/stats_reader.h"

namespace sdp::probe {
namespace {

constexpr auto kPatience = std::chrono::seconds(15);  // longer than a handshake may take

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/sdp-probe-XXXXXX";
    if (mkdtemp(name) != nullptr) path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

[[noreturn]] void Become(const Request& request, const std::string& directory, int in, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  setenv("LD_PRELOAD", request.library.c_str(), 1);
  setenv("SDP_STATS_DIR", directory.c_str(), 1);
  setenv("SDP_LOG", "info", 1);
  setenv("SDP_LOG_FILE", (directory + "/log").c_str(), 1);
  unsetenv("SDP_LOG_DESTINATION");
  const std::string name = request.program.substr(request.program.rfind('/') + 1);
  execl("/proc/self/exe", name.c_str(), kProbeOption, request.host.c_str(), request.port.c_str(), nullptr);
  _exit(127);
}

// Until the end of the line, or of the patience: then *late is true.
std::string ReadLine(int fd, bool* late) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::string line;
  for (char c = 0; line.size() < 4096;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    *late = left <= 0 || poll(&entry, 1, static_cast<int>(left)) <= 0;
    if (*late || read(fd, &c, 1) != 1) return "";
    if (c == '\n') return line;
    line += c;
  }
  return "";
}

std::optional<stats::ConnectionRecord> FindRecord(const std::string& directory) {
  std::optional<stats::ConnectionRecord> out;
  for (const stats::ProcessStats& process : stats::ReadAll({directory}).processes) {
    for (const stats::ConnectionRecord& record : process.records) {
      const bool connection =
          record.kind == stats::Kind::kConnection && record.role == stats::Role::kConnecting;
      if (connection) return record;
      // The last decision; a listener's comes before, and says more of the cause.
      if (record.kind == stats::Kind::kFallback && (!out || out->opened_at_ns < record.opened_at_ns))
        out = record;
    }
  }
  return out;
}

}  // namespace

Result Probe(const Request& request) {
  Result result;
  const TemporaryDirectory directory;
  int to_probe[2], from_probe[2];
  if (directory.path().empty() || pipe2(to_probe, O_CLOEXEC) != 0 || pipe2(from_probe, O_CLOEXEC) != 0) {
    result.error = std::string("cannot prepare the probe: ") + strerror(errno);
    return result;
  }
  const pid_t pid = fork();
  if (pid == 0) Become(request, directory.path(), to_probe[0], from_probe[1]);
  close(to_probe[0]);
  close(from_probe[1]);
  bool late = false;
  const std::string line = pid > 0 ? ReadLine(from_probe[0], &late) : "";
  if (line.starts_with(kConnected)) {
    result.connected = true;
    result.milliseconds = std::atof(line.c_str() + strlen(kConnected));
  } else if (line.starts_with(kFailed)) {
    result.connect_error = line.substr(strlen(kFailed));
  } else if (late) {
    result.connect_error = "no answer within " + std::to_string(kPatience.count()) + " s";
  } else {
    result.error = "the probe did not answer: can " + request.library + " be preloaded?";
  }
  if (result.error.empty()) result.record = FindRecord(directory.path());
  // Of a connect that is still under way.
  if (late && result.record && result.record->kind == stats::Kind::kConnection) result.record.reset();
  std::ifstream log(directory.path() + "/log");
  result.log.assign(std::istreambuf_iterator<char>(log), {});
  close(to_probe[1]);  // the probe ends
  close(from_probe[0]);
  if (pid > 0) {
    if (late || !result.error.empty()) kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  return result;
}

}  // namespace sdp::probe
