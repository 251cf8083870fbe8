// Names, options and ioctls of a StreamSocket.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>

#include "preload/real_calls.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

int Fail(int error) {
  errno = error;
  return -1;
}

int PutInt(int number, void* value, socklen_t* length) {
  if (value == nullptr || length == nullptr) return Fail(EFAULT);
  *length = std::min<socklen_t>(*length, sizeof number);
  std::memcpy(value, &number, *length);
  return 0;
}

}  // namespace

int StreamSocket::GetSockName(int fd, sockaddr* address, socklen_t* length) {
  Lock lock(mutex_);
  if (state_ != State::kSdp) return real.getsockname(fd, address, length);
  if (address == nullptr || length == nullptr) return Fail(EFAULT);
  CopyOut(local_, address, length);
  return 0;
}

int StreamSocket::GetPeerName(int fd, sockaddr* address, socklen_t* length) {
  Lock lock(mutex_);
  if (state_ == State::kConnecting) return Fail(ENOTCONN);
  if (state_ != State::kSdp) return real.getpeername(fd, address, length);
  if (address == nullptr || length == nullptr) return Fail(EFAULT);
  const engine::State engine_state = session_->engine().state();
  if (engine_state == engine::State::kAborted || engine_state == engine::State::kClosed) return Fail(ENOTCONN);
  CopyOut(peer_, address, length);
  return 0;
}

int StreamSocket::GetSockOpt(int fd, int level, int name, void* value, socklen_t* length) {
  Lock lock(mutex_);
  if (level == SOL_SOCKET && name == SO_ERROR) {
    if (state_ == State::kSdp) {
      session_->ReadAvailable();
      AfterProgress();
    }
    if (pending_error_ != 0) return PutInt(TakeError(), value, length);
    if (state_ == State::kConnecting || state_ == State::kSdp) return PutInt(0, value, length);
  }
  switch (options_.Get(level, name, value, length)) {
    case KeptOptions::Answer::kKept:
      return 0;
    case KeptOptions::Answer::kInvalid:
      return Fail(EFAULT);
    case KeptOptions::Answer::kKernel:
      break;
  }
  return real.getsockopt(fd, level, name, value, length);
}

int StreamSocket::SetSockOpt(int fd, int level, int name, const void* value, socklen_t length) {
  Lock lock(mutex_);
  // Kernel TLS would encrypt the RNIC's frames.
  if (level == IPPROTO_TCP && name == TCP_ULP && state_ == State::kSdp) return Fail(ENOENT);
  switch (options_.Set(level, name, value, length)) {
    case KeptOptions::Answer::kKept:
      if (state_ == State::kSdp && name == SO_OOBINLINE) session_->engine().SetOutOfBandInline(options_.out_of_band_inline());
      if (state_ == State::kSdp && level == IPPROTO_TCP && !held_.empty() &&
          (name == TCP_CORK ? !options_.cork() : name == TCP_NODELAY)) {
        PushHeld();
        AfterProgress();
        LeaveToBackground();
      }
      // What the conventional connections of a listener inherit.
      if (state_ == State::kListening) return real.setsockopt(fd, level, name, value, length);
      return 0;
    case KeptOptions::Answer::kInvalid:
      return Fail(EINVAL);
    case KeptOptions::Answer::kKernel:
      break;
  }
  const int result = real.setsockopt(fd, level, name, value, length);
  if (result == 0 && state_ == State::kListening && listener_->sdp_fd() >= 0 && level == SOL_SOCKET) {
    const int saved = errno;
    real.setsockopt(listener_->sdp_fd(), level, name, value, length);
    errno = saved;
  }
  return result;
}

int StreamSocket::Ioctl(int fd, unsigned long request, void* argument) {
  Lock lock(mutex_);
  if (request == FIONBIO) {
    if (argument == nullptr) return Fail(EFAULT);
    const bool on = *static_cast<int*>(argument) != 0;
    nonblocking_ = on;
    if (listener_forced_nonblocking_) return 0;
    return real.ioctl(fd, request, argument);
  }
  if (state_ != State::kSdp) return real.ioctl(fd, request, argument);
  switch (request) {
    case FIONREAD: {  // SIOCINQ
      if (session_->engine().readable_bytes() == 0) {
        session_->ReadAvailable();
        AfterProgress();
      }
      *static_cast<int*>(argument) = static_cast<int>(std::min<uint64_t>(session_->engine().readable_bytes(), 0x7fffffff));
      return 0;
    }
    case TIOCOUTQ: {  // SIOCOUTQ
      int in_kernel = 0;
      real.ioctl(fd, TIOCOUTQ, &in_kernel);
      const uint64_t queued = held_.size() + session_->engine().buffered_bytes() + session_->queue_pair().unsent_bytes() + in_kernel;
      *static_cast<int*>(argument) = static_cast<int>(std::min<uint64_t>(queued, 0x7fffffff));
      return 0;
    }
    case SIOCATMARK:
      *static_cast<int*>(argument) = session_->engine().at_mark() ? 1 : 0;
      return 0;
    default:
      return real.ioctl(fd, request, argument);
  }
}

}  // namespace sdp::preload
