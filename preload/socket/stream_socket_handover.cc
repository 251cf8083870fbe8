// A socket that goes to another program: as the one that gives it, and as the one that has it from there.
#include <time.h>

#include "preload/fd_table.h"
#include "preload/log.h"
#include "preload/process_life.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/guests.h"
#include "preload/socket/handover.h"
#include "preload/socket/owner_signal.h"
#include "preload/socket/stream_socket.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

// Of a peer that makes no call nothing comes back; whoever is passed a connection then waits for it.
constexpr Duration kPatienceForPeer = std::chrono::seconds(1);

}  // namespace

void StreamSocket::SettleToGive() {
  const Time deadline = Now() + kPatienceForPeer;
  EndLinkRead(deadline);
  Lock lock(mutex_);
  const auto waits = [this] {
    return shareable() && !foreign() && !numbers_.none() && !session_->link_ended() && !session_->freezable();
  };
  if (!waits()) return;
  WithdrawLoans();
  session_->Pump();
  AfterProgress();
  while (waits() && Now() < deadline) WaitForChange(lock, numbers_.any(), deadline, Signals::kRestart);
}

// With own() locked, which is free while it waits. The connection has another holder, so that it stays shared
// meanwhile.
bool StreamSocket::ComeToRest(Time deadline) {
  WithdrawLoans();
  while (Now() < deadline && !session_->link_ended()) {
    session_->ReadAvailable();
    CollectLoans();
    LeadMove();
    if (session_->freezable()) return true;
    share_.with->Keep();  // what the others have of it is old
    share_.with->Unlock();
    mutex_.own().unlock();
    Pause(std::chrono::milliseconds(1));
    mutex_.own().lock();
    if (share_.with == nullptr) return false;
    const SharedConnection::View view = share_.with->Lock();
    // Another process has used it meanwhile: what it left is the newest.
    if (view == SharedConnection::View::kStale ? !ThawShared() : view != SharedConnection::View::kCurrent)
      return false;
  }
  if (session_->freezable()) return true;
  share_.with->Keep();
  return false;
}

// With own() locked, which is free while it waits for a process that keeps the connection to itself.
// `brings`: a thread of this one sleeps in the link's read, and what it may bring goes nowhere without the
// state.
SharedConnection::View StreamSocket::LockToGive(bool brings, Time deadline) {
  for (;;) {
    if (share_.with == nullptr)
      return SharedConnection::View::kBroken;  // another thread was the last holder meanwhile, or has closed
                                               // it
    const SharedConnection::View view = share_.with->Lock();
    if (view != SharedConnection::View::kElsewhere || !brings || Now() >= deadline) return view;
    share_.with->Unlock();
    mutex_.own().unlock();
    Pause(std::chrono::milliseconds(1));
    mutex_.own().lock();
  }
}

bool StreamSocket::GiveConnection(Giver giver, Guests& guests, Handover::Connection* out) {
  if (!shareable()) return false;
  corked_.Push(*session_);
  if (giver == Giver::kStays) SettleLoans(Time{});
  if (share_.with == nullptr && !StartSharing()) return false;
  const Guests::Guest* const guest = guests.Of(&share_.with->arena());
  const bool wakes_reader = giver == Giver::kGoes && session_->being_read();
  SharedConnection::View view = LockToGive(wakes_reader, guests.patience_ends());
  if (share_.with == nullptr) return false;
  if (wakes_reader && view == SharedConnection::View::kStale && ThawShared())
    view = SharedConnection::View::kCurrent;
  bool good = guest != nullptr && share_.with->Add(guest->member);
  if (good && view == SharedConnection::View::kCurrent) {
    session_->Pump();
    good = (session_->freezable() || (giver == Giver::kGoes && ComeToRest(guests.patience_ends()))) &&
           FreezeShared();
    if (!good && giver == Giver::kStays) {
      good = true;
      share_.with->Keep();  // until what asks for it back has had its answer, for which somebody has to look
      LeaveToBackground();
    }
  } else {
    // The newest state is there; or its owner leaves it when he can.
    good = good && (view == SharedConnection::View::kStale ||
                    (view == SharedConnection::View::kElsewhere && !wakes_reader));
  }
  if (good) {
    if (share_.with->locked() && guest->watched >= 0) share_.with->Await(guest->member, guest->watched);
    out->arena = guest->number;
    out->number = share_.with->number();
    out->front = FreezeFront();
  }
  if (share_.with != nullptr && share_.with->locked()) {
    if (!good && guest != nullptr) share_.with->Remove(guest->member);
    share_.with->Unlock();
  }
  return good;
}

