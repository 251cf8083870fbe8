// Listeners in an epoll set. The conventional listener stands in the application's epoll descriptor, and
// beside it, with the same tag, the queues of SDP connections whose handshake is complete: this process's
// queue, and the one that it may share with others. The SDP listener itself stands in the set's inner epoll:
// it only says that a peer connects.
//
// This part takes the set's lock by itself, and calls sockets and epoll_ctl without it.
#ifndef SDP_PRELOAD_READINESS_LISTENER_REGISTRATIONS_H_
#define SDP_PRELOAD_READINESS_LISTENER_REGISTRATIONS_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "preload/critical.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class ListenerRegistrations {
 public:
  // `mutex`: the set's; `inner`: its inner epoll.
  ListenerRegistrations(Mutex& mutex, const std::atomic<int>& inner) : mutex_(mutex), inner_(inner) {}

  // What events of SDP listeners in the inner epoll are marked with, beside descriptor numbers.
  static uint64_t MarkOf(int sdp_fd) { return kMark | static_cast<uint64_t>(sdp_fd); }
  static bool IsMarked(uint64_t data) { return data >> 62 == 1; }
  static int SdpFdOf(uint64_t data) { return static_cast<int>(data & ~kMark); }

  // epoll_ctl of a listener. `number`: what it is registered by; `fd`: the application's number for it, or
  // -1.
  int Control(int epfd, int operation, int number, int fd, StreamSocket* socket, epoll_event* event,
              const StreamSocket::Readiness& readiness);
  // The registration is about to be armed again.
  void Arm(int fd);
  // The number is closed.
  void Forget(int fd);
  // The set is closed.
  void Clear();

  // A peer connects at the SDP listener: shakes hands where that can be done at once.
  void TakeOn(int sdp_fd);
  // The SDP listener was shut down, by this process or another one.
  void Drop(int sdp_fd);
  // Reports listeners at which accept has to say what is wrong; returns how many.
  int Report(epoll_event* events, int max_events);
  // Gives events of listeners in [first, end) the application's data, one event a listener, and takes out
  // those that are none; returns the new end.
  int Merge(epoll_event* events, int first, int end);
  // With the lock held.
  [[nodiscard]] bool HasData(uint64_t data) const;

 private:
  // What the descriptors of a listener are registered with in the application's epoll, in place of its data:
  // by its address an event tells whose it is, whatever data other registrations have. One a number; it lives
  // as long as the set, as the kernel's registration does as long as any process has the listener.
  struct Tag {
    int number;           // -1: closed, and a duplicate of it keeps the registration alive
    epoll_data_t data;    // the application's
    uint32_t events = 0;  // likewise
  };
  // A listener that is registered, and its SDP side in the inner epoll.
  struct Request {
    SocketRef socket;
    Tag* tag;
    int fd;      // -1: closed, and a duplicate keeps it alive
    int sdp_fd;  // -1: none in this process
    epoll_event wanted;
    bool armed;
    bool refused;  // cannot be taken on: accept has to say why
  };

  static constexpr uint64_t kMark = uint64_t{1} << 62;

  int ControlTagged(int epfd, int operation, int number, const epoll_event& event,
                    const StreamSocket::Readiness& readiness);
  void WatchRequests(int operation, int number, int fd, StreamSocket* socket, const epoll_event* event,
                     int sdp_fd);
  // With the lock held:
  Tag& TagOf(int number);
  Tag* TagIn(const epoll_event& event) const;
  Request* Find(int fd, const StreamSocket* socket);
  void Unwatch(int sdp_fd);
  // An event of the kernel's for a listener's registration is worth a report; with EPOLLONESHOT the first is.
  bool TakeShot(const Tag* tag);

  Mutex& mutex_;
  const std::atomic<int>& inner_;
  std::vector<Request> requests_;
  std::vector<std::unique_ptr<Tag>> tags_;  // by address
  std::atomic<bool> has_tags_{false};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_LISTENER_REGISTRATIONS_H_
