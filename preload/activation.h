// Listeners that a program is started with by one without the library, systemd's way: socket units,
// LISTEN_FDS.
#ifndef SDP_PRELOAD_ACTIVATION_H_
#define SDP_PRELOAD_ACTIVATION_H_

namespace sdp::preload {

// Before the program's own code, behind what was inherited from a process with the library: they are then as
// if the program had called listen() itself. Nothing where there are none.
void TakeUpPassedListeners();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_ACTIVATION_H_
