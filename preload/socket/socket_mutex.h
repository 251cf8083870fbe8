// The lock of a StreamSocket. While several processes hold the connection, it spans them all. Its holder has
// the connection's newest state, and leaves that to the other processes on unlock.
#ifndef SDP_PRELOAD_SOCKET_SOCKET_MUTEX_H_
#define SDP_PRELOAD_SOCKET_SOCKET_MUTEX_H_

#include <atomic>

#include "preload/critical.h"

namespace sdp::preload {

class StreamSocket;

class SocketMutex {
 public:
  explicit SocketMutex(StreamSocket* socket) : socket_(socket) {}
  void lock() {
    own_.lock();
    if (shared()) Enter();
  }
  bool try_lock() {
    if (!own_.try_lock()) return false;
    if (shared()) Enter();
    return true;
  }
  void unlock() {
    if (shared()) Leave();
    own_.unlock();
  }

  // Excludes only threads of this process: for what does not look at the connection.
  Mutex& own() { return own_; }
  // With own() locked: the rest of lock().
  void Enter();
  // With own() locked.
  void set_shared(bool shared) { shared_.store(shared, std::memory_order_relaxed); }
  [[nodiscard]] bool shared() const { return shared_.load(std::memory_order_relaxed); }

 private:
  void Leave();

  Mutex own_;
  StreamSocket* const socket_;
  std::atomic<bool> shared_{false};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SOCKET_MUTEX_H_
