#include "preload/socket/lending.h"

namespace sdp::preload {

bool Lending::Collect(Session& session) {
  if (!any()) return false;
  const bool source = sides_->source.loan.Collect(session);
  const bool sink = sides_->sink.loan.Collect(session);
  return source || sink;
}

void Lending::AskBack(Session& session) {
  if (!any()) return;
  if (!sides_->source.loan.Keep(session)) sides_->source.loan.Revoke(session);
  sides_->sink.loan.Revoke(session);
}

void Lending::Withdraw(Session& session) {
  if (!any()) return;
  sides_->source.loan.Withdraw(session);
  sides_->sink.loan.Withdraw(session);
}

void Lending::Drop() {
  if (!any()) return;
  sides_->source.loan.Drop();
  sides_->sink.loan.Drop();
}

void Lending::ForgetInChild() {
  if (!any()) return;
  for (Side* const side : {&sides_->source, &sides_->sink}) {
    const bool call_goes_on = side->lender.IsCaller();
    side->loan.Forget(call_goes_on);
    if (!call_goes_on) side->lender.Clear();
  }
}

}  // namespace sdp::preload
