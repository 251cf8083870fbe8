// Sends signals to the owner of a descriptor (fcntl(2): F_SETOWN, F_SETSIG, O_ASYNC) for events that the
// kernel cannot know. Owner and signal are those that the kernel keeps for the open file, so all that share
// it have the same ones. The kernel itself signals that a link has bytes or room.
//
// Keeps errno. The caller may hold locks: the signal's handler runs once they are released
// (preload/critical.h).
#ifndef SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_
#define SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_

#include <atomic>

namespace sdp::preload {

// Returns true if the open file of `fd` has an owner that gets signals.
bool HasOwner(int fd);
// The peer has announced urgent data on the application's descriptor `fd`: sends SIGURG, and with O_ASYNC and
// F_SETSIG that signal too. Returns true if this process, or the calling thread, is among the receivers.
bool SignalUrgent(int fd);

// Signals of the connections that a listener has to accept: with O_ASYNC, that of F_SETSIG, else SIGIO.
class ConnectionSignal {
 public:
  ConnectionSignal() = default;
  ConnectionSignal(const ConnectionSignal&) = delete;
  ConnectionSignal& operator=(const ConnectionSignal&) = delete;
  ~ConnectionSignal() { Set(-1); }
  // `fd`: the application's descriptor of the conventional listener; -1: no signals.
  void Set(int fd);
  // A connection waits.
  void Notify() const;

 private:
  std::atomic<int> fd_{-1};  // hidden; of the open file, which knows the owner
  int number_ = -1;          // the application's
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_
