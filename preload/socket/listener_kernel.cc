// A listener's kernel side: opened, registered, closed, and what comes over it.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "preload/config.h"
#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/listener.h"
#include "preload/socket/registration.h"

namespace sdp::preload {

bool Listener::OpenKernelSide(int conventional_fd, Duration limit, std::string* why) {
  bool open;
  size_t backlog;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(kernel_gone_, [](const auto& gone) { return !Background::Holds(gone.get()); });
    // Their address may have another device by now, or have it back.
    if (std::erase_if(kernel_, [](const auto& kernel) {
          return kernel->gone() && !Background::Holds(kernel.get());
        }) != 0) {
      kernel_looked_ = false;
    }
    if (closed_ || !first_hand()) return false;
    open = !kernel_.empty() || kernel_looked_;
    kernel_looked_ = true;
    backlog = backlog_;
  }
  if (!open) {
    int v6only = 0;
    socklen_t length = sizeof v6only;
    if (domain_ == AF_INET6) real.getsockopt(conventional_fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &length);
    auto opened = KernelListener::OpenAll(this, LocalAddress(conventional_fd), v6only != 0,
                                          static_cast<int>(backlog), why);
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    kernel_ = std::move(opened);
  }
  std::vector<pm::Endpoint> unregistered;
  {
    std::lock_guard lock(mutex_);
    for (const auto& kernel : kernel_) {
      if (!kernel->gone() && !kernel->registered()) unregistered.push_back(kernel->address());
    }
  }
  for (const pm::Endpoint& address : unregistered) {
    const auto registered = RegisterRnic(conventional_fd, address, limit);
    std::lock_guard lock(mutex_);
    const auto at = std::find_if(kernel_.begin(), kernel_.end(),
                                 [&](const auto& kernel) { return kernel->address() == address; });
    if (at == kernel_.end() || (*at)->gone()) {  // closed meanwhile
      if (registered) real.close(*registered);
      continue;
    }
    if (registered) {
      (*at)->SetRegistration(*registered);
      (*at)->Start(conventional_fd);  // not before: a listener that comes to nothing must be free to go
      SDP_LOG(kInfo, "listen on %s: SDP on %s over %s",
              ToEndpoint(LocalAddress(conventional_fd)).ToString().c_str(), address.ToString().c_str(),
              (*at)->device().c_str());
      continue;
    }
    *why = "the port mapper does not take the kernel RNIC\'s listener " + address.ToString() + ": " +
           std::string(ToString(registered.error().failure)) + " (" + registered.error().text + ")";
    if (registered.error().failure != pm::RegistrarFailure::kRefused)
      continue;  // RegisterSdp meets the same, and says it
    SDP_LOG(kInfo, "listen on %s: %s", ToEndpoint(LocalAddress(conventional_fd)).ToString().c_str(),
            why->c_str());
  }
  std::lock_guard lock(mutex_);
  return std::any_of(kernel_.begin(), kernel_.end(), [](const auto& kernel) { return kernel->registered(); });
}

void Listener::CountAccepted(const Session& session) {
  const pm::Endpoint at = ToEndpoint(session.LocalName());
  std::lock_guard lock(mutex_);
  for (const auto& kernel : kernel_) {
    if (kernel->address() == at) kernel->CountAccepted();
  }
}

void Listener::CloseKernelSide() {
  for (auto& kernel : kernel_) {
    kernel->Close();
    kernel_gone_.push_back(std::move(kernel));
  }
  kernel_.clear();
  kernel_looked_ = false;
}

// The application's descriptor for such a connection is a TCP socket that stays unconnected, as it is for one
// that it makes.
void Listener::TakeOnFromRnic(std::unique_ptr<verbs::Connector> connector) {
  DropFinished();
  const int fd = real.socket(domain_, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) options_.Replay(fd);
  const int hidden = fd >= 0 ? HiddenFds::Hide(fd) : -1;
  if (hidden < 0) {
    const int error = errno;
    if (MayLogError())
      SDP_LOG(kError, "a kernel RNIC\'s connection to %s is turned away: %s",
              ToEndpoint(sdp_address_).ToString().c_str(), strerrordesc_np(error));
    return;
  }
  incoming_.push_back(std::make_unique<Incoming>(
      this, hidden, AcceptHandshake(hidden, tuning_, std::move(connector)), /*begun=*/false));
  Background::Add(incoming_.back().get(), Duration::zero());
}

Socket* Listener::owning_socket() { return owner_; }

}  // namespace sdp::preload
