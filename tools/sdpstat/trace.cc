#include "tools/sdpstat/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "tools/kernel/process_facts.h"
#include "tools/sdpstat/why.h"
#include "tools/trace/capture.h"
#include "tools/trace/follower.h"
#include "tools/trace/ladder.h"

namespace sdp::sdpstat {
namespace {

using Clock = std::chrono::steady_clock;
using stats::NoteKind;
using trace::Follower;
using trace::NotedMessage;

constexpr std::chrono::milliseconds kLookEvery(5);
constexpr std::chrono::seconds kAskEvery(1);
constexpr int kNothing = 1, kNoProcess = 2;

volatile sig_atomic_t interrupted = 0;

void StopOnSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

bool IsPid(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

// Those are not in this user's directories. 0: none.
uint32_t AnotherUsersProcess(const std::string& name) {
  if (geteuid() == 0) return 0;
  for (const uint32_t pid : ProcessesCalled(name)) {
    const auto user = kernel::EffectiveUser(pid);
    if (user && *user != geteuid()) return pid;
  }
  return 0;
}

int SayNoneOfThatName(const std::string& name) {
  if (const uint32_t pid = AnotherUsersProcess(name); pid != 0) {
    std::fprintf(stderr,
                 "sdpstat: process %u, %s, belongs to another user: run sdpstat as that user or as root\n",
                 pid, name.c_str());
    return kNothing;
  }
  std::fprintf(stderr, "sdpstat: no process called %s runs over SDP; `sdpstat why %s` says more\n",
               name.c_str(), name.c_str());
  return kNoProcess;
}

// 0: none, or more than one; then it was said, and *status is the exit status.
pid_t FindByName(const TraceOptions& options, int* status) {
  const stats::Snapshot snapshot = stats::ReadAll(options.directories);
  std::vector<const stats::ProcessStats*> found;
  for (const stats::ProcessStats& process : snapshot.processes) {
    if (fnmatch(options.process.c_str(), process.program.c_str(), 0) == 0) found.push_back(&process);
  }
  if (found.size() == 1) return static_cast<pid_t>(found.front()->pid);
  *status = kNoProcess;
  if (found.empty()) {
    *status = SayNoneOfThatName(options.process);
    return 0;
  }
  std::fprintf(stderr,
               "sdpstat: several processes are called %s; name one by its number:", options.process.c_str());
  for (const stats::ProcessStats* process : found) std::fprintf(stderr, " %u", process->pid);
  std::fputc('\n', stderr);
  return 0;
}

int SayNoProcess(pid_t pid, const std::string& why) {
  if (!why.empty()) {
    std::fprintf(stderr, "sdpstat: %s\n", why.c_str());
    return kNothing;
  }
  if (kill(pid, 0) != 0 && errno == ESRCH) {
    std::fprintf(stderr, "sdpstat: there is no process %d\n", pid);
    return kNoProcess;
  }
  std::fprintf(stderr,
               "sdpstat: process %d publishes nothing that this user may read; `sdpstat why %d` says whether "
               "it runs over SDP\n",
               pid, pid);
  return kNothing;
}

// Where the messages go.
class Output {
 public:
  virtual ~Output() = default;
  virtual void Introduce(const stats::ConnectionRecord& record) = 0;
  virtual void Take(const NotedMessage& message) = 0;
  // False: whoever read it is gone.
  virtual bool Flush() = 0;
};

class LadderOutput final : public Output {
 public:
  explicit LadderOutput(bool descriptors) : ladder_({.width = Width(), .descriptors = descriptors}) {}
  void Introduce(const stats::ConnectionRecord& record) override { Put(ladder_.Introduce(record)); }
  void Take(const NotedMessage& message) override {
    const std::string rung = ladder_.Draw(message);
    if (!rung.empty() && !std::exchange(dated_, true)) PutDate(message.note.time_ns);
    Put(rung);
  }
  bool Flush() override { return std::fflush(stdout) == 0; }

 private:
  static size_t Width() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
  }
  static void PutDate(uint64_t time_ns) {
    const auto seconds = static_cast<time_t>(time_ns / 1'000'000'000);
    tm date{};
    char text[32] = "";
    if (localtime_r(&seconds, &date) != nullptr) std::strftime(text, sizeof text, "%F %T", &date);
    std::printf("seconds since %s.%06u\n", text, static_cast<unsigned>(time_ns % 1'000'000'000 / 1000));
  }
  static void Put(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

  trace::Ladder ladder_;
  bool dated_ = false;
};

class CaptureOutput final : public Output {
 public:
  explicit CaptureOutput(FILE* file) : file_(file) { Put(trace::Capture::FileHeader()); }
  ~CaptureOutput() override {
    if (file_ != stdout) std::fclose(file_);
  }
  CaptureOutput(const CaptureOutput&) = delete;
  CaptureOutput& operator=(const CaptureOutput&) = delete;
  void Introduce(const stats::ConnectionRecord& record) override { capture_.Introduce(record); }
  void Take(const NotedMessage& message) override { Put(capture_.Add(message)); }
  bool Flush() override { return std::fflush(file_) == 0; }

 private:
  void Put(const std::string& bytes) { std::fwrite(bytes.data(), 1, bytes.size(), file_); }

  FILE* const file_;
  trace::Capture capture_;
};

std::unique_ptr<Output> OpenOutput(const TraceOptions& options) {
  if (options.pcap.empty()) return std::make_unique<LadderOutput>(/*descriptors=*/!options.fd);
  if (options.pcap == "-" && isatty(STDOUT_FILENO)) {
    std::fputs("sdpstat: a capture is nothing for a terminal: --pcap FILE, or --pcap - | wireshark -k -i -\n",
               stderr);
    return nullptr;
  }
  FILE* const file = options.pcap == "-" ? stdout : std::fopen(options.pcap.c_str(), "wbe");
  if (file != nullptr) return std::make_unique<CaptureOutput>(file);
  std::fprintf(stderr, "sdpstat: cannot write %s: %s\n", options.pcap.c_str(), strerror(errno));
  return nullptr;
}

bool IsMessage(const NotedMessage& message) {
  return message.note.kind != NoteKind::kNone && message.note.kind < NoteKind::kOpened;
}

// One command's run.
class Tracer {
 public:
  Tracer(const TraceOptions& options, Output* output) : options_(options), output_(output) {}

  // What is there already. False: not the connection that was asked for.
  bool Begin(const std::vector<Follower::Connection>& connections) {
    std::vector<NotedMessage> history;
    std::string others;
    for (const Follower::Connection& connection : connections) {
      if (options_.fd && connection.record.fd != *options_.fd) {
        others += (others.empty() ? "" : ", ") + std::to_string(connection.record.fd);
        continue;
      }
      wanted_.insert(connection.record.connection);
      output_->Introduce(connection.record);
      // In the order noted: where nobody traced, times are coarse.
      uint64_t time_ns = 0;
      for (NotedMessage message : connection.recent) {
        seen_.insert(Key(message));
        time_ns = message.note.time_ns = std::max(message.note.time_ns, time_ns);
        history.push_back(message);
      }
    }
    if (options_.fd && wanted_.empty()) {
      std::fprintf(stderr, "sdpstat: descriptor %d is no SDP connection of this process; these are: %s\n",
                   *options_.fd, others.empty() ? "none" : others.c_str());
      return false;
    }
    std::stable_sort(history.begin(), history.end(), [](const NotedMessage& a, const NotedMessage& b) {
      return a.note.time_ns < b.note.time_ns;
    });
    for (auto message = history.begin(); message != history.end() && !enough_; ++message)
      enough_ = !Take(*message);
    return output_->Flush();
  }

  // False: enough.
  bool Continue(const std::vector<NotedMessage>& messages) {
    if (enough_) return false;
    for (const NotedMessage& message : messages) {
      if (options_.fd && !wanted_.contains(message.connection)) continue;
      if (!seen_.empty() && seen_.erase(Key(message)) != 0) continue;  // it was history
      if (!Take(message)) return false;
    }
    return messages.empty() || output_->Flush();
  }

  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  bool Take(const NotedMessage& message) {
    output_->Take(message);
    if (IsMessage(message) && ++count_ == options_.count) return false;
    return !(options_.fd && message.note.kind == NoteKind::kClosed);
  }
  static std::string Key(const NotedMessage& message) {
    std::string key(reinterpret_cast<const char*>(&message.note), sizeof message.note);
    return key + std::to_string(message.connection);
  }

  const TraceOptions& options_;
  Output* const output_;
  std::set<uint32_t> wanted_;  // connections, if one was asked for
  std::set<std::string> seen_;
  uint64_t count_ = 0;
  bool enough_ = false;  // what was there already was all that was asked for
};

int Follow(const TraceOptions& options, Follower* follower, Tracer* tracer) {
  const auto start = Clock::now();
  auto asked = start;
  bool going_on = true;
  while (going_on && interrupted == 0) {
    const auto now = Clock::now();
    if (now - asked >= kAskEvery) {
      if (const int error = follower->error(); error != 0) {
        std::fprintf(stderr, "sdpstat: the process cannot make its trace file: %s\n", strerror(error));
        return kNothing;
      }
      asked = now;
      if (!follower->Ask()) return kNothing;
    }
    const bool over = (asked == now && follower->process_ended()) ||
                      (options.seconds > 0 && now - start >= std::chrono::duration<double>(options.seconds));
    going_on = tracer->Continue(follower->Poll()) && !over;
    if (going_on) std::this_thread::sleep_for(kLookEvery);
  }
  std::fprintf(stderr, "sdpstat: %llu messages", static_cast<unsigned long long>(tracer->count()));
  if (follower->lost() != 0)
    std::fprintf(stderr, ", %llu lost: they came too fast",
                 static_cast<unsigned long long>(follower->lost()));
  std::fputc('\n', stderr);
  return 0;
}

}  // namespace

int Trace(const TraceOptions& options) {
  int status = kNoProcess;
  const pid_t pid =
      IsPid(options.process) ? static_cast<pid_t>(std::stol(options.process)) : FindByName(options, &status);
  if (pid == 0) return status;
  std::string why;
  auto process = stats::FindProcess(options.directories, pid, O_RDWR, &why);
  if (!process) return SayNoProcess(pid, why);
  const bool ended = process->file.name.kind == stats::FileKind::kEnded;
  const auto output = OpenOutput(options);
  if (output == nullptr) return kNothing;
  StopOnSignals();
  Tracer tracer(options, output.get());
  Follower follower(*std::move(process));
  if (!ended && !options.last && !follower.Ask()) {
    std::fprintf(stderr, "sdpstat: the stats file of process %d makes no sense\n", pid);
    return kNothing;
  }
  if (!tracer.Begin(follower.Connections())) return kNothing;
  if (ended) std::fprintf(stderr, "sdpstat: process %d has ended; that was the last of it\n", pid);
  if (ended || options.last) return 0;
  return Follow(options, &follower, &tracer);
}

}  // namespace sdp::sdpstat
