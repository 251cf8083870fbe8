// Listeners that a program without the library passes to this program at its start, in systemd's way: socket
// units, LISTEN_FDS.
#ifndef SDP_PRELOAD_ACTIVATION_H_
#define SDP_PRELOAD_ACTIVATION_H_

namespace sdp::preload {

// Call before the program's own code, after sockets inherited from a process with the library were adopted.
// The passed listeners then are as if the program had called listen() itself. Does nothing if there are none.
void TakeUpPassedListeners();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_ACTIVATION_H_
