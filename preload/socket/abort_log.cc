#include "preload/socket/abort_log.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <string>

#include "preload/socket/clock.h"
#include "preload/stats_message_text.h"
#include "preload/stats_segment.h"

namespace sdp::preload {
namespace {

constinit AbortAllowance own_allowance;
constinit std::atomic<AbortAllowance*> allowance{&own_allowance};

// One line for each message: how long before now, its direction, its name and details.
void LogRecentMessages(LogLevel level, const stats::MessageRecorder& recorder) {
  const auto now_ns = static_cast<int64_t>(stats::WallClock());
  // In the order noted. Times are coarse where tracing is off.
  uint64_t time_ns = 0;
  for (const stats::MessageNote& note : recorder.Recent()) {
    const stats::MessageText text = stats::ToText(note);
    time_ns = std::max(time_ns, note.time_ns);
    const double ago = static_cast<double>(now_ns - static_cast<int64_t>(time_ns)) / 1e9;
    LogLine(level, "  %.3f s before: %s %s %s", ago,
            note.direction == stats::NoteDirection::kOut ? "sent" : "got", text.name.c_str(),
            text.details.c_str());
  }
}

std::string Describe(engine::AbortReason reason, const verbs::LinkCause& cause) {
  std::string text = engine::ToString(reason);
  if (!cause.text.empty()) text += "; " + cause.text;
  if (reason == engine::AbortReason::kLinkLost && cause.end == verbs::LinkEnd::kClosedByPeer)
    text += " without a DisConn";
  return text;
}

}  // namespace

LogLevel AbortLevel(engine::AbortReason reason, const verbs::LinkCause& cause) {
  if (engine::IsViolation(reason)) return LogLevel::kError;
  if (cause.end == verbs::LinkEnd::kTerminated || cause.end == verbs::LinkEnd::kFailed)
    return LogLevel::kError;
  if (reason == engine::AbortReason::kPeerAborted) return LogLevel::kInfo;
  if (cause.end == verbs::LinkEnd::kClosedByPeer) return LogLevel::kInfo;
  const bool reset =
      cause.end == verbs::LinkEnd::kReset && (cause.os_error == ECONNRESET || cause.os_error == EPIPE);
  return reset ? LogLevel::kInfo : LogLevel::kError;
}

AbortAllowance& TheAbortAllowance() { return *allowance.load(std::memory_order_acquire); }

void ShareAbortAllowance() {
  AbortAllowance* expected = &own_allowance;
  if (allowance.load() != expected) return;
  void* const page =
      mmap(nullptr, sizeof(AbortAllowance), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (!allowance.compare_exchange_strong(expected, new (page) AbortAllowance))
    munmap(page, sizeof(AbortAllowance));
}

bool AbortAllowance::Take(Time now, uint64_t* left_out) {
  constexpr Duration::rep kEach = kAbortInterval.count();
  const Duration::rep at = now.time_since_epoch().count();
  Duration::rep full_at = full_at_.load(std::memory_order_relaxed);
  Duration::rep next = 0;
  do {
    next = std::max(full_at, at) + kEach;
    if (next - at > kAbortBurst * kEach) {
      left_out_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!full_at_.compare_exchange_weak(full_at, next, std::memory_order_relaxed));
  *left_out = left_out_.exchange(0, std::memory_order_relaxed);
  return true;
}

bool MayLogError() {
  if (LogEnabled(LogLevel::kInfo)) return true;
  uint64_t left_out = 0;
  if (!TheAbortAllowance().Take(Now(), &left_out)) return false;
  if (left_out != 0) {
    LogLine(LogLevel::kError, "%llu aborts and other errors are left out here (SDP_LOG=info has them all)",
            static_cast<unsigned long long>(left_out));
  }
  return true;
}

void LogAbort(const Address& peer, engine::AbortReason reason, const verbs::LinkCause& cause,
              const stats::MessageRecorder& recorder) {
  const LogLevel level = AbortLevel(reason, cause);
  if (!LogEnabled(level) || !MayLogError()) return;
  LogLine(level, "connection with %s aborted: %s", ToEndpoint(peer).ToString().c_str(),
          Describe(reason, cause).c_str());
  LogRecentMessages(level, recorder);
}

}  // namespace sdp::preload
