// What a program may choose for one connection of its own, at level SOL_SDP (native_family.h): the Bcopy
// threshold and the receive Private Buffers. A listener's choice is that of the connections it accepts. What
// is not chosen is as configured.
#ifndef SDP_PRELOAD_SOCKET_CONNECTION_TUNING_H_
#define SDP_PRELOAD_SOCKET_CONNECTION_TUNING_H_

#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "preload/config.h"
#include "preload/native_family.h"

namespace sdp::preload {

class ConnectionTuning {
 public:
  static bool Knows(int name) {
    return name == kSdpZcopyThreshold || name == kSdpPrivateBuffers || name == kSdpPrivateBufferSize;
  }
  // It is told to the peer when the connection is set up, and cannot be chosen any more afterwards.
  static bool IsForSetUp(int name) { return name != kSdpZcopyThreshold; }
  // setsockopt of an option that it Knows. 0, or the errno: EINVAL beyond the limits, which are those of the
  // configuration.
  int Set(int name, const void* value, socklen_t length);

  // Sends and receives of more bytes may go otherwise than by copying; UINT32_MAX: none.
  [[nodiscard]] std::optional<uint32_t> bcopy_threshold() const;
  // SDP_ZCOPY_THRESH as it was set; -1: it was not.
  [[nodiscard]] int zcopy_threshold() const { return zcopy_threshold_; }
  // How many receive Private Buffers, and bytes of each with headers; 0: as configured.
  [[nodiscard]] uint16_t private_buffers() const { return private_buffers_; }
  [[nodiscard]] uint32_t private_buffer_size() const { return private_buffer_size_; }
  // SO_RCVBUF as the program has set it, bytes; 0: it has not.
  void SetReceiveBuffer(uint32_t bytes) { receive_buffer_ = bytes; }
  [[nodiscard]] uint32_t receive_buffer() const { return receive_buffer_; }

  // To bytes and from them (core/base/archive.h).
  template <typename Archive>
  void Visit(Archive& ar) {
    auto threshold = static_cast<uint32_t>(zcopy_threshold_);
    ar.Number(threshold);
    zcopy_threshold_ = static_cast<int>(threshold);
    ar.Number(private_buffers_);
    ar.Number(private_buffer_size_);
    ar.Number(receive_buffer_);
    ar.Require(MaySet(kSdpZcopyThreshold, zcopy_threshold_) || zcopy_threshold_ == -1);
    ar.Require(MaySet(kSdpPrivateBuffers, private_buffers_));
    ar.Require(private_buffer_size_ <= kMostPrivateBufferSize &&
               MaySet(kSdpPrivateBufferSize, static_cast<int>(private_buffer_size_)));
  }

 private:
  static bool MaySet(int name, int value);

  int zcopy_threshold_ = -1;
  uint16_t private_buffers_ = 0;
  uint32_t private_buffer_size_ = 0;
  uint32_t receive_buffer_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CONNECTION_TUNING_H_
