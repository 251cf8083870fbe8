#include "preload/socket/kernel_side.h"

#include <netinet/in.h>

#include <algorithm>

#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/registration.h"

namespace sdp::preload {
namespace {

bool IsV6Only(int fd) { return IntOption(fd, IPPROTO_IPV6, IPV6_V6ONLY).value_or(0) != 0; }

}  // namespace

void KernelSide::DropGone() {
  std::erase_if(closed_, [](const auto& closed) { return !Background::Holds(closed.get()); });
  // Their address may have another device by now, or have it back.
  const auto gone = [](const auto& kernel) { return kernel->gone() && !Background::Holds(kernel.get()); };
  if (std::erase_if(open_, gone) != 0) looked_ = false;
}

bool KernelSide::Open(std::unique_lock<Mutex>* lock, int conventional_fd, int domain, size_t backlog,
                      Duration limit, std::string* why) {
  DropGone();
  const bool open = !open_.empty() || looked_;
  looked_ = true;
  if (!open) {
    lock->unlock();
    auto opened = KernelListener::OpenAll(owner_, LocalAddress(conventional_fd),
                                          domain == AF_INET6 && IsV6Only(conventional_fd),
                                          static_cast<int>(backlog), why);
    lock->lock();
    if (!looked_) return false;  // closed meanwhile
    open_ = std::move(opened);
  }
  std::vector<pm::Endpoint> unregistered;
  for (const auto& kernel : open_) {
    if (!kernel->gone() && !kernel->registered()) unregistered.push_back(kernel->address());
  }
  for (const pm::Endpoint& address : unregistered) {
    lock->unlock();
    const auto registered = RegisterRnic(conventional_fd, address, limit);
    lock->lock();
    if (!registered && !looked_) return false;  // closed meanwhile
    if (registered) {
      Register(address, conventional_fd, *registered);
      continue;
    }
    *why = "the port mapper does not take the kernel RNIC\'s listener " + address.ToString() + ": " +
           std::string(ToString(registered.error().failure)) + " (" + registered.error().text + ")";
    if (registered.error().failure != pm::RegistrarFailure::kRefused)
      continue;  // RegisterSdp meets the same, and says it
    SDP_LOG(kInfo, "listen on %s: %s", ToEndpoint(LocalAddress(conventional_fd)).ToString().c_str(),
            why->c_str());
  }
  return std::any_of(open_.begin(), open_.end(), [](const auto& kernel) { return kernel->registered(); });
}

void KernelSide::Register(const pm::Endpoint& address, int conventional_fd, int registration) {
  const auto at = std::find_if(open_.begin(), open_.end(),
                               [&](const auto& kernel) { return kernel->address() == address; });
  if (at == open_.end() || (*at)->gone()) {  // closed meanwhile
    real.close(registration);
    return;
  }
  (*at)->SetRegistration(registration);
  SDP_LOG(kInfo, "listen on %s: SDP on %s over %s",
          ToEndpoint(LocalAddress(conventional_fd)).ToString().c_str(), address.ToString().c_str(),
          (*at)->device().c_str());
}

void KernelSide::Start(int conventional_fd) {
  for (const auto& kernel : open_) {
    if (kernel->registered()) kernel->Start(conventional_fd);
  }
}

void KernelSide::Close() {
  for (auto& kernel : open_) {
    kernel->Close();
    closed_.push_back(std::move(kernel));
  }
  open_.clear();
  looked_ = false;
}

void KernelSide::Disown() {
  for (auto* listeners : {&open_, &closed_}) {
    for (auto& kernel : *listeners) kernel->Disown();
    listeners->clear();
  }
  looked_ = false;
}

void KernelSide::CountAccepted(const pm::Endpoint& address) {
  for (const auto& kernel : open_) {
    if (kernel->address() == address) kernel->CountAccepted();
  }
}

}  // namespace sdp::preload
