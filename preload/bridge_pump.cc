#include "preload/bridge_pump.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

#include "preload/entry_points.h"
#include "preload/inheritance.h"

namespace sdp::preload {
namespace {

// No event tells when another process lets go of the connection, so the pump looks again after these times,
// in ms.
constexpr int kFirstNap = 4;
constexpr int kLongestNap = 7;  // as a power of two: 512 ms
// Bytes that the peer does not take within a minute are lost, like those of a TCP socket without an owner.
constexpr int kRest = 20;
constexpr int kMostRests = 3000;

constexpr linger kReset{.l_onoff = 1, .l_linger = 0};

// The bridge is an application of the library's own, so it makes an application's calls on SDP connections.
ssize_t ReceiveSdp(int fd, void* buffer, size_t size) {
  return SDP_ENTRY(recv)(fd, buffer, size, MSG_DONTWAIT);
}
ssize_t SendSdp(int fd, const void* buffer, size_t size) {
  return SDP_ENTRY(send)(fd, buffer, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}
ssize_t ReceiveFar(int fd, void* buffer, size_t size) { return real.recv(fd, buffer, size, MSG_DONTWAIT); }
ssize_t SendFar(int fd, const void* buffer, size_t size) {
  return real.send(fd, buffer, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Returns whether the peer's reset or a time-out has ended the link. What the peer has not acknowledged by
// then it never will.
bool LinkIsGone(int sdp) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return real.getsockopt(sdp, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_CLOSE;
}

bool MayComeLater(int error) {
  return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

BridgePump::BridgePump(int sdp, int far_end, bool reads_at_once)
    : sdp_(sdp), far_end_(far_end), reads_at_once_(reads_at_once) {}

bool BridgePump::MayRead() const { return reads_at_once_ || !shared_; }

bool BridgePump::Fill(Flow* flow, ssize_t (*receive)(int, void*, size_t), int from) {
  if (flow->way != Way::kOpen || !flow->empty()) return true;
  const ssize_t got = receive(from, flow->bytes.get(), kRoom);
  if (got < 0) return MayComeLater(errno);
  flow->begin = 0;
  flow->end = static_cast<size_t>(got);
  if (got == 0) flow->way = Way::kEnded;
  return true;
}

bool BridgePump::Empty(Flow* flow, ssize_t (*send)(int, const void*, size_t), int to) {
  while (!flow->empty()) {
    const ssize_t taken = send(to, flow->bytes.get() + flow->begin, flow->end - flow->begin);
    if (taken < 0) return MayComeLater(errno);
    flow->begin += static_cast<size_t>(taken);
  }
  return true;
}

void BridgePump::ResetProgram() {
  real.setsockopt(far_end_, SOL_SOCKET, SO_LINGER, &kReset, sizeof kReset);
  Finish();
}

void BridgePump::ResetPeer() {
  if (!shared_) SDP_ENTRY(setsockopt)(sdp_, SOL_SOCKET, SO_LINGER, &kReset, sizeof kReset);
  Finish();
}

void BridgePump::Finish() {
  SDP_ENTRY(close)(sdp_);
  real.close(far_end_);
  sdp_ = far_end_ = -1;
}

void BridgePump::Step() {
  if (over()) return;
  const bool was_shared = shared_;
  shared_ = IsSharedWithOthers(sdp_);
  naps_ = was_shared && shared_ ? std::min(naps_ + 1, kLongestNap) : 0;
  for (int round = 0; round < 4; ++round) {
    if (!Fill(&up_, ReceiveFar, far_end_)) return ResetPeer();
    if (!Empty(&up_, SendSdp, sdp_)) return ResetProgram();
    if (MayRead() && !Fill(&down_, ReceiveSdp, sdp_)) return ResetProgram();
    if (!Empty(&down_, SendFar, far_end_)) return ResetPeer();
  }
  if (up_.way == Way::kEnded && up_.empty()) {
    // The program has closed or shut the connection; while other processes hold it, that ends nothing.
    if (shared_) return Finish();
    SDP_ENTRY(shutdown)(sdp_, SHUT_WR);
    up_.way = Way::kShut;
  }
  if (down_.way == Way::kEnded && down_.empty()) {
    real.shutdown(far_end_, SHUT_WR);
    down_.way = Way::kShut;
  }
  if (up_.way != Way::kShut || down_.way != Way::kShut) return;
  int queued = 0;
  if (SDP_ENTRY(ioctl)(sdp_, SIOCOUTQ, &queued) != 0 || queued == 0 || LinkIsGone(sdp_) ||
      ++rests_ > kMostRests)
    Finish();
}

int BridgePump::Wait(pollfd* fds) const {
  const auto wanted = [](bool in, bool out) {
    return static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0));
  };
  const short sdp = wanted(MayRead() && down_.way == Way::kOpen && down_.empty(), !up_.empty());
  const short far_end = wanted(up_.way == Way::kOpen && up_.empty(), !down_.empty());
  fds[0] = {.fd = sdp != 0 ? sdp_ : -1, .events = sdp, .revents = 0};
  fds[1] = {.fd = far_end != 0 ? far_end_ : -1, .events = far_end, .revents = 0};
  if (over()) return -1;
  if (up_.way == Way::kShut && down_.way == Way::kShut) return kRest;
  return shared_ ? kFirstNap << naps_ : -1;
}

}  // namespace sdp::preload
