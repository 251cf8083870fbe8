// What the library adds to one of the application's epoll descriptors.
//
// The application's epoll descriptor stays a kernel epoll: whatever is not an SDP socket is registered there as ever, so it works
// shared, nested and inherited. SDP sockets are registered in an inner epoll descriptor, which is itself registered in the
// application's with a cookie no program can use. When the cookie comes up, the inner descriptor says which links have something; the
// sockets take it, and what the application asked to hear of is reported.
//
//   application's epoll ──┬── its other descriptors, conventional listeners and their SDP listeners (same data)
//                         └── inner epoll (cookie) ──┬── links of SDP sockets
//                                                    └── kick: an eventfd, for readiness that comes from another thread's call
//
// Locks: `mutex_` is the last in every order; sockets are called without it.
#ifndef SDP_PRELOAD_READINESS_EPOLL_SET_H_
#define SDP_PRELOAD_READINESS_EPOLL_SET_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class EpollSet final : public ReadinessObserver {
 public:
  // For the epoll descriptor `epfd`; null with errno if it is none, or no descriptor is left.
  static std::shared_ptr<EpollSet> Open(int epfd);
  ~EpollSet() override;

  // EPOLL_CTL_* of a managed socket.
  int Control(int epfd, int operation, int fd, epoll_event* event);
  // Whether `fd` is registered here rather than with the kernel (its socket may be plain by now).
  bool Has(int fd);
  // The number `fd` is closed by the application.
  void Forget(int fd);
  // The epoll descriptor itself is closed for good: detaches from every socket.
  void Close();
  int Wait(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask);
  // For poll on the epoll descriptor itself: whether a wait would report something of ours at once.
  bool ProgressAndCheck();

  // ReadinessObserver, with the socket's lock held.
  void OnChange(int fd) override;
  void OnWatch(int fd, short events) override;
  void OnPlain(int fd) override;

  void LockForFork() { mutex_.lock(); }
  void UnlockAfterFork() { mutex_.unlock(); }

 private:
  struct Entry {
    SocketRef socket;
    uint32_t events = 0;  // as the application gave them
    epoll_data_t data{};
    bool armed = true;       // EPOLLONESHOT: false once reported
    bool candidate = false;  // in candidates_
    short registered = 0;    // in the inner epoll, poll events; 0: not
    uint64_t seen_read_edge = ~uint64_t{0};
    uint64_t seen_write_edge = ~uint64_t{0};
  };

  explicit EpollSet(int epfd) : epfd_(epfd) {}
  int ControlListener(int epfd, int operation, int fd, epoll_event* event, const StreamSocket::Readiness& readiness);
  int Add(int fd, StreamSocket* socket, epoll_event* event);
  void MakeCandidate(int fd, Entry& entry);
  bool HasCandidates();
  void ProgressLinks();
  int Report(epoll_event* events, int max_events);
  // What a wait would report of the entry now; 0: nothing.
  static uint32_t Holding(const Entry& entry, const StreamSocket::Readiness& readiness);
  bool ReportOne(int fd, const StreamSocket::Readiness& readiness, epoll_event* out);
  int MergeListeners(epoll_event* events, int first, int end);
  void Kick();

  const int epfd_;  // the first number it was known by; for registrations made outside a call on it
  std::atomic<int> inner_{-1};
  std::atomic<int> kick_{-1};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::unordered_map<int, Entry> entries_;
  std::vector<int> candidates_;  // numbers that may have something to report
  std::vector<epoll_data_t> listener_data_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_EPOLL_SET_H_
