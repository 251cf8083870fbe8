// Association handles: unique while one generator lives, and not to be guessed from the ones seen before
// (SDP 7.5.1: the initial handle SHOULD be random, to make it harder for a third party to interfere).
#ifndef SDP_PORTMAPPER_ENGINE_ASSOC_HANDLE_H_
#define SDP_PORTMAPPER_ENGINE_ASSOC_HANDLE_H_

#include <array>
#include <cstdint>

#include "portmapper/wire/pm_message.h"

namespace sdp::pm {

// A keyed permutation of a counter: a permutation never repeats, the key hides the counter. The caller brings
// the randomness (getrandom in the library, a seed in a simulation). Not shared between threads without a
// lock, and not inherited over fork: a child makes itself a new one, else parent and child would hand out the
// same handles.
class AssocHandleGenerator {
 public:
  using Key = std::array<uint64_t, 2>;

  explicit AssocHandleGenerator(const Key& key) : key_(key) {}

  [[nodiscard]] AssocHandle Next();

 private:
  Key key_;
  uint64_t counter_ = 0;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_ASSOC_HANDLE_H_
