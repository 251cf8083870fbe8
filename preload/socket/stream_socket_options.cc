// Names and options of a StreamSocket.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>

#include "preload/config.h"
#include "preload/fail.h"
#include "preload/native_family.h"
#include "preload/real_calls.h"
#include "preload/socket/holders.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/option_calls.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/tcp_info.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

#ifndef TCP_ZEROCOPY_RECEIVE
constexpr int TCP_ZEROCOPY_RECEIVE = 35;
#endif

// As getsockopt gives out a value of its own: cut to the room there is.
int Put(const void* source, size_t size, void* value, socklen_t* length) {
  if (!MayWrite(length, sizeof *length)) return Fail(EFAULT);
  if (static_cast<int>(*length) < 0) return Fail(EINVAL);
  const auto given = std::min<socklen_t>(*length, size);
  if (!MayWrite(value, given)) return Fail(EFAULT);
  if (given > 0) std::memcpy(value, source, given);
  *length = given;
  return 0;
}

int PutName(const Address& name, sockaddr* address, socklen_t* length) {
  if (!MayWrite(length, sizeof *length)) return Fail(EFAULT);
  if (static_cast<int>(*length) < 0) return Fail(EINVAL);
  if (!MayWrite(address, std::min(*length, name.length))) return Fail(EFAULT);
  CopyOut(name, address, length);
  return 0;
}

int PutInt(int number, void* value, socklen_t* length) { return Put(&number, sizeof number, value, length); }

int TcpState(const engine::Engine& e, bool link_ended, bool unsent) {
  switch (e.state()) {
    case engine::State::kEstablished:
      return link_ended ? TCP_CLOSE : TCP_ESTABLISHED;
    case engine::State::kSendClosed:
      return unsent ? TCP_FIN_WAIT1 : TCP_FIN_WAIT2;
    case engine::State::kReceiveClosed:
      return TCP_CLOSE_WAIT;
    default:
      return TCP_CLOSE;
  }
}

// What a kernel that maps pages of a stream into a program says when it cannot: nothing was mapped, read so
// many bytes.
struct ZeroCopyReceive {
  uint64_t address;
  uint32_t length;
  uint32_t to_be_read;
  uint32_t in_queue;
  int32_t error;
};

// Options that take hold of the TCP connection itself, which is the RNIC's: kernel TLS would encrypt its
// frames, a repaired socket stands still. 0: no such option.
int RefusedOnLink(int level, int name) {
  if (level != IPPROTO_TCP) return 0;
  switch (name) {
    case TCP_ULP:
      return ENOENT;
    case TCP_REPAIR:
    case TCP_REPAIR_QUEUE:
    case TCP_REPAIR_OPTIONS:
    case TCP_REPAIR_WINDOW:
    case TCP_QUEUE_SEQ:
      return EPERM;
    default:
      return 0;
  }
}

// An IPv4 address in an IPv6 one.
void Unmap(Address* address) {
  const auto& mapped = reinterpret_cast<const sockaddr_in6&>(address->storage);
  if (address->family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&mapped.sin6_addr)) return;
  sockaddr_in plain{};
  plain.sin_family = AF_INET;
  plain.sin_port = mapped.sin6_port;
  std::memcpy(&plain.sin_addr, &mapped.sin6_addr.s6_addr[12], sizeof plain.sin_addr);
  *address = MakeAddress(reinterpret_cast<const sockaddr*>(&plain), sizeof plain);
}

}  // namespace

int StreamSocket::GetSockName(int fd, sockaddr* address, socklen_t* length) {
  Lock lock(mutex_);
  if (state_ != State::kSdp) return real.getsockname(fd, address, length);
  return PutName(names_.local, address, length);
}

