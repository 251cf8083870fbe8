// Connect of a StreamSocket, in the caller's thread and left to the helper.
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>

#include "preload/config.h"
#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/lasting.h"
#include "preload/log.h"
#include "preload/native_family.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/connector.h"
#include "preload/socket/core_watch.h"
#include "preload/socket/departure.h"
#include "preload/socket/holders.h"
#include "preload/socket/link_names.h"
#include "preload/socket/looks.h"
#include "preload/socket/poll_budget.h"
#include "preload/socket/restart.h"
#include "preload/socket/server.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// How long connects of this process look for what they wait for, before they sleep. On one host the accepting
// end answers sooner than a thread that sleeps would wake up.
struct ConnectLooks {
  Mutex mutex;  // never waited for: fork may leave it locked in the child
  PollBudget budget{config().poll};
};
ConnectLooks& connect_looks() { return Lasting<ConnectLooks>(); }

// poll() of two links. `restarts`: as a connect without a time-out does after a signal handler.
int LookThenPoll(pollfd* links, Time until, bool restarts) {
  const auto poll = [&] { return restarts ? PollRestarting(links, 2, until) : PollOnce(links, 2, until); };
  std::unique_lock lock(connect_looks().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return poll();
  PollBudget& budget = connect_looks().budget;
  const Time began = Now();
  const Time end = std::min(until, began + budget.Next());
  const HandlerWatch handlers;
  CoreWatch core;
  while (Now() < end) {
    for (int i = 0; i < CoreWatch::kLooksPerOffer; ++i) {
      const int ready = real.poll(links, 2, 0);
      if (ready == 0) continue;
      budget.NoteFound();
      return ready;
    }
    if (handlers.Interrupts(restarts)) return Fail(EINTR);
    if (!core.OfferedAndTaken()) continue;
    budget.NoteCrowded();
    break;
  }
  lock.unlock();
  const int result = poll();
  const int error = errno;
  if (lock.try_lock()) budget.NoteSlept(Now() - began);
  errno = error;
  return result;
}

// As the kernel takes 0.0.0.0, [::ffff:0.0.0.0] and [::]: this host, by the address that the socket is bound
// to, if it is; for [::] that tells no more than which loopback address.
Address Destination(int fd, Address address) {
  if (address.family() == AF_INET) {
    in_addr& host = reinterpret_cast<sockaddr_in&>(address.storage).sin_addr;
    if (host.s_addr != INADDR_ANY) return address;
    const Address local = LocalAddress(fd);
    if (local.family() == AF_INET) host = reinterpret_cast<const sockaddr_in&>(local.storage).sin_addr;
    if (host.s_addr == INADDR_ANY) host.s_addr = htonl(INADDR_LOOPBACK);
  } else if (address.family() == AF_INET6) {
    in6_addr& host = address.storage.sin6_addr;
    const bool any_v4 = IN6_IS_ADDR_V4MAPPED(&host) && host.s6_addr32[3] == INADDR_ANY;
    if (!any_v4 && !IN6_IS_ADDR_UNSPECIFIED(&host)) return address;
    const Address local = LocalAddress(fd);
    const in6_addr own = local.family() == AF_INET6 ? local.storage.sin6_addr : in6addr_any;
    const bool own_is_v4 = IN6_IS_ADDR_V4MAPPED(&own);
    if (!any_v4 && !own_is_v4) {
      host = in6addr_loopback;
      return address;
    }
    host.s6_addr32[2] = htonl(0xffff);
    host.s6_addr32[3] =
        any_v4 && own_is_v4 && own.s6_addr32[3] != INADDR_ANY ? own.s6_addr32[3] : htonl(INADDR_LOOPBACK);
  }
  return address;
}

}  // namespace

