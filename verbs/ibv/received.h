// The receiving half of one IbvQp: Private Buffers and their completions. A message lends its buffer. While
// many buffers are lent, a small message is copied out, so that unread small messages do not keep the window
// closed.
#ifndef SDP_VERBS_IBV_RECEIVED_H_
#define SDP_VERBS_IBV_RECEIVED_H_

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "verbs/ibv/arming.h"
#include "verbs/ibv/completed.h"
#include "verbs/ibv/ending.h"
#include "verbs/ibv/receive_pool.h"
#include "verbs/ibv/regions.h"

namespace sdp::ibv {

class Received {
 public:
  // All references outlive this. Messages go to `completed`, and failures to `ending`. An STag that a message
  // has invalidated leaves `regions`. `resources` has a queue pair.
  Received(Resources& resources, Arming& arming, Ending& ending, Regions& regions, Completed& completed,
           verbs::QpCounters& counters, uint32_t buffer_size);

  // Posts `count` more buffers. Returns false if there is no memory, and sets errno.
  bool Post(uint32_t count) { return pool_.Post(count); }
  bool SetBufferSize(uint32_t bytes, uint32_t count) { return pool_.SetSize(bytes, count); }
  // Gives back what a completion lent. Returns false if memory is lacking for a buffer to post in its place.
  bool Release(verbs::ReceiveToken token);
  // Like QueuePair::ReceiveCost.
  [[nodiscard]] uint32_t Cost(uint32_t length) const;

  // Takes a bounded number of completions from the receives' queue; returns whether there were any.
  bool Poll();
  void PollAll() {
    while (Poll()) {
    }
  }

 private:
  // A message of at most kCopyLimit bytes, copied out of its buffer.
  static constexpr uint32_t kCopyLimit = 2048;
  using Copy = std::array<std::byte, kCopyLimit>;

  void HandleCompletion(const ibv_wc& wc);
  // Returns the index in copies_.
  uint32_t CopyOut(const std::byte* data, uint32_t size);

  const Resources& resources_;
  Arming& arming_;
  Ending& ending_;
  Regions& regions_;
  Completed& completed_;
  verbs::QpCounters& counters_;
  ReceivePool pool_;
  std::deque<Copy> copies_;
  std::vector<uint32_t> free_copies_;  // indices of copies_
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_RECEIVED_H_