int StreamSocket::GetPeerName(int fd, sockaddr* address, socklen_t* length) {
  Lock lock(mutex_);
  if (state_ == State::kConnecting) return Fail(ENOTCONN);
  if (state_ != State::kSdp) return real.getpeername(fd, address, length);
  if (!foreign() && !session_->reads().Lately()) Looks(*this).LookToTheEnd();  // TCP knows of what has come
  const Session& known = *session_.last_known();
  const engine::State engine_state = known.engine().state();
  const bool over = engine_state == engine::State::kAborted || engine_state == engine::State::kClosed;
  if (over && (foreign() || !InCloseWait())) return Fail(ENOTCONN);
  // The kernel knows of a reset that no thread has read yet. A connection that moves may have no link.
  if (!over && !known.moving() && LinkOf(fd) == fd && PeerAddress(fd).length == 0) return Fail(ENOTCONN);
  return PutName(names_.peer, address, length);
}

int StreamSocket::GetSockOpt(int fd, int level, int name, void* value, socklen_t* length) {
  const Lock lock = Holders(*this).LockWithOwner();
  if (level == SOL_SOCKET && name == SO_ERROR && MayWrite(length, sizeof *length) &&
      static_cast<int>(*length) >= 0) {
    if (state_ == State::kSdp) Looks(*this).LookToTheEnd();
    if (tcp_.pending_error != 0) return PutInt(tcp_.TakeError(), value, length);
    if (state_ == State::kConnecting || state_ == State::kSdp) return PutInt(0, value, length);
  }
  if (OptionCalls(*this).IsTuning(level, name)) return OptionCalls(*this).GetTuning(name, value, length);
  if (family_.native) {
    if (level == SOL_SOCKET && name == SO_DOMAIN) return PutInt(kFamilySdp, value, length);
    if (level == kLevelSdp && name == kSdpLastBindError) return PutInt(0, value, length);
    if (level == kLevelSdp) level = IPPROTO_TCP;
  }
  if (level == SOL_SOCKET && name == SO_PEERNAME && state_ == State::kSdp)
    return OptionCalls(*this).PutPeerName(value, length);
  if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && options_.v6only && state_ == State::kSdp &&
      MayWrite(length, sizeof *length)) {
    *length = std::min<socklen_t>(*length, sizeof(int));  // ipv6(7)'s lengths are unsigned
    return PutInt(*options_.v6only, value, length);
  }
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    if (state_ == State::kConnecting) return GetTcpInfoConnecting(fd, value, length);
    if (state_ == State::kListening)
      return GetTcpInfoListening(fd, static_cast<uint32_t>(listening_.listener->waiting()), value, length);
    if (state_ == State::kSdp) {
      if (!foreign()) Looks(*this).LookForRefusal();
      return OptionCalls(*this).GetStreamInfo(fd, value, length);
    }
  }
  // It would take the link's bytes.
  if (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE && state_ == State::kSdp)
    return OptionCalls(*this).ReceiveNothingMapped(value, length);
  switch (options_.kept.Get(level, name, value, length)) {
    case KeptOptions::Answer::kKept:
      return 0;
    case KeptOptions::Answer::kFailed:
      return -1;
    case KeptOptions::Answer::kKernel:
      break;
  }
  return real.getsockopt(fd, level, name, value, length);
}

// Unlike getpeername, it refuses a room that is too small.
int StreamSocket::OptionCalls::PutPeerName(void* value, socklen_t* length) const {
  if (!MayWrite(length, sizeof *length)) return Fail(EFAULT);
  if (static_cast<int>(*length) < 0) return Fail(EINVAL);
  const engine::State engine_state = s_.engine().state();
  if (engine_state == engine::State::kAborted || engine_state == engine::State::kClosed)
    return Fail(ENOTCONN);
  if (s_.names_.peer.length < *length) return Fail(EINVAL);
  const socklen_t room = *length;
  if (!MayWrite(value, room)) return Fail(EFAULT);
  if (room > 0) std::memcpy(value, &s_.names_.peer.storage, room);
  return 0;
}