int StreamSocket::Connect(int fd, const sockaddr* address, socklen_t length) {
  const PlainAddress plain(address, length);
  if (family_.native) {
    address = plain.get();
    length = plain.length();
  }
  Lock lock = Holders(*this).LockWithOwner();
  numbers_.AddUnlessKnown(fd);
  if (address != nullptr && length >= sizeof(sa_family_t) && address->sa_family == AF_UNSPEC)
    return Connector(*this).Disconnect(fd);
  switch (state_.load()) {
    case State::kListening:
      (void)Server(*this).WasShutDown();
      return kPassThrough;
    case State::kPlain:
      return kPassThrough;
    case State::kClosed:  // by another thread; the number may be another file's
      return Fail(EBADF);
    case State::kConnecting:
      return Connector(*this).JoinConnect(lock, fd);
    case State::kSdp:
      return Connector(*this).ReportConnected(fd);
    case State::kNew:
      break;
  }
  if (tcp_.connect_failed || (tcp_.pending_error != 0 && !tcp_.error_outlived))
    return Connector(*this).FailAgain(fd);
  const bool internet =
      address != nullptr && ((address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) ||
                             (address->sa_family == AF_INET6 && length >= 24));
  const bool of_another = internet && !family_.native && address->sa_family != family_.domain;
  if (!internet || of_another) return kPassThrough;  // the kernel has the right error
  if (tcp_.error_outlived) tcp_.TakeError();         // no call has asked for it, and TCP forgets it here
  if (Confined()) {                                  // it had another peer before
    if (family_.native) return Fail(ECONNREFUSED);
    BecomePlain(fd, stats::FallbackReason::kCount, {});
    return kPassThrough;
  }
  RefreshConfig();
  if (IsCommon(fd) && DecideSocket(RuleRole::kClient, address, length).mode == Mode::kBoth) {
    BecomePlain(fd, stats::FallbackReason::kSocketOption, kCommon);
    return kPassThrough;
  }
  if (family_.domain == AF_INET6 && !options_.v6only)
    options_.v6only = IntOption(fd, IPPROTO_IPV6, IPV6_V6ONLY);
  try {
    connecting_.attempt = std::make_unique<ConnectAttempt>(
        fd, family_.asked(), Destination(fd, MakeAddress(address, length)), &options_.kept);
  } catch (const std::bad_alloc&) {
    if (family_.native) return Fail(ENOMEM);
    BecomePlain(fd, stats::FallbackReason::kResources, "out of memory");
    return kPassThrough;
  }
  ++use_.calls;
  connecting_.fork_gave_up = false;
  int result;
  try {
    result = Connector(*this).ConnectInline(lock, fd);
  } catch (const std::bad_alloc&) {
    if (!lock.owns_lock()) lock.lock();
    if (state_ != State::kConnecting) throw;
    Connector(*this).Disconnect(fd);
    return Fail(ENOMEM);
  }
  if (result == 0) tcp_.connect_reported = true;
  return result;
}

// A blocking connect runs in the caller's thread; a non-blocking one that cannot be finished at once is left
// to the helper.
int StreamSocket::Connector::ConnectInline(Lock& lock, int fd) {
  const bool nonblocking = s_.numbers_.IsNonblocking(fd);
  const Time deadline =
      s_.options_.kept.send_timeout() == Duration::zero() ? kNever : Now() + s_.options_.kept.send_timeout();
  // With the lock dropped; what was begun goes on also if the thread is cancelled in its sleep.
  struct Unlocked {
    StreamSocket* socket;
    Lock& lock;
    bool returned = false;
    Unlocked(StreamSocket* s, Lock& l) : socket(s), lock(l) { lock.unlock(); }
    ~Unlocked() {
      lock.lock();
      if (!returned && socket->state_ == State::kConnecting) Connector(*socket).LeaveConnect();
    }
  };
  s_.state_ = State::kConnecting;  // for other threads' calls, whenever the lock is free
  s_.connecting_.in_call = true;
  bool self_answered = false;
  for (;;) {
    ConnectAttempt::Outcome outcome = LeadAttempt(fd, Now());
    const bool pending = outcome == ConnectAttempt::Outcome::kPending;
    if (pending && !self_answered && s_.connecting_.attempt->sdp_address().length != 0) {
      self_answered = true;
      const Address sdp_address = s_.connecting_.attempt->sdp_address();
      lock.unlock();
      Listener::AnswerConnectTo(sdp_address);
      lock.lock();
      if (s_.state_ != State::kConnecting) return FailTaken();
    }
    if (pending && nonblocking) {
      if (LeaveConnect()) return Fail(EINPROGRESS);
      // Its connect to the SDP address may be under way already.
      outcome = s_.connecting_.attempt->ForgoSdp(stats::FallbackReason::kResources,
                                                 "no thread to go on with the connect");
    }
    if (outcome != ConnectAttempt::Outcome::kPending) {
      const int result = FinishConnect(fd, outcome);
      const int error = errno;
      if (outcome == ConnectAttempt::Outcome::kFailed) Unconnect(fd);
      s_.board_.WakeAll();
      errno = error;
      return result;
    }
    const Background::Wait wait = s_.connecting_.attempt->wait();
    pollfd links[2] = {{.fd = wait.fd, .events = wait.events, .revents = 0},
                       {.fd = wait.also_fd, .events = POLLOUT, .revents = 0}};
    int result;
    int error;
    {
      Unlocked unlocked(&s_, lock);
      result = LookThenPoll(links, std::min(wait.deadline, deadline), /*restarts=*/deadline == kNever);
      error = errno;
      unlocked.returned = true;
    }
    if (s_.state_ != State::kConnecting) return FailTaken();
    if ((result < 0 && error == EINTR) || (result == 0 && Now() >= deadline)) {
      // As TCP's: the connect goes on by itself, and the next one reports how it went.
      LeaveConnect();
      return Fail(result < 0 ? EINTR : EINPROGRESS);
    }
  }
}

int StreamSocket::Connector::JoinConnect(Lock& lock, int fd) {
  if (s_.numbers_.IsNonblocking(fd)) return Fail(EALREADY);
  if (const int error = AwaitConnect(lock, s_.options_.kept.send_timeout()); error != 0)
    return Fail(error == EAGAIN ? EALREADY : error);
  if (s_.state_ == State::kSdp) return ReportConnected(fd);
  if (s_.state_ == State::kPlain) return kPassThrough;
  if (s_.state_ == State::kClosed) return Fail(EBADF);
  return FailAgain(fd);
}

