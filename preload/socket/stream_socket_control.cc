// What comes beside a StreamSocket's bytes: control messages and the error queue.
#include <time.h>

// Behind time.h, which it needs.
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

#include "preload/control.h"
#include "preload/fail.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

#ifndef TCP_CM_INQ
constexpr int TCP_CM_INQ = 36;
#endif

// As the kernel lays out a message of the error queue: what happened, and to whom (here: nobody).
template <typename SocketAddress>
struct Notice {
  sock_extended_err error;
  SocketAddress offender;
};

template <typename SocketAddress>
void PutNotice(int level, int type, const sock_extended_err& error, ControlRoom* room) {
  const Notice<SocketAddress> notice{.error = error, .offender = {}};
  room->Put(level, type, &notice, sizeof notice);
}

void PutTime(int option, ControlRoom* room) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (option == SO_TIMESTAMP_OLD || option == SO_TIMESTAMP_NEW) now.tv_nsec /= 1000;  // a timeval
  room->Put(SOL_SOCKET, option, &now, sizeof now);
}

}  // namespace

// The time is that of the call: when the bytes came, only the link's kernel knows.
void StreamSocket::WriteControl(ssize_t received, ControlRoom* room) {
  if (!options_.gives_control.load(std::memory_order_relaxed)) return;
  Lock lock(mutex_);
  if (state_ != State::kSdp) return;
  if (received > 0 && options_.kept.timestamp_option() != 0) PutTime(options_.kept.timestamp_option(), room);
  if (!options_.kept.tells_queue()) return;
  const engine::Engine& e = engine();
  auto waiting = static_cast<int>(std::min<uint64_t>(e.readable_bytes(), 0x7fffffff));
  if (waiting == 0 && e.peer_closed()) waiting = 1;  // the end is worth another call
  room->Put(IPPROTO_TCP, TCP_CM_INQ, &waiting, sizeof waiting);
}

ssize_t StreamSocket::SendZeroCopy(int fd, const iovec* iov, size_t count, int flags) {
  const ssize_t sent = Send(fd, iov, count, flags);
  if (sent == kPassThrough) return sent;
  const KeepErrno keep;
  Lock lock(mutex_);
  // The memory is the caller's again already.
  if (sent > 0 && options_.kept.zero_copy() && state_ == State::kSdp) {
    ++tcp_.zero_copies_sent;
    board_.Bump();
    AfterProgress();
  }
  return sent;
}

ssize_t StreamSocket::ReceiveError(ControlRoom* room, int* out_flags) {
  Lock lock(mutex_);
  if (state_ != State::kSdp) return kPassThrough;
  if (!tcp_.has_queued_message()) return Fail(EAGAIN);
  // One message for all that came since the last.
  const sock_extended_err error{.ee_errno = 0,
                                .ee_origin = SO_EE_ORIGIN_ZEROCOPY,
                                .ee_type = 0,
                                .ee_code = SO_EE_CODE_ZEROCOPY_COPIED,
                                .ee_pad = 0,
                                .ee_info = tcp_.zero_copies_told,
                                .ee_data = tcp_.zero_copies_sent - 1};
  tcp_.zero_copies_told = tcp_.zero_copies_sent;
  if (family_.domain == AF_INET6) {
    PutNotice<sockaddr_in6>(IPPROTO_IPV6, IPV6_RECVERR, error, room);
  } else {
    PutNotice<sockaddr_in>(IPPROTO_IP, IP_RECVERR, error, room);
  }
  *out_flags |= MSG_ERRQUEUE;
  return 0;
}

}  // namespace sdp::preload