void StreamSocket::HandOver(uint64_t inode, Giver giver, Guests& guests, Handover* out, HandoverFds* fds) {
  const auto kind = family_.native               ? Handover::Kind::kNative
                    : family_.domain == AF_INET6 ? Handover::Kind::kV6
                                                 : Handover::Kind::kV4;
  switch (state_.load()) {
    case State::kSdp: {
      Handover::Connection connection{.inode = inode, .kind = kind};
      connection.whole = GiveConnection(giver, guests, &connection);
      if (connection.whole && session_->memory_fd() >= 0) {
        connection.has_memory = true;
        fds->memories.push_back(session_->memory_fd());
      }
      if (!connection.whole)
        SDP_LOG(kError, "connection with %s cannot go to another program",
                ToEndpoint(names_.peer).ToString().c_str());
      out->connections.push_back(connection);
      return;
    }
    case State::kListening: {
      Handover::Listener listener;
      listener.inode = inode;
      listener.kind = kind;
      listener.nonblocking = numbers_.IsNonblocking(numbers_.any());
      listener.forced_nonblocking = numbers_.forced();
      listener.plain_clients_allowed = listening_.plain_clients_allowed;
      listener.options = options_.kept;
      if (listening_.listener->HandOver(&listener, &fds->listeners)) out->listeners.push_back(listener);
      return;
    }
    case State::kNew:
      out->fresh.push_back({.inode = inode, .kind = kind, .options = options_.kept});
      if (giver == Giver::kStays) share_.co_holders = CoHolders::kByAnyNumber;
      return;
    case State::kConnecting:
    case State::kPlain:
    case State::kClosed:
      return;
  }
}

bool StreamSocket::IsShared() {
  std::lock_guard lock(mutex_);
  return share_.with != nullptr;
}

StreamSocket::StreamSocket(int domain, const std::vector<int>& descriptors,
                           std::unique_ptr<SharedConnection> shared)
    : StreamSocket(domain) {
  state_ = State::kSdp;
  numbers_.Add(descriptors);
  share_.with = std::move(shared);
}

bool StreamSocket::TakeUp(Bytes front) {
  NoteFirst();  // takes too long for the connection's lock
  std::lock_guard own(mutex_.own());
  mutex_.set_shared(true);
  const SharedConnection::View view = share_.with->Lock();
  const bool here =
      (view == SharedConnection::View::kStale || view == SharedConnection::View::kCurrent) && ThawShared();
  if (!here && (view != SharedConnection::View::kElsewhere || !ExpectShared(front))) {
    mutex_.set_shared(false);
    share_.with.reset();
    return false;
  }
  board_.SetHasOwner(HasOwner(numbers_.any()));
  ExpectSignals();
  if (!here) {
    share_.with->Unlock();
    return true;
  }
  share_.left_unsent = session_->has_unsent();
  if (!share_.with->HasOthers(/*sure=*/true)) {
    StopSharing();
    QuietLinks::Enter(&quiet_);
  } else {
    share_.with->Unlock();
  }
  LeaveToBackground();
  return true;
}

StreamSocket::StreamSocket(int domain, const std::vector<int>& descriptors, const KeptOptions& options)
    : StreamSocket(domain) {
  numbers_.Add(descriptors);
  options_.kept = options;
  share_.co_holders = CoHolders::kByAnyNumber;
}

bool StreamSocket::TakeUpListening(const Handover::Listener& from, const Handover::ListenerFds& fds) {
  Lock lock(mutex_);
  const int fd = numbers_.any();
  names_.local = LocalAddress(fd);
  numbers_.SetNonblocking(from.nonblocking);
  numbers_.SetForced(from.forced_nonblocking);
  listening_.plain_clients_allowed = from.plain_clients_allowed;
  listening_.listener = Listener::TakeUp(this, from, fds);
  if (listening_.listener == nullptr) return false;
  board_.SetHasOwner(HasOwner(fd));
  EnterListening(fd);
  return true;
}

}  // namespace sdp::preload
