// The listeners in an epoll set. Each conventional listener is registered in the application's epoll
// descriptor. With the same tag, so are its queues of SDP connections whose handshake is complete: this
// process's own queue, and a queue it may share with other processes. The SDP listener itself is in the set's
// inner epoll, and only says that a peer connects.
//
// This part takes the set's lock itself. It calls sockets and epoll_ctl without the lock.
#ifndef SDP_PRELOAD_READINESS_LISTENER_REGISTRATIONS_H_
#define SDP_PRELOAD_READINESS_LISTENER_REGISTRATIONS_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "preload/critical.h"
#include "preload/socket/watch.h"

namespace sdp::preload {

class ListenerRegistrations {
 public:
  // `mutex` is the set's lock, `inner` its inner epoll.
  ListenerRegistrations(Mutex& mutex, const std::atomic<int>& inner) : mutex_(mutex), inner_(inner) {}

  // Marks the events of SDP listeners in the inner epoll, where other entries carry descriptor numbers.
  static uint64_t MarkOf(int sdp_fd) { return kMark | static_cast<uint64_t>(sdp_fd); }
  static bool IsMarked(uint64_t data) { return data >> 62 == 1; }
  static int SdpFdOf(uint64_t data) { return static_cast<int>(data & ~kMark); }

  // epoll_ctl for a listener. `number` is the number to register; `fd` is the application's number for the
  // listener, or -1.
  int Control(int epfd, int operation, int number, int fd, StreamSocket* socket, epoll_event* event,
              const Watch::Readiness& readiness);
  // Call before the kernel arms the registration again.
  void Arm(int fd);
  // The application has closed the number.
  void Forget(int fd);
  // The set has been closed.
  void Clear();
  // In the child of a fork, with the lock held: the inner epoll is the parent's, too. A listener that the
  // child closes stays there.
  void Disown() { disowned_ = true; }

  // A peer connects at the SDP listener. Does the handshake, if that is possible at once.
  void TakeOn(int sdp_fd);
  // A process, perhaps another one, has shut the SDP listener down.
  void Drop(int sdp_fd);
  // Reports the listeners whose accept has an error to return. Returns their number. The caller holds the
  // lock.
  int Report(epoll_event* events, int max_events);
  // Works on the events in [first, end). Each registered listener keeps one event, with the application's
  // data; events that report nothing are removed. Returns the new end.
  int Merge(epoll_event* events, int first, int end);
  // The caller holds the lock.
  [[nodiscard]] bool HasData(uint64_t data) const;

 private:
  // The data under which a listener's descriptors are registered in the application's epoll. An event carries
  // the tag's address, which identifies the listener whatever data other registrations have. Each number has
  // one tag. A tag lives as long as the set, since the kernel keeps the registration while any process has
  // the listener.
  struct Tag {
    int number;           // -1: closed, but a duplicate keeps the registration alive
    epoll_data_t data;    // the application's
    uint32_t events = 0;  // the application's
  };
  // A registered listener, with its SDP side in the inner epoll.
  struct Request {
    SocketRef socket;
    Tag* tag;
    int fd;      // -1: closed, but a duplicate keeps the listener open
    int sdp_fd;  // -1: none in this process
    epoll_event wanted;
    bool armed;
    bool refused;  // the handshake is impossible: accept has to return the error
  };

  static constexpr uint64_t kMark = uint64_t{1} << 62;

  int ControlTagged(int epfd, int operation, int number, const epoll_event& event,
                    const Watch::Readiness& readiness);
  void WatchRequests(int operation, int number, int fd, StreamSocket* socket, const epoll_event* event,
                     int sdp_fd);
  // The caller holds the lock:
  Tag& TagOf(int number);
  Tag* TagIn(const epoll_event& event) const;
  Request* Find(int fd, const StreamSocket* socket);
  void Unwatch(int sdp_fd);
  // Returns whether the kernel's event for a listener is to be reported. With EPOLLONESHOT only the first one
  // is.
  bool TakeShot(const Tag* tag);

  Mutex& mutex_;
  const std::atomic<int>& inner_;
  std::vector<Request> requests_;
  std::vector<std::unique_ptr<Tag>> tags_;  // by address
  std::atomic<bool> has_tags_{false};
  bool disowned_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_LISTENER_REGISTRATIONS_H_