// As on TCP: the next connect behind one that has failed tells of that, and the one after it may succeed.
int StreamSocket::Connector::FailAgain(int fd) {
  if (std::exchange(s_.tcp_.connect_failed, false)) Unconnect(fd);
  return Fail(s_.tcp_.pending_error != 0 ? s_.tcp_.TakeError() : ECONNABORTED);
}

// Another thread has closed the socket, or shut it down, under a connect.
int StreamSocket::Connector::FailTaken() {
  return Fail(s_.state_ == State::kNew && s_.tcp_.pending_error != 0 ? s_.tcp_.TakeError() : EBADF);
}

// As TCP does in SYN_SENT, whatever of it is to be shut down.
int StreamSocket::Connector::ShutDownConnect(int fd) {
  Disconnect(fd);
  s_.tcp_.pending_error = ECONNRESET;
  s_.tcp_.error_outlived = false;
  return 0;
}

// As on TCP: the first connect that finds the connection there succeeds, or tells what has become of it
// meanwhile.
int StreamSocket::Connector::ReportConnected(int fd) {
  if (s_.tcp_.connect_reported) return Fail(EISCONN);
  Looks(s_).Look();
  // Closed by the peer is CLOSE_WAIT on TCP: connected, with all that has come.
  if (!s_.foreign() && s_.engine().state() == engine::State::kAborted &&
      !PeerLeftInOrder(s_.engine(), s_.session_->cause())) {
    const int error = s_.tcp_.pending_error != 0 ? s_.tcp_.TakeError() : ECONNABORTED;
    Disconnect(fd);
    return Fail(error);
  }
  s_.tcp_.connect_reported = true;
  return 0;
}

int StreamSocket::Connector::FinishConnect(int fd, ConnectAttempt::Outcome outcome) {
  try {
    return TakeOutcome(fd, outcome);
  } catch (const std::bad_alloc&) {
    if (s_.session_ != nullptr) {
      s_.board_.Outlive(s_.engine());
      Departure(s_).DropSession();
      s_.names_.peer = {};
    }
    s_.connecting_.attempt.reset();
    s_.state_ = State::kNew;
    Unconnect(fd);
    return Fail(ENOMEM);
  }
}

int StreamSocket::Connector::FailAttempt(int fd, int error) {
  RecordFallback(fd, s_.connecting_.attempt->reason(), s_.connecting_.attempt->reason_text(),
                 s_.connecting_.attempt->target(), stats::State::kFailed);
  s_.connecting_.attempt.reset();
  s_.state_ = State::kNew;
  return Fail(error);
}

int StreamSocket::Connector::TakeOutcome(int fd, ConnectAttempt::Outcome outcome) {
  switch (outcome) {
    case ConnectAttempt::Outcome::kPending:
      break;
    case ConnectAttempt::Outcome::kSdp: {
      s_.names_.sdp_peer = s_.connecting_.attempt->sdp_address();
      const Address peer = s_.connecting_.attempt->target();
      auto session = s_.connecting_.attempt->TakeSession();
      s_.connecting_.attempt.reset();
      SDP_LOG(kInfo, "connect to %s: SDP at %s", ToEndpoint(peer).ToString().c_str(),
              ToEndpoint(s_.names_.sdp_peer).ToString().c_str());
      const Address own = NamesOf(*session).local;
      const Address local =
          own.length != 0 ? ToAddress(ToEndpoint(own), s_.family_.domain, 0) : LocalAddress(fd);
      s_.EnterSdp(std::move(session), local, peer, stats::Role::kConnecting);
      return 0;
    }
    case ConnectAttempt::Outcome::kConventional:
    case ConnectAttempt::Outcome::kPlain: {
      // kPassThrough: the caller's thread may sleep in the connect, without the lock.
      int result = outcome == ConnectAttempt::Outcome::kPlain ? 0 : static_cast<int>(kPassThrough);
      if (result != 0 && (!s_.connecting_.in_call || s_.numbers_.IsNonblocking(fd))) {
        // Connecting before the kernel answers for it: of a socket that is not, epoll would report a hang-up.
        s_.options_.kept.Apply(fd);
        result = ConnectWithoutBlocking(fd, s_.connecting_.attempt->target());
        // connect() has returned. So the library keeps the error for the next call, and keeps the socket.
        if (result != 0 && errno != EINPROGRESS && !s_.connecting_.in_call) return FailAttempt(fd, errno);
      }
      const KeepErrno keep;
      s_.BecomePlain(fd, s_.connecting_.attempt->reason(), s_.connecting_.attempt->reason_text());
      s_.connecting_.attempt.reset();
      return result;
    }
    case ConnectAttempt::Outcome::kFailed:
      return FailAttempt(fd, s_.connecting_.attempt->error());
  }
  return Fail(EINPROGRESS);
}

}  // namespace sdp::preload
