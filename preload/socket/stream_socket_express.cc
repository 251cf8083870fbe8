// The express way of a StreamSocket: usual Data, while nothing about the connection is unusual. Over a link
// that is memory it serves sends, receives and looks. Over any link it serves receives of what is left of a
// message, behind a receive that has begun it.
//
// A send, a receive or a look by the usual way asks some forty questions about rare states. When all answers
// are the usual ones, it opens the express way: the next calls ask none of them again. Whatever could change
// an answer takes the socket's lock, which closes the way (socket_mutex.h). What the peer does is in the
// link, where each call on the express way looks. A call that finds anything but usual Data there goes the
// usual way. So does one of every kExpressCalls, and a send or a fruitless receive a clock tick or some
// later: it finds a peer that has gone without a word.
#include <poll.h>
#include <sys/socket.h>

#include <optional>

#include "preload/fail.h"
#include "preload/socket/clock.h"
#include "preload/socket/express_way.h"
#include "preload/socket/looks.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/session_moves.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"
#include "preload/socket/watch.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

constexpr uint32_t kExpressCalls = 128;
// A larger send may be lent, or waits for room.
constexpr size_t kLargestExpress = 8 * 1024;
constexpr int kExpressFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
// About a microsecond or two: the answer of a peer that is awake.
constexpr int kLooksForSoon = 200;

}  // namespace

void StreamSocket::ExpressWay::Open(int inside) {
  if (!s_.usable()) return;
  const bool leftovers = s_.engine().readable_bytes() != 0;
  if (!leftovers && s_.queue_pair().direct() == nullptr) return;  // most sockets without a local link
  const bool connected = s_.share_.with == nullptr && !s_.session_->moves().stepped() && !s_.tcp_.abort_noted;
  const bool open = s_.tcp_.pending_error == 0 && !s_.tcp_.receive_shut && !s_.share_.locked_for_fork &&
                    !s_.lingering_.process_ends();
  const bool alone = s_.board_.unheard() && s_.calls_inside_.count() == inside && !s_.calls_inside_.kept() &&
                     s_.share_.reader_elsewhere_until == kNever;
  const bool unasked = s_.options_.kept.receive_low_water() <= 1 && !ForcesTransactions();
  if (!connected || !open || !alone || !unasked || !s_.upkeep_.publishes()) return;
  if (leftovers) return s_.mutex_.OpenExpress(kExpressCalls, Express::kLeftovers);
  const bool at_rest = s_.TakesDirect() && s_.session_->direct().plain() && !s_.tcp_.send_shut &&
                       s_.corked_.empty() && !s_.lending_.offered() && !s_.session_->has_unsent() &&
                       !s_.tcp_.has_queued_message() && !s_.board_.full() && s_.engine().writable();
  if (at_rest && !s_.options_.kept.cork() && s_.engine().source_threshold() >= kLargestExpress)
    s_.mutex_.OpenExpress(kExpressCalls);
}

