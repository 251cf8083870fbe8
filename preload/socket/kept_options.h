// Socket options that the application sets and reads back, but that must not stay on the TCP socket while it
// carries iWARP. They would change what the RNIC relies on: a low-water mark, a cork, an error queue that
// fills. A socket that becomes plain TCP gets them all, and so does a listener. A value; guarded by the
// socket's lock.
//
// The kernel judges most of them: it is given the value and asked for the result, and then gets the value
// that leaves the link alone. So every rule on lengths and ranges is TCP's own. Options that programs set for
// each message are kept without a system call.
#ifndef SDP_PRELOAD_SOCKET_KEPT_OPTIONS_H_
#define SDP_PRELOAD_SOCKET_KEPT_OPTIONS_H_

#include <sys/socket.h>

#include <cstddef>
#include <vector>

#include "core/base/archive.h"
#include "core/base/types.h"
#include "preload/socket/connection_tuning.h"

namespace sdp::preload {

class KeptOptions {
 public:
  enum class Answer : uint8_t {
    kKept,    // done
    kFailed,  // errno says why
    kKernel,  // not kept here, or sure to fail in the kernel with the right error: ask the kernel
  };

  // setsockopt on `fd`, which carries iWARP or may come to carry it.
  Answer Set(int fd, int level, int name, const void* value, socklen_t length);
  // kKept: *value and *length are filled.
  Answer Get(int level, int name, void* value, socklen_t* length) const;
  // Notes an option that Set left to the kernel, and that the kernel has taken.
  void Note(int level, int name, const void* value);
  // `fd` carries iWARP and stays within this host, where there is no network to spare. From here on
  // TCP_CONGESTION is kept. The link has an algorithm that estimates no bandwidth: cubic if it has that
  // already, else reno. bbr would estimate how busy the processors were, and hold the link to that for up to
  // a second. Call it before the connect where possible: bbr continues to pace a socket that once had it.
  // Does nothing where TCP_CONGESTION is kept already.
  void ForgoCongestionControl(int fd);
  // Does so for a listener: `fd` has what its connections inherit, and they ask elsewhere for the choice.
  static void ForgoForAccepted(int fd);
  // For a connection accepted from such a listener: TCP_CONGESTION is that of `listener`, which the program
  // chose.
  void InheritCongestionControl(int listener);
  // Ends what ForgoCongestionControl did: the socket is, or will be, connected elsewhere.
  void RestoreCongestionControl(int fd);
  // Sets the kept options on a socket that is plain TCP.
  void Apply(int fd) const;
  // Returns true for options that Set may answer itself.
  static bool Keeps(int level, int name);

  // Reads and writes the options (core/base/archive.h).
  template <typename Archive>
  void Visit(Archive& ar) {
    VisitInt(ar, linger_.l_onoff);
    VisitInt(ar, linger_.l_linger);
    ar.Flag(linger_set_);
    VisitTime(ar, receive_timeout_);
    VisitTime(ar, send_timeout_);
    for (int* option : {&receive_low_water_, &no_delay_, &cork_, &oob_inline_, &zero_copy_,
                        &timestamp_option_, &send_buffer_})
      VisitInt(ar, *option);
    ar.Flag(tells_queue_);
    ar.Require(receive_low_water_ > 0 && send_buffer_ >= 0);
    VisitList(ar, judged_, kMostJudged, [&](Judged& judged) {
      VisitInt(ar, judged.level);
      VisitInt(ar, judged.name);
      ar.Number(judged.length);
      ar.Require(judged.length <= sizeof judged.value);
      ar.Octets(judged.value);
    });
    tuning_.Visit(ar);
    if (!ar.ok()) *this = {};
  }

  [[nodiscard]] const linger& linger_option() const { return linger_; }
  // Returns true for a linger time of zero: close resets the connection.
  [[nodiscard]] bool resets_at_close() const { return linger_.l_onoff != 0 && linger_.l_linger == 0; }
  [[nodiscard]] Duration receive_timeout() const { return receive_timeout_; }  // zero: none
  [[nodiscard]] Duration send_timeout() const { return send_timeout_; }
  [[nodiscard]] int receive_low_water() const { return receive_low_water_; }
  // SO_SNDBUF as the application has set it, in bytes; 0: it was not set.
  [[nodiscard]] size_t send_buffer() const { return static_cast<size_t>(send_buffer_); }
  [[nodiscard]] bool cork() const { return cork_ != 0; }
  [[nodiscard]] bool out_of_band_inline() const { return oob_inline_ != 0; }
  [[nodiscard]] bool no_delay() const { return no_delay_ != 0; }
  [[nodiscard]] bool zero_copy() const { return zero_copy_ != 0; }
  // Control messages for each recvmsg: the bytes that wait (TCP_INQ), and the time (SO_TIMESTAMP or
  // SO_TIMESTAMPNS, as the option that was set; 0: none).
  [[nodiscard]] bool tells_queue() const { return tells_queue_; }
  [[nodiscard]] int timestamp_option() const { return timestamp_option_; }
  [[nodiscard]] bool gives_control() const { return tells_queue_ || timestamp_option_ != 0; }
  // Level SOL_SDP. The kernel knows nothing of it.
  [[nodiscard]] const ConnectionTuning& tuning() const { return tuning_; }
  ConnectionTuning& tuning() { return tuning_; }

 private:
  // The kernel's value of an option that the socket may not keep.
  struct Judged {
    int level;
    int name;
    socklen_t length;
    std::byte value[16];
  };
  static constexpr uint32_t kMostJudged = 64;

  static bool ReadCongestionControl(int fd, Judged* judged);
  static bool Unpace(int fd, const Judged& had);
  int* Switch(int level, int name);
  [[nodiscard]] const Judged* FindJudged(int level, int name) const;
  void Keep(const Judged& judged);
  Answer Judge(int fd, int level, int name, const void* value, socklen_t length);
  void SetLinger(const linger& wanted);

  template <typename Archive>
  static void VisitInt(Archive& ar, int& value) {
    auto number = static_cast<uint32_t>(value);
    ar.Number(number);
    value = static_cast<int>(number);
  }
  template <typename Archive>
  static void VisitTime(Archive& ar, Duration& value) {
    auto number = static_cast<uint64_t>(value.count());
    ar.Number(number);
    ar.Require(number <= static_cast<uint64_t>(Duration::max().count()) / 4);
    value = Duration(static_cast<Duration::rep>(ar.ok() ? number : 0));
  }

  linger linger_{};
  bool linger_set_ = false;
  Duration receive_timeout_{};
  Duration send_timeout_{};
  int receive_low_water_ = 1;
  int no_delay_ = 0;
  int quick_ack_ = 1;  // not handed over: TCP's comes back by itself
  int cork_ = 0;
  int oob_inline_ = 0;
  int zero_copy_ = 0;
  bool tells_queue_ = false;
  int timestamp_option_ = 0;
  int send_buffer_ = 0;
  std::vector<Judged> judged_;
  ConnectionTuning tuning_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_KEPT_OPTIONS_H_
