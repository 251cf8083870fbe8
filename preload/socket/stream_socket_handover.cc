// A socket that goes to another program: as the one that gives it, and as the one that has it from there.
#include "preload/log.h"
#include "preload/process_life.h"
#include "preload/socket/clock.h"
#include "preload/socket/forking.h"
#include "preload/socket/giving.h"
#include "preload/socket/guests.h"
#include "preload/socket/handover.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/owner_signal.h"
#include "preload/socket/server.h"
#include "preload/socket/session_transfer.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"
#include "preload/unbounded_poll.h"
#include "preload/unwind.h"

namespace sdp::preload {
namespace {

// Of a peer that makes no call nothing comes back; whoever is passed a connection then waits for it.
constexpr Duration kPatienceForPeer = std::chrono::seconds(1);

}  // namespace

void StreamSocket::Giving::SettleToGive() {
  const Time deadline = Now() + kPatienceForPeer;
  Lock lock(s_.mutex_);
  const auto waits = [this] {
    return s_.shareable() && !s_.foreign() && !s_.numbers_.none() && !s_.session_->link_ended() &&
           !s_.session_->transfer().freezable();
  };
  if (!waits()) return;
  Lender(s_).WithdrawLoans();
  s_.session_->Pump();
  s_.AfterProgress();
  while (waits() && Now() < deadline)
    Waiting(s_).WaitForChange(lock, s_.numbers_.any(), deadline, Signals::kRestart);
}

// With own() locked, which is free while it waits. The connection has another holder, so that it stays shared
// meanwhile.
bool StreamSocket::Giving::ComeToRest(Time deadline) {
  Lender(s_).WithdrawLoans();
  while (Now() < deadline && !s_.session_->link_ended()) {
    s_.session_->Read();
    Lender(s_).CollectLoans();
    s_.upkeep_.LeadMove();
    if (s_.session_->transfer().freezable()) return true;
    s_.share_.with->Keep();  // what the others have of it is old
    s_.share_.with->Unlock();
    s_.mutex_.own().unlock();
    Pause(std::chrono::milliseconds(1));
    s_.mutex_.own().lock();
    if (s_.share_.with == nullptr) return false;
    const SharedConnection::View view = s_.share_.with->Lock();
    // Another process has used it meanwhile: what it left is the newest.
    if (view == SharedConnection::View::kStale ? !Holders(s_).ThawShared()
                                               : view != SharedConnection::View::kCurrent)
      return false;
  }
  if (s_.session_->transfer().freezable()) return true;
  s_.share_.with->Keep();
  return false;
}

bool StreamSocket::Giving::GiveConnection(Giver giver, Guests& guests, Handover::Connection* out) {
  if (!s_.shareable()) return false;
  if (!s_.foreign()) s_.corked_.Push(*s_.session_);
  if (giver == Giver::kStays) Forking(s_).SettleLoans(Time{});
  if (s_.share_.with == nullptr && !Holders(s_).StartSharing()) return false;
  const Guests::Guest* const guest = guests.Of(&s_.share_.with->arena());
  const SharedConnection::View view = s_.share_.with->Lock();
  bool good = guest != nullptr && s_.share_.with->Add(guest->member);
  if (good && view == SharedConnection::View::kCurrent) {
    s_.session_->Pump();
    good = (s_.session_->transfer().freezable() ||
            (giver == Giver::kGoes && ComeToRest(guests.patience_ends()))) &&
           Holders(s_).FreezeShared();
    if (!good && giver == Giver::kStays) {
      good = true;
      // Until what asks for the memory back has had its answer. The helper looks for that.
      s_.share_.with->Keep();
      s_.upkeep_.LeaveToBackground();
    }
  } else {
    // The newest state is there; or its owner leaves it when he can.
    good = good && (view == SharedConnection::View::kStale || view == SharedConnection::View::kElsewhere);
  }
  if (good) {
    if (s_.share_.with->locked() && guest->watched >= 0) s_.share_.with->Await(guest->member, guest->watched);
    out->arena = guest->number;
    out->number = s_.share_.with->number();
    out->front = Holders(s_).FreezeFront();
  }
  if (s_.share_.with != nullptr && s_.share_.with->locked()) {
    if (!good && guest != nullptr) s_.share_.with->Remove(guest->member);
    s_.share_.with->Unlock();
  }
  return good;
}

void StreamSocket::Giving::HandOver(uint64_t inode, Giver giver, Guests& guests, Handover* out,
                                    HandoverFds* fds) {
  const auto kind = s_.family_.native               ? Handover::Kind::kNative
                    : s_.family_.domain == AF_INET6 ? Handover::Kind::kV6
                                                    : Handover::Kind::kV4;
  switch (s_.state_.load()) {
    case State::kSdp: {
      Handover::Connection connection{.inode = inode, .kind = kind};
      connection.whole = GiveConnection(giver, guests, &connection);
      if (connection.whole && s_.session_.last_known()->transfer().memory_fd() >= 0) {
        connection.has_memory = true;
        fds->memories.push_back(s_.session_.last_known()->transfer().memory_fd());
      }
      if (!connection.whole)
        SDP_LOG(kError, "connection with %s cannot go to another program",
                ToEndpoint(s_.names_.peer).ToString().c_str());
      out->connections.push_back(connection);
      return;
    }
    case State::kListening: {
      Handover::Listener listener;
      listener.inode = inode;
      listener.kind = kind;
      listener.nonblocking = s_.numbers_.IsNonblocking(s_.numbers_.any());
      listener.forced_nonblocking = s_.numbers_.forced();
      listener.plain_clients_allowed = s_.listening_.plain_clients_allowed;
      listener.options = s_.options_.kept;
      if (s_.listening_.listener->HandOver(&listener, &fds->listeners)) out->listeners.push_back(listener);
      return;
    }
    case State::kNew:
      out->fresh.push_back({.inode = inode, .kind = kind, .options = s_.options_.kept});
      if (giver == Giver::kStays) s_.share_.co_holders = CoHolders::kByAnyNumber;
      return;
    case State::kConnecting:
    case State::kPlain:
    case State::kClosed:
      return;
  }
}

bool StreamSocket::Giving::IsShared() {
  std::lock_guard lock(s_.mutex_);
  return s_.share_.with != nullptr;
}

StreamSocket::StreamSocket(int domain, const std::vector<int>& descriptors,
                           std::unique_ptr<SharedConnection> shared)
    : StreamSocket(domain) {
  state_ = State::kSdp;
  numbers_.Add(descriptors);
  share_.with = std::move(shared);
}

bool StreamSocket::Giving::TakeUp(Bytes front) {
  PrepareToThrow();  // takes too long for the connection's lock
  std::lock_guard own(s_.mutex_.own());
  s_.mutex_.set_shared(true);
  const SharedConnection::View view = s_.share_.with->Lock();
  const bool here = (view == SharedConnection::View::kStale || view == SharedConnection::View::kCurrent) &&
                    Holders(s_).ThawShared();
  if (!here && (view != SharedConnection::View::kElsewhere || !Holders(s_).ExpectShared(front))) {
    s_.mutex_.set_shared(false);
    s_.share_.with.reset();
    return false;
  }
  s_.board_.SetHasOwner(HasOwner(s_.numbers_.any()));
  ExpectSignals();
  if (!here) {
    s_.share_.with->Unlock();
    return true;
  }
  s_.share_.left_unsent = s_.session_->has_unsent();
  if (!s_.share_.with->HasOthers(/*sure=*/true)) {
    Holders(s_).StopSharing();
    QuietLinks::Enter(&s_.upkeep_);
  } else {
    s_.share_.with->Unlock();
  }
  s_.upkeep_.LeaveToBackground();
  return true;
}

StreamSocket::StreamSocket(int domain, const std::vector<int>& descriptors, const KeptOptions& options)
    : StreamSocket(domain) {
  numbers_.Add(descriptors);
  options_.Set(options);
  share_.co_holders = CoHolders::kByAnyNumber;
}

bool StreamSocket::Giving::TakeUpListening(const Handover::Listener& from, const Handover::ListenerFds& fds) {
  Lock lock(s_.mutex_);
  const int fd = s_.numbers_.any();
  s_.names_.local = LocalAddress(fd);
  s_.numbers_.SetNonblocking(from.nonblocking);
  s_.numbers_.SetForced(from.forced_nonblocking);
  s_.listening_.plain_clients_allowed = from.plain_clients_allowed;
  s_.listening_.listener = Listener::TakeUp(&s_, from, fds);
  if (s_.listening_.listener == nullptr) return false;
  s_.board_.SetHasOwner(HasOwner(fd));
  Server(s_).EnterListening(fd);
  return true;
}

}  // namespace sdp::preload
