// ioctl on a StreamSocket, FIONREAD among them.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "preload/fail.h"
#include "preload/real_calls.h"
#include "preload/socket/express_way.h"
#include "preload/socket/holders.h"
#include "preload/socket/lender.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/option_calls.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/stream_socket.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// Who asks twice without a read in between, and was told of so much, may wait for more than the link holds.
constexpr uint64_t kMostInLink = 128 * 1024;
// With so much still to be read FIONREAD does not look for more.
constexpr uint64_t kStillMuch = 16 * 1024;
// Until it is read from (tcp(7), tcp_rmem), or SO_RCVBUF says something else.
constexpr uint64_t kReceiveBufferOfTcp = 128 * 1024;

}  // namespace

// What is unread goes from process to process with a shared connection: no more is taken from the link for a
// question than TCP would have.
bool StreamSocket::OptionCalls::FillsReceiveBuffer() const {
  if (s_.share_.with == nullptr || s_.options_.kept.tuning().receive_buffer() != 0) return false;
  return ReadableAtOnce() >= std::max<uint64_t>(kReceiveBufferOfTcp, Limits(s_).LowWater());
}

std::optional<int> StreamSocket::OptionCalls::CountWhereItIs() {
  if (s_.foreign() || !s_.TakesDirect() || s_.engine().advertised_bytes() != 0) return std::nullopt;
  const auto in_link = s_.session_->direct().BytesInLink();
  if (!in_link || (*in_link > kMostInLink && s_.use_.told_in_call == s_.use_.calls)) return std::nullopt;
  if (*in_link > kMostInLink) s_.use_.told_in_call = s_.use_.calls;
  return static_cast<int>(std::min<uint64_t>(ReadableAtOnce() + *in_link, 0x7fffffff));
}

int StreamSocket::Ioctl(int fd, unsigned long request, void* argument) {
  Lock lock = Holders(*this).LockWithOwner();
  if (request == FIONBIO) {
    if (!MayRead(argument, sizeof(int))) return Fail(EFAULT);
    const bool on = *static_cast<int*>(argument) != 0;
    numbers_.SetNonblocking(on);
    if (numbers_.forced()) return 0;
    return real.ioctl(fd, request, argument);
  }
  if (request == FIOSETOWN || request == SIOCSPGRP) {
    const int result = real.ioctl(fd, request, argument);
    lock.unlock();
    if (result == 0) OwnerChanged(fd);
    return result;
  }
  if (state_ != State::kSdp) return real.ioctl(fd, request, argument);
  int64_t answer = 0;
  switch (request) {
    case FIONREAD:  // SIOCINQ
      // Programs ask until enough is there: what the link has counts, and what the peer offers has to come.
      // Who asks behind each of many reads learns whether to go on.
      if (const auto there = OptionCalls(*this).CountWhereItIs()) {
        answer = *there;
        ExpressWay(*this).Open(/*inside=*/0);
        break;
      }
      if (!foreign() && (OptionCalls(*this).ReadableAtOnce() < kStillMuch ||
                         (OptionCalls(*this).ReadableAtOnce() >= use_.told_readable &&
                          !OptionCalls(*this).FillsReceiveBuffer()))) {
        Looks(*this).LookAtLink();
        Lender(*this).WantBcopy(UINT64_MAX);
        AfterProgress();
      }
      use_.told_readable = OptionCalls(*this).ReadableAtOnce();
      ExpressWay(*this).Open(/*inside=*/0);
      answer = static_cast<int64_t>(std::min<uint64_t>(use_.told_readable, 0x7fffffff));
      break;
    case SIOCOUTQ:  // TIOCOUTQ
    case SIOCOUTQNSD: {
      int in_kernel = 0;
      real.ioctl(fd, request, &in_kernel);
      // The link has bytes of its own, too, before the program has written any; what is offered is not on it.
      const engine::Engine& e = engine();
      const engine::Stats& s = e.stats();
      const uint64_t on_link = queue_pair().unsent_bytes() + static_cast<uint64_t>(in_kernel);
      const uint64_t queued =
          corked_.size() + e.buffered_bytes() + e.offered_bytes() +
          std::min(on_link, s.bcopy_bytes_out + s.write_zcopy_bytes_out + s.transaction_bytes_out);
      answer = static_cast<int64_t>(std::min<uint64_t>(queued, 0x7fffffff));
      break;
    }
    case SIOCATMARK:
      // A program that asks for nothing else hears of a mark by this. Where something is to be read first
      // there is none here, or it is known.
      if (OptionCalls(*this).ReadableAtOnce() == 0 && !urgent_mark_.at_mark(engine())) Looks(*this).Look();
      answer = urgent_mark_.at_mark(engine()) ? 1 : 0;
      break;
    default:
      return real.ioctl(fd, request, argument);
  }
  if (!MayWrite(argument, sizeof(int))) return Fail(EFAULT);
  *static_cast<int*>(argument) = static_cast<int>(answer);
  return 0;
}

}  // namespace sdp::preload
