// Socket options that the application sets and reads back, but that must not reach the TCP socket beneath while it carries iWARP:
// they would change what the RNIC relies on (a low-water mark, a cork, a lingering close). A socket that becomes plain TCP gets
// them all.
#ifndef SDP_PRELOAD_SOCKET_KEPT_OPTIONS_H_
#define SDP_PRELOAD_SOCKET_KEPT_OPTIONS_H_

#include <sys/socket.h>
#include <sys/time.h>

#include "core/base/types.h"

namespace sdp::preload {

class KeptOptions {
 public:
  enum class Answer : uint8_t { kKept, kKernel, kInvalid };

  // kKept: remembered, the kernel is not asked. kInvalid: EINVAL. kKernel: not one of ours (time-outs are noted on the way).
  Answer Set(int level, int name, const void* value, socklen_t length);
  // kKept: *value and *length are filled.
  Answer Get(int level, int name, void* value, socklen_t* length) const;
  // Sets what was kept on a socket that is plain TCP.
  void Apply(int fd) const;

  [[nodiscard]] const linger& linger_option() const { return linger_; }
  [[nodiscard]] Duration receive_timeout() const { return receive_timeout_; }  // zero: none
  [[nodiscard]] Duration send_timeout() const { return send_timeout_; }
  [[nodiscard]] int receive_low_water() const { return receive_low_water_; }
  [[nodiscard]] bool cork() const { return cork_ != 0; }
  [[nodiscard]] bool out_of_band_inline() const { return oob_inline_ != 0; }

 private:
  int* IntSlot(int level, int name);

  linger linger_{};
  bool linger_set_ = false;
  Duration receive_timeout_{};
  Duration send_timeout_{};
  int receive_low_water_ = 1;
  int no_delay_ = 0;
  int cork_ = 0;
  int oob_inline_ = 0;
  int fast_open_connect_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_KEPT_OPTIONS_H_