std::optional<ssize_t> StreamSocket::ExpressWay::Send(const iovec& piece, int flags) {
  if ((flags & ~kExpressFlags) != 0 || piece.iov_len == 0 || piece.iov_len > kLargestExpress)
    return std::nullopt;
  ExpressLock lock(s_.mutex_);
  if (!lock.taken() || Looks(s_).IsRefusalDue()) return std::nullopt;
  if (!s_.session_->direct().link_empty() && !s_.session_->direct().BytesInLink()) {
    // What is there may be the peer's end: the usual way looks ahead of the send.
    s_.use_.look_for_refusal = {};
    return std::nullopt;
  }
  const Bytes data(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
  if (!s_.session_->direct().MaySend(data.size())) return std::nullopt;
  ++s_.use_.calls;
  s_.session_->direct().Send({&data, 1}, data.size());
  s_.report_.NoteTraffic();
  if (s_.session_->direct().due()) [[unlikely]] {
    Finish(lock);
    // The link has ended, and the message is lost. The usual way sends once more, and finds that out.
    if (s_.session_->end_unread()) return std::nullopt;
  }
  return static_cast<ssize_t>(data.size());
}

// Looks for a moment at a link that has nothing, in a call that would wait.
bool StreamSocket::ExpressWay::ComesSoon(int flags) {
  if (!Blocks(flags) || !Waiting(s_).LooksBeforeSleep() || s_.use_.poll_budget.Next() == Duration::zero())
    return false;
  for (int looks = 0; looks < kLooksForSoon; ++looks) {
    if (s_.session_->direct().link_empty()) continue;
    ++s_.session_->reads().waits.polled;
    s_.use_.poll_budget.NoteFound();
    return true;
  }
  return false;
}

// The program reads a message in pieces, and this is not the last one: nothing becomes due.
std::optional<ssize_t> StreamSocket::ExpressWay::ReceiveLeftovers(MutableBytes room) {
  // First the sizes: the program may have room for much more than there is.
  if (room.empty() || room.size() >= s_.engine().readable_piece() || !MayWrite(room.data(), room.size()))
    return std::nullopt;
  s_.session_->engine().ReceiveWithin(room);
  // The link was not looked at: the call does not count, and the helper goes on.
  s_.use_.told_in_call = UINT64_MAX;
  s_.report_.NoteTraffic();
  return static_cast<ssize_t>(room.size());
}

std::optional<ssize_t> StreamSocket::ExpressWay::Receive(const iovec& piece, int flags, size_t* taken) {
  if ((flags & ~kExpressFlags) != 0) return std::nullopt;
  ExpressLock lock(s_.mutex_, Express::kLeftovers);
  if (!lock.taken()) return std::nullopt;
  const MutableBytes room(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
  if (lock.leftovers()) return ReceiveLeftovers(room);
  if (s_.session_->direct().link_empty() && !ComesSoon(flags)) {
    if (Blocks(flags) || CoarseNow() != s_.use_.found_nothing) return std::nullopt;
    lock.Unlock();
    return Fail(EAGAIN);
  }
  const uint64_t write_edge = s_.board_.edges(s_.engine()).write;
  *taken = s_.session_->direct().ReceiveAll(room);
  if (*taken == 0) return std::nullopt;
  ++s_.use_.calls;
  s_.urgent_mark_.NoteRead();
  s_.report_.NoteTraffic();
  if (s_.session_->direct().due() || s_.board_.edges(s_.engine()).write != write_edge) [[unlikely]]
    Finish(lock);
  if (*taken < room.size() && !s_.session_->direct().link_empty())
    return std::nullopt;  // something else, or more
  return static_cast<ssize_t>(*taken);
}

// Programs remove and add a socket for each message. What is in the link already the set finds with its next
// wait.
bool StreamSocket::Watch::ObserveExpress(ReadinessObserver* observer, int fd) {
  ExpressLock lock(s_.mutex_);
  if (!lock.taken() || observer->HearsDoorbells()) return false;
  LeaveBellExpress(lock);
  s_.board_.Observe(observer, fd, POLLIN);
  observer->OnWatch(fd, s_.LinkOf(fd), POLLIN, *s_.session_);
  return true;
}

bool StreamSocket::Watch::ForgetExpress(ReadinessObserver* observer, int fd) {
  ExpressLock lock(s_.mutex_);
  if (!lock.taken()) return false;
  s_.board_.Forget(observer, fd);
  LeaveBellExpress(lock);
  return true;
}

// The bell is that of an observer.
void StreamSocket::Watch::LeaveBellExpress(ExpressLock& lock) {
  if (!Waiting(s_).LeaveBell()) [[likely]]
    return;
  lock.Close();
  Looks(s_).Look();
}

// More is due than the call's own bytes, or others have to hear of what came.
void StreamSocket::ExpressWay::Finish(ExpressLock& lock) {
  lock.Close();
  s_.session_->direct().Finish();
  s_.AfterProgress(/*publish=*/false);
  s_.upkeep_.LeaveToBackground();
}

// The caller has the express way's lock.
std::optional<StreamSocket::Watch::Readiness> StreamSocket::Watch::LookExpress() const {
  const std::optional<bool> comes = s_.session_->direct().OneComes();
  if (!comes) return std::nullopt;
  const Board::Edges edges = s_.board_.edges(s_.engine());
  Readiness readiness{.state = State::kSdp,
                      .watch = POLLIN,
                      .left_in_link = *comes,
                      .read_edge = edges.read,
                      .write_edge = edges.write};
  if (s_.engine().writable()) readiness.events = POLLOUT | POLLWRNORM;
  if (*comes) {
    readiness.events |= POLLIN | POLLRDNORM;
    ++readiness.read_edge;  // as in GetReadiness
  }
  return readiness;
}

std::optional<StreamSocket::Watch::Readiness> StreamSocket::Watch::ReadyExpress() {
  const ExpressLock lock(s_.mutex_, std::try_to_lock);
  return lock.taken() ? LookExpress() : std::nullopt;
}

std::optional<StreamSocket::Watch::Readiness> StreamSocket::Watch::ReadinessExpress() {
  const ExpressLock lock(s_.mutex_);
  if (!lock.taken()) return std::nullopt;
  std::optional<Readiness> readiness = LookExpress();
  if (readiness && Waiting(s_).LooksBeforeSleep()) {
    readiness->looked = readiness->device = true;
    readiness->look = s_.use_.poll_budget.Next();
  }
  return readiness;
}

}  // namespace sdp::preload
