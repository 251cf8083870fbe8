#include "preload/socket/aborted_link.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "preload/confinement.h"
#include "preload/link_calls.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// How long the peer has to end its side of the link, and how soon to look again.
constexpr Duration kPatienceForEnd = std::chrono::seconds(2);
constexpr Duration kLookForEnd = std::chrono::milliseconds(10);

}  // namespace

bool Session::AbortedLink::outlives() const {
  const bool aborted = s_.engine_->state() == engine::State::kAborted;
  if (!aborted || s_.reset_at_ == kNever || s_.moving() || s_.queue_pair_->device() != nullptr) return false;
  const verbs::LinkEnd end = s_.queue_pair_->cause().end;
  return end == verbs::LinkEnd::kOpen || end == verbs::LinkEnd::kTerminated;
}

Time Session::AbortedLink::End(Time now) {
  if (Confined()) return kNever;
  if (s_.reset_at_ == Time{}) s_.reset_at_ = now + kPatienceForEnd;
  s_.Pump();
  if (!outlives()) return kNever;
  const int link = s_.queue_pair_->event_fd();
  int unacknowledged = 0;
  char byte;
  // Our FIN counts as a byte.
  const bool heard = s_.queue_pair_->unsent_bytes() == 0 &&
                     (real.ioctl(link, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged <= 1);
  const bool answered = LinkRecv(link, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
  if (!(heard && answered) && now < s_.reset_at_) return now + kLookForEnd;
  s_.Abort();
  return s_.reset_at_ = kNever;
}

}  // namespace sdp::preload
