#include "preload/socket/poll_budget.h"

#include <algorithm>

namespace sdp::preload {
namespace {

// A budget of less than this part of the most is none, and the first that is earned.
constexpr int kSmallestPart = 8;

}  // namespace

void PollBudget::NoteSlept(Duration lasted) {
  NoteWaited(lasted);
  if (lasted <= 2 * most_) Grow();
}

// A short one says nothing of this connection.
void PollBudget::NoteWaited(Duration lasted) {
  if (crowd_ > 0) --crowd_;
  if (lasted <= 2 * most_) return;
  budget_ /= 2;
  if (budget_ < most_ / kSmallestPart) budget_ = Duration::zero();
}

void PollBudget::Grow() { budget_ = std::clamp(2 * budget_, most_ / kSmallestPart, most_); }

}  // namespace sdp::preload
