// Which of a connection's two completion queues are armed, and whether the completion channel still holds an
// event to take. The lock of the connection's owner guards this object.
//
// A device reports one completion each time that a queue is armed. A caller arms the queue before it sleeps
// and polls it once more, because no event reports earlier completions.
#ifndef SDP_VERBS_IBV_ARMING_H_
#define SDP_VERBS_IBV_ARMING_H_

#include <cstdint>

#include "verbs/ibv/ibv_resources.h"

namespace sdp::ibv {

// Which receives an armed queue reports.
enum class Awaited : uint8_t { kAll, kSolicited };

class Arming {
 public:
  // `resources` has completion queues and outlives this.
  explicit Arming(const Resources& resources) : resources_(resources) {}

  void ArmReceives(Awaited awaited);
  void ArmSends();

  // Note that completions were taken from a queue. If the queue is armed for them, its event comes soon.
  void NoteReceives() { event_due_ |= receives_armed_ && !for_solicited_; }
  void NoteSends() { event_due_ |= sends_armed_; }
  // Returns true if such an event is to be taken: it would end the next sleep.
  [[nodiscard]] bool event_due() const { return event_due_; }
  // Takes the events that are there, at most one for each armed queue, which is then no longer armed. Returns
  // the number of system calls.
  uint32_t TakeEvents();

  // Return true if the queue was armed and its event was not taken.
  [[nodiscard]] bool sends_armed() const { return sends_armed_; }
  [[nodiscard]] bool armed_for_all_receives() const { return receives_armed_ && !for_solicited_; }
  // Returns true if the receives' queue was asked to report solicited Sends only. Because of an earlier
  // request the device may report all.
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
