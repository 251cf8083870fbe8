// Reads what a kernel RNIC has for one connection: completions, events of the connection manager, and the
// device's failures. LinkReader also decides when to arm the completion queues, so that a caller may sleep.
#ifndef SDP_VERBS_IBV_LINK_READER_H_
#define SDP_VERBS_IBV_LINK_READER_H_

#include <string>

#include "verbs/abilities.h"
#include "verbs/ibv/arming.h"
#include "verbs/ibv/completed.h"
#include "verbs/ibv/ending.h"
#include "verbs/ibv/received.h"
#include "verbs/ibv/sends.h"

namespace sdp::ibv {

class LinkReader final : public verbs::Pollable {
 public:
  // All references outlive this. `device`: the device's name.
  LinkReader(Resources& resources, const std::string& device, Arming& arming, Ending& ending,
             Completed& completed, Received& received, Sends& sends, verbs::QpCounters& counters);

  // Like QueuePair::ReadLink. Arms both queues if it finds nothing.
  verbs::ReadStatus ReadLink();

  verbs::ReadStatus PollLink(PollFor /*wanted*/) override;
  verbs::ReadStatus ReadForSolicited() override;
  [[nodiscard]] bool may_sleep() override;
  [[nodiscard]] bool has_untold() const override;

 private:
  verbs::ReadStatus Read(Awaited awaited);
  bool TakeCompleted();
  // Takes everything that event_fd() may be readable for. Returns true if an event concerned the connection
  // itself, not its completions.
  bool TakeEvents();
  // Takes the events of the connection manager and the device, whose descriptors are readable until then.
  bool TakeConnectionEvents(const Resources::Woken& woken);
  void HandleCmEvent(const rdma_cm_event& event);
  // Delivers everything that came before an end.
  void TakeAll();
  verbs::ReadStatus Finish(bool progress);

  Resources& resources_;
  const std::string& device_;
  Arming& arming_;
  Ending& ending_;
  Completed& completed_;
  Received& received_;
  Sends& sends_;
  verbs::QpCounters& counters_;
  uint32_t idle_polls_ = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_LINK_READER_H_
