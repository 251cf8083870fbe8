// A program's choices for one connection, at level SOL_SDP (native_family.h): the Bcopy threshold and the
// receive Private Buffers. A listener's choices apply to the connections it accepts. Choices not made are as
// configured. A value; guarded by the socket's lock.
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
  // Returns true if the set-up tells the peer of the option, which cannot be changed afterwards.
  static bool IsForSetUp(int name) { return name != kSdpZcopyThreshold; }
  // setsockopt of an option that it Knows. Returns 0 or the errno: EINVAL beyond the limits, which are those
  // of the configuration.
  int Set(int name, const void* value, socklen_t length);

  // Returns the size in bytes beyond which sends and receives may use another way than Bcopy; UINT32_MAX:
  // none does.
  [[nodiscard]] std::optional<uint32_t> bcopy_threshold() const;
  // Returns SDP_ZCOPY_THRESH as set; -1: it was not set.
  [[nodiscard]] int zcopy_threshold() const { return zcopy_threshold_; }
  // Return the number of receive Private Buffers, and the bytes of each with headers; 0: as configured.
  [[nodiscard]] uint16_t private_buffers() const { return private_buffers_; }
  [[nodiscard]] uint32_t private_buffer_size() const { return private_buffer_size_; }
  // SO_RCVBUF as the program has set it, in bytes; 0: it was not set.
  void SetReceiveBuffer(uint32_t bytes) { receive_buffer_ = bytes; }
  [[nodiscard]] uint32_t receive_buffer() const { return receive_buffer_; }

  // Reads and writes the choices (core/base/archive.h).
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
