// Which of a connection's two completion queues will tell of their next completion, and whose event is still
// to be taken from the completion channel.
//
// A device tells of one completion for each time that a queue was armed. A caller arms before it sleeps and
// looks at the queue once more, because no event tells of what completed before.
#ifndef SDP_VERBS_IBV_ARMING_H_
#define SDP_VERBS_IBV_ARMING_H_

#include <cstdint>

#include "verbs/ibv/ibv_resources.h"

namespace sdp::ibv {

// Which receives an armed queue tells of.
enum class Awaited : uint8_t { kAll, kSolicited };

class Arming {
 public:
  // `resources` has completion queues and outlives this.
  explicit Arming(const Resources& resources) : resources_(resources) {}

  void ArmReceives(Awaited awaited);
  void ArmSends();

  // Completions were taken from a queue. If it is armed for them, its event is there, or will be soon.
  void NoteReceives() { event_due_ |= receives_armed_ && !for_solicited_; }
  void NoteSends() { event_due_ |= sends_armed_; }
  // Such an event is to be taken: it would end the next sleep.
  [[nodiscard]] bool event_due() const { return event_due_; }
  // Takes the events that are there, one at most for each armed queue, which is armed no longer then. Returns
  // the number of system calls.
  uint32_t TakeEvents();

  // The queue was armed, and its event was not taken.
  [[nodiscard]] bool sends_armed() const { return sends_armed_; }
  [[nodiscard]] bool armed_for_all_receives() const { return receives_armed_ && !for_solicited_; }
  // The receives' queue was asked to tell of solicited Sends only. The device may tell of all because of an
  // earlier request.
  [[nodiscard]] bool armed_for_solicited() const { return for_solicited_; }

 private:
  const Resources& resources_;
  bool sends_armed_ = false;
  bool receives_armed_ = false;
  bool for_solicited_ = false;
  bool event_due_ = false;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_ARMING_H_
