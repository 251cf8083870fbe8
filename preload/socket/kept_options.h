// Socket options that the application sets and reads back, but that must not stay on the TCP socket beneath
// while it carries iWARP: they would change what the RNIC relies on (a low-water mark, a cork, an error queue
// that fills). A socket that becomes plain TCP gets them all, and so does a listener.
//
// Most are judged by the kernel: it is given the value, asked for what it made of it, and given back the
// value that leaves the link alone. So every rule on lengths and ranges is TCP's own. Those that programs set
// for each message are kept without a system call.
#ifndef SDP_PRELOAD_SOCKET_KEPT_OPTIONS_H_
#define SDP_PRELOAD_SOCKET_KEPT_OPTIONS_H_

#include <sys/socket.h>
#include <sys/time.h>

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
    kKernel,  // not one of ours, or sure to fail there with the right error: ask the kernel
  };

  // setsockopt on `fd`, which carries, or may come to carry, iWARP.
  Answer Set(int fd, int level, int name, const void* value, socklen_t length);
  // kKept: *value and *length are filled.
  Answer Get(int level, int name, void* value, socklen_t* length) const;
  // The kernel has taken this option, which Set left to it: what we want to know of it.
  void Note(int level, int name, const void* value);
  // `fd` carries iWARP and stays within this host, where there is no network to spare: from here on
  // TCP_CONGESTION is kept, and the link has one that estimates no bandwidth: cubic where it has that, else
  // reno. What bbr takes for it is how busy the processors were, and it holds the link to that for as long as
  // a second. Before it is connected, where that is known: bbr goes on pacing a socket that it once had.
  // Nothing happens where TCP_CONGESTION is kept already.
  void ForgoCongestionControl(int fd);
  // The same of a listener whose connections are to be asked about elsewhere: `fd` has what they inherit.
  static void ForgoForAccepted(int fd);
  // Of a connection accepted from such a listener: TCP_CONGESTION is that of `listener`, the one that the
  // program has.
  void InheritCongestionControl(int listener);
  // And no longer, since it is, or will be, connected elsewhere.
  void RestoreCongestionControl(int fd);
  // Sets what was kept on a socket that is plain TCP.
  void Apply(int fd) const;
  // True for options that Set may answer itself.
  static bool Keeps(int level, int name);

  // To bytes and from them (core/base/archive.h).
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
  [[nodiscard]] Duration receive_timeout() const { return receive_timeout_; }  // zero: none
  [[nodiscard]] Duration send_timeout() const { return send_timeout_; }
  [[nodiscard]] int receive_low_water() const { return receive_low_water_; }
  // SO_SNDBUF as the application has set it, in bytes; 0: it has not.
  [[nodiscard]] size_t send_buffer() const { return static_cast<size_t>(send_buffer_); }
  [[nodiscard]] bool cork() const { return cork_ != 0; }
  [[nodiscard]] bool out_of_band_inline() const { return oob_inline_ != 0; }
  [[nodiscard]] bool zero_copy() const { return zero_copy_ != 0; }
  // Control messages for each recvmsg: the bytes that wait (TCP_INQ), the time (SO_TIMESTAMP and
  // SO_TIMESTAMPNS, as the option that was set; 0: none).
  [[nodiscard]] bool tells_queue() const { return tells_queue_; }
  [[nodiscard]] int timestamp_option() const { return timestamp_option_; }
  [[nodiscard]] bool gives_control() const { return tells_queue_ || timestamp_option_ != 0; }
  // Level SOL_SDP. The kernel knows nothing of it.
  [[nodiscard]] const ConnectionTuning& tuning() const { return tuning_; }
  ConnectionTuning& tuning() { return tuning_; }

 private:
  // What the kernel made of an option that it may not keep.
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