int StreamSocket::OptionCalls::GetStreamInfo(int fd, void* value, socklen_t* length) {
  Looks(s_).Look();
  const engine::Engine& e = s_.engine();
  const Session& known = *s_.session_.last_known();
  const engine::Stats& s = e.stats();
  const uint64_t unsent = s_.corked_.size() + Limits(s_).Queued();
  const StreamFacts facts{
      .tcp_state = static_cast<uint8_t>(!s_.foreign() && s_.InCloseWait()
                                            ? TCP_CLOSE_WAIT
                                            : TcpState(e, known.link_ended(), known.has_unsent())),
      .bytes_out =
          s.bcopy_bytes_out + s.read_zcopy_bytes_out + s.write_zcopy_bytes_out + s.transaction_bytes_out,
      .bytes_in = s.bcopy_bytes_in + s.read_zcopy_bytes_in + s.write_zcopy_bytes_in + s.transaction_bytes_in,
      .unsent = unsent,
      .alive = !known.link_ended(),
  };
  return GetTcpInfo(fd, facts, value, length);
}

int StreamSocket::OptionCalls::ReceiveNothingMapped(void* value, socklen_t* length) {
  if (!MayWrite(length, sizeof *length)) return Fail(EFAULT);
  ZeroCopyReceive request{};
  const auto given = std::min<socklen_t>(*length, sizeof request);
  if (!MayWrite(value, given)) return Fail(EFAULT);
  if (static_cast<int>(*length) < static_cast<int>(offsetof(ZeroCopyReceive, to_be_read)))
    return Fail(EINVAL);
  std::memcpy(&request, value, given);
  if (request.address % 4096 != 0) return Fail(EINVAL);
  Looks(s_).Look();
  const auto waiting = static_cast<uint32_t>(std::min<uint64_t>(s_.engine().readable_bytes(), 0x7fffffff));
  request.to_be_read = std::min(request.length, waiting);
  request.length = 0;
  request.in_queue = waiting;
  request.error = 0;
  std::memcpy(value, &request, given);
  *length = given;
  return 0;
}

int StreamSocket::SetSockOpt(int fd, int level, int name, const void* value, socklen_t length) {
  Lock lock = Holders(*this).LockWithOwner();
  if (OptionCalls(*this).IsTuning(level, name)) return OptionCalls(*this).SetTuning(name, value, length);
  if (family_.native && level == kLevelSdp) level = IPPROTO_TCP;
  // A name or a number that is none is the kernel's to refuse.
  const int least = level == IPPROTO_TCP && name == TCP_ULP ? 1 : static_cast<int>(sizeof(int));
  const bool is_none = static_cast<int>(length) < least || !MayRead(value, static_cast<size_t>(least));
  if (state_ == State::kSdp && !is_none) {
    if (const int error = RefusedOnLink(level, name); error != 0) return Fail(error);
  }
  // The link is read from its beginning, whatever the program has peeked at.
  if (level == SOL_SOCKET && name == SO_PEEK_OFF && !is_none) return Fail(EOPNOTSUPP);
  if (state_ == State::kNew && level == IPPROTO_TCP && name == TCP_REPAIR) {
    BecomePlain(fd, stats::FallbackReason::kOther, "TCP_REPAIR makes a TCP connection by hand");
    return static_cast<int>(kPassThrough);
  }
  switch (options_.kept.Set(fd, level, name, value, length)) {
    case KeptOptions::Answer::kKept:
      OptionCalls(*this).AfterKeptOption(fd, level, name);
      return 0;
    case KeptOptions::Answer::kFailed:
      return -1;
    case KeptOptions::Answer::kKernel:
      break;
  }
  const int result = real.setsockopt(fd, level, name, value, length);
  if (result != 0) return result;
  options_.kept.Note(level, name, value);
  options_.NoteKept();
  if (state_ == State::kNew) options_.log.Record(level, name, value, length);
  if (state_ == State::kListening && listening_.listener->sdp_fd() >= 0 &&
      OptionLog::IsInherited(level, name, length)) {
    const KeepErrno keep;
    real.setsockopt(listening_.listener->sdp_fd(), level, name, value, length);
  }
  if (level == SOL_SOCKET) {  // perhaps the size of a buffer
    if (state_ == State::kListening) listening_.listener->SetTuning(options_.kept.tuning());
    if (usable()) AfterProgress();
  }
  if (state_ == State::kSdp && level == IPPROTO_IPV6 && name == IPV6_ADDRFORM) {
    Unmap(&names_.local);
    Unmap(&names_.peer);
    options_.v6only.reset();
  }
  return 0;
}

