// Tells a polling thread whether another thread wants its core.
#ifndef SDP_PRELOAD_SOCKET_CORE_WATCH_H_
#define SDP_PRELOAD_SOCKET_CORE_WATCH_H_

namespace sdp::preload {

class CoreWatch {
 public:
  // Number of looks per offer: a look mostly makes no system call, an offer makes two.
  static constexpr int kLooksPerOffer = 4;

  CoreWatch();
  // Offers the core. Returns true if another thread has had it since this object was made. A thread that
  // queues for another core is not seen.
  [[nodiscard]] bool OfferedAndTaken();

 private:
  long set_aside_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CORE_WATCH_H_
