#include "preload/socket/stream_parts.h"

#include <mutex>

#include "preload/socket/co_holders.h"

namespace sdp::preload {

int StreamParts::OtherDescriptor(int fd) {
  std::lock_guard lock(mutex_);
  return numbers_.OtherThan(fd);
}

bool StreamParts::OnLocalLink() const {
  const Session* const session = session_.last_known();
  if (session == nullptr) return false;
  const verbs::Pollable* const pollable = session->queue_pair().pollable();
  return pollable != nullptr && pollable->always_told();
}

bool StreamParts::IsCommon(int fd) const { return !family_.native && OthersHold(fd, share_.co_holders); }

int StreamParts::NumberNow(int fd) const {
  return fd < 0 || numbers_.Has(fd) || LinkFd() < 0 ? fd : LinkFd();  // none: it is just being closed
}

}  // namespace sdp::preload