void StreamSocket::OptionCalls::AfterKeptOption(int fd, int level, int name) {
  // What the conventional connections of a listener inherit.
  if (s_.state_ == State::kListening) s_.options_.kept.Apply(fd);
  if (!s_.usable()) return;
  if (level == SOL_SOCKET && name == SO_OOBINLINE)
    s_.session_->engine().SetOutOfBandInline(s_.options_.kept.out_of_band_inline());
  if (level == SOL_SOCKET && name == SO_RCVLOWAT) Looks(s_).TakeUntold();
  const bool enough = s_.engine().peer_closed() || (s_.engine().readable_bytes() > 0 &&
                                                    s_.engine().readable_bytes() >= Limits(s_).LowWater());
  if (level == SOL_SOCKET && name == SO_RCVLOWAT) {
    if (enough) s_.board_.Bump();
    s_.AfterProgress();  // what the peer offers may have to come by itself now
  }
  if (level == IPPROTO_TCP && !s_.corked_.empty() &&
      (name == TCP_CORK ? !s_.options_.kept.cork() : name == TCP_NODELAY)) {
    s_.corked_.Push(*s_.session_);
    s_.AfterProgress();
    s_.upkeep_.LeaveToBackground();
  }
}

// On the sockets of programs that ask for SDP; the threshold they know as an option of TCP's, too.
bool StreamSocket::OptionCalls::IsTuning(int level, int name) const {
  return s_.family_.native && (level == kLevelSdp ? ConnectionTuning::Knows(name)
                                                  : level == IPPROTO_TCP && name == kSdpZcopyThreshold);
}

int StreamSocket::OptionCalls::SetTuning(int name, const void* value, socklen_t length) {
  const bool set_up = s_.state_ == State::kConnecting || s_.state_ == State::kSdp;
  if (set_up && ConnectionTuning::IsForSetUp(name)) return Fail(EISCONN);
  if (const int error = s_.options_.kept.tuning().Set(name, value, length); error != 0) return Fail(error);
  if (s_.state_ == State::kListening) s_.listening_.listener->SetTuning(s_.options_.kept.tuning());
  if (!s_.usable()) return 0;
  ApplyBcopyThreshold();
  s_.report_.PublishAll(*s_.session_, s_.names());
  return 0;
}

int StreamSocket::OptionCalls::GetTuning(int name, void* value, socklen_t* length) const {
  const ConnectionTuning& tuning = s_.options_.kept.tuning();
  if (name == kSdpZcopyThreshold) return PutInt(tuning.zcopy_threshold(), value, length);
  if (name == kSdpPrivateBuffers) {
    if (s_.state_ == State::kSdp) return PutInt(s_.engine().receive_buffers(), value, length);
    return PutInt(tuning.private_buffers() != 0 ? tuning.private_buffers() : config().receive_buffers, value,
                  length);
  }
  if (s_.state_ == State::kSdp)
    return PutInt(static_cast<int>(s_.engine().stats().local_buffer_size), value, length);
  const uint32_t size =
      tuning.private_buffer_size() != 0 ? tuning.private_buffer_size() : config().receive_buffer_size;
  return PutInt(static_cast<int>(size), value, length);
}

void StreamSocket::OptionCalls::ApplyBcopyThreshold() {
  if (const auto threshold = s_.options_.kept.tuning().bcopy_threshold())
    s_.session_->engine().SetZcopyThreshold(*threshold);
}

}  // namespace sdp::preload
