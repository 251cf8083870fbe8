// Signals for the owner of a descriptor (fcntl(2): F_SETOWN, F_SETSIG, O_ASYNC), where the kernel cannot know
// what has happened on the socket. Owner and signal are those that the kernel keeps for the open file, so
// that they are the same for all who share it. That a link has bytes or room the kernel knows by itself.
//
// errno stays as it was. Locks may be held: what the signal's handler does, it does behind them
// (preload/critical.h).
#ifndef SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_
#define SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_

namespace sdp::preload {

// Somebody is to be told by signals of what happens on the open file behind `fd`.
bool HasOwner(int fd);
// The peer has announced urgent data on the application's descriptor `fd`: SIGURG, and where O_ASYNC and
// F_SETSIG are set, that signal. True if this process is among those who get it.
bool SignalUrgent(int fd);
// A listener has a connection to accept: with O_ASYNC the signal of F_SETSIG, else SIGIO. `fd`: any
// descriptor of its open file; `number`: the application's.
void SignalConnection(int fd, int number);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OWNER_SIGNAL_H_
