// Socket Duplication and Managed Failover (SDP 13) in the engine: In-Process transfers end before a
// suspension, and Resume() turns the engine into one before set-up. Suspension keeps the protocol's phases.
#include <algorithm>
#include <memory>

#include "core/base/check.h"
#include "core/engine/engine.h"
#include "core/engine/rep.h"

namespace sdp::engine {
namespace {

// The most messages that the peer may still send after our SuspComm, with no more credit to come:
// RdmaRdCompl, RdmaWrCompl and SuspCommAck, none of which may use its last credit (10.5).
constexpr uint32_t kCreditsToSuspend = 4;
constexpr uint32_t kInitialCredits = 3;  // 10.3

}  // namespace

// 13.1.1, 2: returns true if everything that must precede our SuspComm is over.
bool Rep::suspend_possible() const {
  return established && suspension.ask_due() && !teardown.aborted() && !teardown.over() && !hello_ack_due &&
         !source.has_staged() && nothing_in_process() && credit.may_send_control();
}

void Rep::MakeRoomToSuspend() {
  const uint32_t gain = credit.gain();
  if (gain >= kCreditsToSuspend) return;
  const uint32_t more = std::min(kCreditsToSuspend - gain, 65535 - credit.posted());
  credit.Post(more);
  receives_to_post += more;
}

// Completes what is In-Process, and composes nothing else, because the peer grants no more credit.
bool Rep::PollSuspCommAck(PostSend* post) {
  if (!credit.may_send_control()) return false;
  if (!suspension.only_answer() && PollCompletion(post)) return true;
  if (!nothing_in_process()) return false;
  // 13.1.1, 3: no message follows it. Advertisements lapse.
  LapseOffers();
  Compose(wire::SuspCommAck{}, MessageKind::kControl, 0, post);
  post->signaled = true;
  suspension.AnswerTaken(post->id);
  return true;
}

void Rep::Resume(uint16_t ird, uint16_t new_ord) {
  role = suspension.next_role();
  options.ird = std::max<uint16_t>(ird, 1);
  options.ord = std::max<uint16_t>(new_ord, 1);
  hello_done = established = false;
  peer_buffer_size = 0;
  peer_max_adverts = 0;
  ord = options.ord;
  minor_version = 0;
  // 13: no advertisement is outstanding. 13.1.1, 6: the Hello initializes the connection's own state.
  credit = CreditLedger(role);
  credit.SetPosted(std::max(sink.PostedTarget(), kInitialCredits));
  modes = {};
  std::destroy_at(&adverts);  // GCC 12 sees uninitialized memory in the assignment
  std::construct_at(&adverts, options.max_adverts, options.read_zcopy);
  source_offer = {};
  sink_offer = {};
  resizing = BufferResizing(options.receive_buffer_size);
  enlargement = {};
  teardown.Resume();
  suspension.Resume();
  if (suspension.ask_due()) adverts.Settle();
}

// --- the façade's part

bool Engine::Suspend(uint16_t port) {
  Rep& r = *rep_;
  if (!r.open() || r.teardown.aborted() || r.teardown.over() || !r.teardown.link_up() ||
      r.suspension.asked()) {
    return false;
  }
  r.Begin();
  r.suspension.Ask(port);
  if (r.suspension.ask_due()) r.adverts.Settle();
  r.End();
  return true;
}

bool Engine::suspended() const { return rep_->suspension.complete() && !rep_->teardown.aborted(); }
std::optional<uint16_t> Engine::suspended_port() const { return rep_->suspension.port(); }

bool Engine::Resume(uint16_t ird, uint16_t ord) {
  if (!suspended() || rep_->teardown.link_up() || !freezable()) return false;
  // Lent memory stays with the old connection.
  auto copy = Thaw(Freeze());
  SDP_CHECK(copy.has_value());
  *this = std::move(*copy);
  rep_->Resume(ird, ord);
  rep_->End();
  return true;
}

}  // namespace sdp::engine
