#include "verbs/ibv/kept_sends.h"

namespace sdp::ibv {

std::optional<size_t> KeptSends::Keep(size_t size) {
  const std::optional<size_t> place = space_.Take(size);
  if (place) kept_.push_back({.number = ++sends_, .mark = space_.mark()});
  return place;
}

void KeptSends::NotePeerHas(uint64_t missing, uint64_t waiting) {
  if (missing >= sends_ + waiting) return;
  const uint64_t had = sends_ + waiting - missing;
  while (!kept_.empty() && kept_.front().number <= had) {
    space_.FreeUpTo(kept_.front().mark);
    kept_.pop_front();
  }
}

}  // namespace sdp::ibv
