#include "preload/socket/link_names.h"

namespace sdp::preload {

namespace {

Address ToAddress(const sockaddr_storage& name) {
  return MakeAddress(reinterpret_cast<const sockaddr*>(&name),
                     name.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

}  // namespace

LinkNames NamesOf(const verbs::DeviceLink& device) {
  sockaddr_storage local{};
  sockaddr_storage peer{};
  device.Names(&local, &peer);
  return {.local = ToAddress(local), .peer = ToAddress(peer)};
}

LinkNames NamesOf(const Session& session) {
  const verbs::DeviceLink* const device = session.queue_pair().device();
  return device != nullptr ? NamesOf(*device) : LinkNames{};
}

}  // namespace sdp::preload
