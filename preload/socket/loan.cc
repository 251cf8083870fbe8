#include "preload/socket/loan.h"

#include <cstring>
#include <new>
#include <utility>

namespace sdp::preload {

bool Loan::Lend(Session& session, MutableBytes memory, bool advertise) {
  if (!free()) return false;
  verbs::Access access = verbs::Access::kLocal;
  if (kind_ == Kind::kSource) access = verbs::Access::kRemoteRead;
  if (kind_ == Kind::kSink && advertise) access = verbs::Access::kRemoteWrite;
  const auto region = session.queue_pair().Register(memory, access);
  if (!region) return false;
  engine::Engine& e = session.engine();
  const bool taken =
      kind_ == Kind::kSource
          ? e.OfferSource({.data = memory, .stag = region->stag, .va = region->base_to})
          : e.OfferSink(
                {.data = memory, .stag = region->stag, .va = region->base_to, .advertise = advertise});
  if (!taken) {
    session.queue_pair().Deregister(region->stag);
    return false;
  }
  stag_ = region->stag;
  memory_ = memory;
  revoked_ = false;
  state_ = State::kLent;
  return true;
}

void Loan::Revoke(Session& session) {
  if (!lent()) return;
  revoked_ = true;
  if (kind_ == Kind::kSource) {
    session.engine().RevokeSource();
  } else {
    session.engine().RevokeSink();
  }
}

bool Loan::Keep(Session& session) {
  if (!lent()) return false;
  const bool promised = kind_ == Kind::kSource ? !revoked_ && session.engine().source_promised()
                                               : session.engine().sink_promised();
  if (!promised) return false;
  std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[memory_.size()]);
  if (copy == nullptr) return false;
  std::memcpy(copy.get(), memory_.data(), memory_.size());
  const MutableBytes place(copy.get(), memory_.size());
  verbs::MovableRegions* const regions = session.queue_pair().movable_regions();
  if (regions == nullptr || !regions->MoveRegion(stag_, place)) return false;
  if (kind_ == Kind::kSource) {
    session.engine().MoveSource(place);
    bytes_ = memory_.size();
  } else {
    bytes_ = session.engine().MoveSink(place);
  }
  copy_ = std::move(copy);
  state_ = State::kKept;
  return true;
}

void Loan::Withdraw(Session& session) {
  if (kind_ == Kind::kSink || (lent() && !Keep(session))) return Revoke(session);
  if (state_ == State::kKept) session.engine().RevokeSource();
}

bool Loan::Collect(Session& session) {
  if (!offered()) return false;
  engine::Engine& e = session.engine();
  const auto result = kind_ == Kind::kSource ? e.TakeSourceResult() : e.TakeSinkResult();
  if (!result) return false;
  if (!result->invalidated) session.queue_pair().Deregister(stag_);
  if (state_ == State::kKept) {
    copy_.reset();
    state_ = State::kFree;
    return true;
  }
  state_ = State::kBack;
  bytes_ = result->bytes;
  return true;
}

void Loan::Drop() {
  if (lent()) state_ = State::kBack;
  if (state_ == State::kKept) state_ = State::kFree;
  copy_.reset();
}

void Loan::Forget(bool call_goes_on) {
  state_ = State::kFree;
  copy_.reset();
  if (!call_goes_on) bytes_ = 0;
}

uint64_t Loan::TakeResult() {
  if (state_ == State::kBack) state_ = State::kFree;
  return std::exchange(bytes_, 0);
}

}  // namespace sdp::preload
