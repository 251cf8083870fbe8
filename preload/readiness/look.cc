#include "preload/readiness/look.h"

#include <algorithm>

#include "preload/socket/watch.h"

namespace sdp::preload {
void DeviceLook::Add(StreamSocket* socket, Duration budget, const Watch::Wanted& wanted) {
  if (count_ < kMostSockets) sockets_[count_] = {.socket = socket, .wanted = wanted, .came = false};
  ++count_;
  budget_ = std::max(budget_, budget);
}

DeviceLook::Outcome DeviceLook::Run(Time deadline, bool other_ready, const sigset_t* mask) {
  using QueueLook = Watch::QueueLook;
  using LookResult = Watch::LookResult;
  if (count_ > kMostSockets) return Outcome::kSleep;
  const Time now = Now();
  if (now >= deadline) return Outcome::kSleep;
  if (other_ready || budget_ == Duration::zero())
    return EndAll(LookResult::kInVain) ? Outcome::kCame : Outcome::kSleep;
  const auto look = [this] {
    for (size_t i = 0; i < count_; ++i) {
      Looked& looked = sockets_[i];
      const QueueLook found = Watch(*looked.socket).LookAtQueue(looked.wanted);
      looked.came = looked.came || found == QueueLook::kCame;
      if (found != QueueLook::kFound) continue;
      Watch(*looked.socket).EndLook(LookResult::kFound);
      return true;
    }
    return false;
  };
  const LookEnd end = LookUntil(std::min(deadline, now + budget_), mask, look, CoreWatch::kBetweenOffers);
  if (end == LookEnd::kFound) return Outcome::kCame;
  const bool came = EndAll(end == LookEnd::kCrowded ? LookResult::kCrowded : LookResult::kInVain);
  if (end == LookEnd::kInterrupted) return Outcome::kInterrupted;
  return came ? Outcome::kCame : Outcome::kSleep;
}

bool DeviceLook::EndAll(Watch::LookResult result) {
  bool any = false;
  for (size_t i = 0; i < count_; ++i) {
    const bool useless = sockets_[i].came && result == Watch::LookResult::kInVain;
    any |= Watch(*sockets_[i].socket).EndLook(useless ? Watch::LookResult::kUseless : result);
    any |= sockets_[i].came;
  }
  return any;
}

}  // namespace sdp::preload
