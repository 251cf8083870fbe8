// The lock of a StreamSocket. While several processes hold the connection, it spans them all. Its holder has
// the connection's newest state, and leaves that to the other processes on unlock.
#ifndef SDP_PRELOAD_SOCKET_SOCKET_MUTEX_H_
#define SDP_PRELOAD_SOCKET_SOCKET_MUTEX_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "preload/critical.h"

namespace sdp::preload {

class StreamSocket;

// What may go the express way (stream_socket_express.cc).
enum class Express : bool {
  kAll,
  kLeftovers,  // receives of what is left of a message that a receive has begun
};

class SocketMutex {
 public:
  // Excludes only threads of this process. An owner may change anything about the socket, and so closes its
  // express way (stream_socket_express.cc). ExpressLock does not.
  class Own {
   public:
    void lock() {
      mutex_.lock();
      set_express_calls(0);
    }
    bool try_lock() {
      if (!mutex_.try_lock()) return false;
      set_express_calls(0);
      return true;
    }
    void unlock() { mutex_.unlock(); }

   private:
    friend class ExpressLock;
    friend class SocketMutex;
    static constexpr uint32_t kLeftoversAlone = 1U << 31;
    // Returns how many calls may still go the express way, before one looks at everything again.
    [[nodiscard]] uint32_t express_calls() const { return express() & ~kLeftoversAlone; }
    [[nodiscard]] bool leftovers() const { return (express() & kLeftoversAlone) != 0; }
    void set_express_calls(uint32_t calls, bool leftovers = false) {
      express_.store(calls | (leftovers ? kLeftoversAlone : 0), std::memory_order_relaxed);
    }
    [[nodiscard]] uint32_t express() const { return express_.load(std::memory_order_relaxed); }

    Mutex mutex_;
    // The calls left, and kLeftoversAlone. Written with the lock held. One word: express_open() reads it
    // without the lock.
    std::atomic<uint32_t> express_{0};
  };

  explicit SocketMutex(StreamSocket* socket) : socket_(socket) {}
  void lock() {
    own_.lock();
    if (shared()) EnterOrUnlock();
  }
  bool try_lock() {
    if (!own_.try_lock()) return false;
    if (shared()) EnterOrUnlock();
    return true;
  }
  void unlock() {
    if (shared()) Leave();
    own_.unlock();
  }

  // For what does not look at the connection.
  Own& own() { return own_; }
  // With own() locked: the rest of lock().
  void Enter();
  // With own() locked.
  void set_shared(bool shared) { shared_.store(shared, std::memory_order_relaxed); }
  [[nodiscard]] bool shared() const { return shared_.load(std::memory_order_relaxed); }
  // With the lock held: so many calls may go the express way, unless another owner comes first.
  void OpenExpress(uint32_t calls, Express way = Express::kAll) {
    own_.set_express_calls(calls, way == Express::kLeftovers);
  }
  // Returns true if all may go the express way at this moment. Needs no lock.
  [[nodiscard]] bool express_open() const {
    const uint32_t express = own_.express();
    return express != 0 && (express & Own::kLeftoversAlone) == 0;
  }

 private:
  void Leave();
  // Leaves nothing locked if it throws.
  void EnterOrUnlock();

  Own own_;
  StreamSocket* const socket_;
  std::atomic<bool> shared_{false};
};

// Takes the lock for a call on the express way, if that is open. With kLeftovers it also takes a way that is
// open for leftovers alone.
class ExpressLock {
 public:
  explicit ExpressLock(SocketMutex& mutex, Express way = Express::kAll) : own_(mutex.own()) {
    if (!IsOpen(way)) return;  // or each call would lock twice
    own_.mutex_.lock();
    Take(way);
  }
  // Does not wait for the lock: the caller may hold a lock that comes later in the lock order.
  ExpressLock(SocketMutex& mutex, std::try_to_lock_t /*tries*/) : own_(mutex.own()) {
    if (IsOpen(Express::kAll) && own_.mutex_.try_lock()) Take(Express::kAll);
  }
  ~ExpressLock() { Unlock(); }
  ExpressLock(const ExpressLock&) = delete;
  ExpressLock& operator=(const ExpressLock&) = delete;
  // Returns false if the way is closed, and the caller has no lock.
  [[nodiscard]] bool taken() const { return taken_; }
  // For a lock that is taken: returns true if the way is open for leftovers alone.
  [[nodiscard]] bool leftovers() const { return own_.leftovers(); }
  // For a caller that sets errno: the handler of a signal may run here.
  void Unlock() {
    if (std::exchange(taken_, false)) own_.mutex_.unlock();
  }
  // The next call looks at everything again.
  void Close() { own_.set_express_calls(0); }

 private:
  [[nodiscard]] bool IsOpen(Express way) const {
    return own_.express_calls() != 0 && (!own_.leftovers() || way == Express::kLeftovers);
  }
  void Take(Express way) {
    taken_ = IsOpen(way);
    taken_ ? own_.set_express_calls(own_.express_calls() - 1, own_.leftovers()) : own_.mutex_.unlock();
  }

  SocketMutex::Own& own_;
  bool taken_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SOCKET_MUTEX_H_
