#include "preload/readiness/look.h"

#include <algorithm>

#include "preload/socket/clock.h"
#include "preload/socket/core_watch.h"

namespace sdp::preload {

void DeviceLook::Add(StreamSocket* socket, Duration budget) {
  if (count_ == 0) budget_ = Duration::zero();
  if (count_ < kMostSockets) sockets_[count_] = socket;
  ++count_;
  budget_ = std::max(budget_, budget);
}

bool DeviceLook::Run(Time deadline, bool other_ready) {
  if (count_ > kMostSockets) return false;
  const Time now = Now();
  if (now >= deadline) return false;
  if (other_ready || budget_ == Duration::zero()) return EndAll(StreamSocket::LookResult::kInVain);
  const Time until = std::min(deadline, now + budget_);
  CoreWatch core;
  bool crowded = false;
  do {
    for (int look = 0; look < CoreWatch::kLooksPerOffer; ++look) {
      for (size_t i = 0; i < count_; ++i) {
        if (!sockets_[i]->LookAtQueue()) continue;
        sockets_[i]->EndLook(StreamSocket::LookResult::kFound);
        return true;
      }
    }
    crowded = core.OfferedAndTaken();
  } while (!crowded && Now() < until);
  return EndAll(crowded ? StreamSocket::LookResult::kCrowded : StreamSocket::LookResult::kInVain);
}

bool DeviceLook::EndAll(StreamSocket::LookResult result) {
  bool any = false;
  for (size_t i = 0; i < count_; ++i) any |= sockets_[i]->EndLook(result);
  return any;
}

}  // namespace sdp::preload
