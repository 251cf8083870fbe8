// What the helper thread does for listeners: it takes requests on where no thread accepts, and registers
// again where the port mapper daemon ended.
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "preload/hidden_fds.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/listener.h"
#include "preload/socket/registration.h"

namespace sdp::preload {
namespace {

// How long a daemon may take to answer the helper, which has other work.
constexpr Duration kRenewalLimit = std::chrono::milliseconds(20);

bool IsReadable(int fd) {
  pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
  timespec zero{};
  return real.ppoll(&poll, 1, &zero, nullptr) > 0;
}

}  // namespace

// Sees a request; gives the application kPatience to take it; takes it itself if it is still there.
Background::Wait Listener::Watch::Run(Time now) {
  std::lock_guard lock(listener->mutex_);
  if (listener->closed_ || listener->leaving_) return {.done = true};
  if (!listener->HelperMayAccept()) {
    readable_seen = false;
    return {.done = true};
  }
  Arrivals& arrivals = listener->arrivals_;
  const bool readable = IsReadable(listener->sdp_fd());
  if (readable && arrivals.shared() && listener->IsShut()) {
    listener->kernel_.Close();
    return {.done = true};
  }
  // Another process may be free for what this one leaves in the kernel: where they have no queue in common,
  // one in stock is enough.
  const bool stocked = arrivals.shared() && arrivals.in_stock() > 0 && !arrivals.common().usable();
  if (readable && !stocked && !arrivals.full() && (readable_seen || at_once)) {
    listener->AcceptAhead(/*shake_hands=*/false);
    readable_seen = at_once = false;
  } else {
    readable_seen = readable;
  }
  // Full: the rest waits in the kernel, as TCP's does.
  if (readable) return {.deadline = now + kPatience * (stocked || arrivals.full() ? 4 : 1)};
  // The helper is not to wake up for each connection that the program takes, or that its workers take.
  if (std::exchange(listener->at_it_, false)) return {.deadline = now + kPatience};
  rested = !rested && !listener->first_hand();
  if (rested) return {.deadline = now + 4 * kPatience};
  return {.fd = listener->sdp_fd(), .events = POLLIN};
}

Background::Wait Listener::Renewal::Run(Time now) {
  const int conventional_fd = listener->owner_->AnyDescriptor();
  bool registered = false;
  {
    std::lock_guard lock(listener->mutex_);
    if (listener->closed_ || conventional_fd < 0 || listener->IsShut()) return {.done = true};
    const int fd = listener->enrolment_.fd;
    // Readable: its end of file, which says that the daemon is gone.
    registered = fd >= 0 && !IsReadable(fd);
    if (fd >= 0 && !registered) HiddenFds::Close(listener->enrolment_.fd.exchange(-1));
  }
  // Not under the lock: they may wait for the daemon.
  if (!registered) {
    const auto wait = RegisterAgain(conventional_fd, now);
    listener->owner_->PublishStanding();
    if (wait) return *wait;
  }
  std::string why;
  listener->OpenKernelSide(conventional_fd, kRenewalLimit, &why);
  std::lock_guard lock(listener->mutex_);
  if (listener->closed_) return {.done = true};
  listener->kernel_.Start(conventional_fd);
  return {.fd = listener->enrolment_.fd, .events = POLLIN};
}

// Empty: it is registered.
std::optional<Background::Wait> Listener::Renewal::RegisterAgain(int conventional_fd, Time now) {
  auto registered = RegisterSdp(conventional_fd, listener->sdp_fd(), kRenewalLimit);
  std::lock_guard lock(listener->mutex_);
  if (registered && listener->closed_) {
    real.close(*registered);
    return Background::Wait{.done = true};
  }
  if (registered && HiddenFds::HideTracked(*registered, &listener->enrolment_.fd) < 0)
    registered =
        unexpected(pm::RegistrarError{pm::RegistrarFailure::kNoSocket, errno, {}, strerrordesc_np(errno)});
  listener->enrolment_.standing =
      registered ? RegisteredBy(listener->enrolment_.fd) : NotRegistered(registered.error());
  if (!registered) {
    if (was_registered) return Background::Wait{.deadline = now + kRenewalInterval};
    listener->enrolment_.dormant = true;
    return Background::Wait{.done = true};
  }
  was_registered = true;
  SDP_LOG(kInfo, "registered with the port mapper: SDP on %s",
          ToEndpoint(listener->sdp_address_).ToString().c_str());
  return std::nullopt;
}

}  // namespace sdp::preload
