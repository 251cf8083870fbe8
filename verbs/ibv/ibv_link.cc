#include "verbs/ibv/ibv_link.h"

#include <algorithm>
#include <chrono>

namespace sdp::ibv {
namespace {

// The measured time may include a lost packet or a busy process, so it is bounded.
constexpr Duration kMostRoundTrip = std::chrono::milliseconds(200);

}  // namespace

void IbvLink::SetRoundTrip(Duration duration) { round_trip_ = std::min(duration, kMostRoundTrip); }

void IbvLink::Names(sockaddr_storage* local, sockaddr_storage* peer) const {
  const rdma_addr& address = resources_.id->route.addr;
  *local = address.src_storage;
  *peer = address.dst_storage;
}

}  // namespace sdp::ibv
