// Which small pieces wait for the next one (corked.h), and for how long at most.
#include "preload/config.h"
#include "preload/socket/clock.h"
#include "preload/socket/options.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// How long TCP keeps back a frame that is not full (tcp(7), TCP_CORK).
constexpr Duration kLongestCork = std::chrono::milliseconds(200);

}  // namespace

bool StreamSocket::Cork(std::span<const iovec> data, size_t total) {
  if (share_.with != nullptr) return false;  // the others would not know of it
  if (!corked_.Fits(session_->engine(), total, SendRoom(), config().send_buffer)) return false;
  if (corked_.empty()) {
    const Duration longest = ForcesTransactions() ? Background::kGrace : kLongestCork;
    corked_.SetDue(Now() + longest);
    if (!Background::Add(&task_, longest)) return false;
  }
  corked_.Append(data);
  return true;
}

}  // namespace sdp::preload
