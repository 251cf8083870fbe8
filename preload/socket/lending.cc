#include "preload/socket/lending.h"

namespace sdp::preload {

bool Lending::Collect(Session& session) {
  const bool source = source_.loan.Collect(session);
  const bool sink = sink_.loan.Collect(session);
  return source || sink;
}

void Lending::AskBack(Session& session) {
  if (!source_.loan.Keep(session)) source_.loan.Revoke(session);
  sink_.loan.Revoke(session);
}

void Lending::Withdraw(Session& session) {
  source_.loan.Withdraw(session);
  sink_.loan.Withdraw(session);
}

void Lending::Drop() {
  source_.loan.Drop();
  sink_.loan.Drop();
}

void Lending::ForgetInChild() {
  for (Side* const side : {&source_, &sink_}) {
    const bool call_goes_on = side->lender.IsCaller();
    side->loan.Forget(call_goes_on);
    if (!call_goes_on) side->lender.Clear();
  }
}

}  // namespace sdp::preload
