// Does another thread want the core that this one uses up by looking again and again?
#ifndef SDP_PRELOAD_SOCKET_CORE_WATCH_H_
#define SDP_PRELOAD_SOCKET_CORE_WATCH_H_

namespace sdp::preload {

class CoreWatch {
 public:
  // So many looks, each without a system call most times, for one offer, which is two.
  static constexpr int kLooksPerOffer = 4;

  CoreWatch();
  // Offers the core. True: another thread has had it since this object was made. A thread that queues for
  // another core is not seen.
  [[nodiscard]] bool OfferedAndTaken();

 private:
  long set_aside_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CORE_WATCH_H_
