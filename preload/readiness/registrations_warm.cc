// The warm local links of an epoll set, which a wait looks at in memory.
#include <poll.h>

#include <optional>
#include <utility>

#include "preload/readiness/registrations.h"
#include "preload/socket/watch.h"

namespace sdp::preload {
namespace {

// A link that is silent for so long, while others are busy, is left to its doorbell.
constexpr Duration kWarmFor = std::chrono::milliseconds(20);
constexpr size_t kMostWarm = 256;

}  // namespace

void Registrations::Warm(int key, Entry& entry) {
  if (entry.warm || entry.peek == nullptr || stays_cold_ || warm_.size() >= kMostWarm) return;
  entry.warm = true;
  warm_.push_back({.peek = entry.peek, .key = key, .entry = &entry});
}

bool Registrations::ReportAtOnce(const WarmLink& link, Report report) {
  Entry& entry = *link.entry;
  if (entry.candidate) return false;
  const std::optional<StreamSocket::Watch::Readiness> readiness =
      StreamSocket::Watch(Stream(entry.socket)).ReadyExpress();
  if (!readiness) return false;
  const uint32_t ready = entry.asked.Holding(*readiness);
  // A message may bring the credit that a writer waits for.
  if (ready == 0) return (readiness->events & POLLOUT) != 0;
  if (!report(link.key, ready, entry.asked.data)) {
    no_room_ = true;
    return false;
  }
  NoteReported(link.key, entry, *readiness, /*alone=*/true);
  return true;
}

void Registrations::LookAtWarm(Time now, bool alone, Work* cold, Report report) {
  const bool at_once = !std::exchange(no_room_, false) && alone;
  for (size_t i = 0; i < warm_.size();) {
    WarmLink& link = warm_[i];
    const bool unread = link.peek->unread();
    if (unread || link.heard == Time{}) link.heard = now;
    const bool silent = now - link.heard >= kWarmFor;
    const bool gone = (unread || silent) && !link.IsWatched();
    const bool told = link.entry->told && link.IsWatched();
    if (told) link.entry->told = false;
    if ((unread && !gone) || (told && link.entry->asked.for_room())) {
      if (!at_once || !ReportAtOnce(link, report)) MakeCandidate(link.key, *link.entry);
    } else if (told && !Stream(link.entry->socket).NothingTaken()) {
      MakeCandidate(link.key, *link.entry);
    }
    if (!gone && !silent) {
      ++i;
      continue;
    }
    Cool(link, cold);
    link = std::move(warm_.back());
    warm_.pop_back();
  }
}

void Registrations::Cool(const WarmLink& link, Work* out) {
  AskAgain(link.key, *link.entry);
  if (link.entry->peek == link.peek) link.entry->warm = false;
  if (link.IsWatched()) out->push_back(JobOf(link.key, *link.entry));
}

void Registrations::TakeWarm(Work* out) {
  for (const WarmLink& link : warm_) Cool(link, out);
  warm_.clear();
}

}  // namespace sdp::preload
