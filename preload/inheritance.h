// The sockets that another program gets from this one: by exec, by posix_spawn, in a message. Implemented by
// the socket room.
#ifndef SDP_PRELOAD_INHERITANCE_H_
#define SDP_PRELOAD_INHERITANCE_H_

#include <vector>

#include "preload/socket/socket.h"

namespace sdp::preload {

// The environment variable that names the descriptor with what SealSockets made.
inline constexpr const char* kInheritedVariable = "SDP_INHERITED";

enum class Heirloom : unsigned char {
  kOpen,  // sockets with a descriptor that is not close-on-exec
  kAll,   // whatever will become of the descriptors
};

enum class Giver : unsigned char {
  kGoes,   // its threads end with it: a connection that is in use is worth a wait
  kStays,  // a connection that is in use is both processes' when the giver, which goes on with it, can leave
           // its state to the other
};

// Connections that are closed, and those that the program about to come will not have, end before it comes,
// since nobody goes on with them then: waits until what they had to send has left, 5 s at most. Not of a
// process that shares them with others. Where no program comes after all, those are closed.
void FinishBeforeExec();
// There are connections that have been closed and are not over.
bool HasLingering();
// Connects that are under way in the background, and end soon, end: there is nothing that could be handed
// over of one. Once for each.
void AwaitConnects();
// Locks all sockets, as fork does, and readies them for a program that gets them from here: a descriptor
// (close-on-exec) for its AdoptSockets; -1: there is nothing to give, or it cannot be done. Until
// UnlockSockets no other thread may use a socket, so that the state that was given is the last one. When no
// such program comes about, close the descriptor, and all is as before.
int SealSockets(Heirloom which, Giver giver);
// The locks alone.
void LockSockets();
void UnlockSockets();

// In a program that starts: makes its own those sockets, among the descriptors it has, that `sealed` knows.
// Closes `sealed`.
void AdoptSockets(int sealed);

enum class Receiver : unsigned char {
  kAnybody,
  kRelative,  // made by fork since RelativesShare()
};
// Whoever this process has made by fork shares its connections' memory, and needs not trust its user.
bool RelativesShare();

// Of those among `fds` that are sockets and about to be passed on, as whatever it may be: connects that are
// under way end, within a second, or go on by TCP; whoever had their descriptor would have the RNIC's link.
// False: one can do neither.
[[nodiscard]] bool SettleConnects(const std::vector<int>& fds);
// One socket, with its descriptor, for whoever AdoptSocket()s it; -1: cannot be done. Locks and unlocks;
// first waits a moment for memory that the peer has of it: whoever passes a connection on may be about to
// end.
int SealSocket(int fd, Receiver receiver);
// `fd` is what SealSocket made, or somebody who pretends that.
bool IsSealedSocket(int fd);
// Makes the socket in `fd` this process's own, under that number. Where that cannot be done, and where
// neither this user nor root nor a relative has made it, the number stands for a socket that is not
// connected.
void AdoptSocket(int fd);

// It is an SDP connection.
bool IsConnection(Socket& socket);
// The SDP connection `sdp` is held by other processes, too.
bool IsSharedWithOthers(int sdp);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_INHERITANCE_H_
