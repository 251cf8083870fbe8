#include "preload/socket/connection_tuning.h"

#include <cerrno>
#include <cstring>

#include "preload/user_memory.h"

namespace sdp::preload {

bool ConnectionTuning::MaySet(int name, int value) {
  switch (name) {
    case kSdpZcopyThreshold:
      return value == 0 || (value >= kLeastZcopyThreshold && value <= kMostZcopyThreshold);
    case kSdpPrivateBuffers:
      return value == 0 || (value >= kLeastPrivateBuffers && value <= kMostPrivateBuffers);
    case kSdpPrivateBufferSize:
      return value == 0 || (value >= static_cast<int>(kLeastPrivateBufferSize) &&
                            value <= static_cast<int>(kMostPrivateBufferSize));
    default:
      return false;
  }
}

int ConnectionTuning::Set(int name, const void* value, socklen_t length) {
  if (length < sizeof(int)) return EINVAL;
  if (!MayRead(value, sizeof(int))) return EFAULT;
  int number;
  std::memcpy(&number, value, sizeof number);
  if (!MaySet(name, number)) return EINVAL;
  if (name == kSdpZcopyThreshold) zcopy_threshold_ = number;
  if (name == kSdpPrivateBuffers) private_buffers_ = static_cast<uint16_t>(number);
  if (name == kSdpPrivateBufferSize) private_buffer_size_ = static_cast<uint32_t>(number);
  return 0;
}

std::optional<uint32_t> ConnectionTuning::bcopy_threshold() const {
  if (zcopy_threshold_ < 0) return std::nullopt;
  return zcopy_threshold_ == 0 ? UINT32_MAX : static_cast<uint32_t>(zcopy_threshold_);
}

}  // namespace sdp::preload
