// Sends signals to the owner of a descriptor (fcntl(2): F_SETOWN, F_SETSIG, O_ASYNC) for events that the
// kernel cannot know. Owner and signal are those that the kernel keeps for the open file, so all that share
// it have the same ones. The kernel itself signals that a link has bytes or room.
//
// Keeps errno. The caller may hold locks: the signal's handler runs once they are released
// (preload/critical.h).
#ifndef SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_
#define SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_

namespace sdp::preload {

// Returns true if the open file of `fd` has an owner that gets signals.
bool HasOwner(int fd);
// The peer has announced urgent data on the application's descriptor `fd`: sends SIGURG, and with O_ASYNC and
// F_SETSIG that signal too. Returns true if this process, or the calling thread, is among the receivers.
bool SignalUrgent(int fd);
// A listener has a connection to accept: with O_ASYNC, sends the signal of F_SETSIG, else SIGIO. `fd`: any
// descriptor of its open file; `number`: the application's.
void SignalConnection(int fd, int number);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_
