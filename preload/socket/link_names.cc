#include "preload/socket/link_names.h"

namespace sdp::preload {

LinkNames NamesOf(const Session& session) {
  const verbs::DeviceLink* const device = session.queue_pair().device();
  if (device == nullptr) return {};
  sockaddr_storage local{};
  sockaddr_storage peer{};
  device->Names(&local, &peer);
  return {.local = MakeAddress(reinterpret_cast<const sockaddr*>(&local), sizeof local),
          .peer = MakeAddress(reinterpret_cast<const sockaddr*>(&peer), sizeof peer)};
}

}  // namespace sdp::preload
