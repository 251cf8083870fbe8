// The sockets that another program gets from this one: by exec, by posix_spawn or in a message. The socket
// room implements these functions and takes the locks. The sealed descriptor that carries the sockets' state
// is called a capsule.
#ifndef SDP_PRELOAD_INHERITANCE_H_
#define SDP_PRELOAD_INHERITANCE_H_

#include <fcntl.h>

#include <vector>

#include "preload/fail.h"
#include "preload/hidden_fds.h"
#include "preload/real_calls.h"
#include "preload/socket/socket.h"

namespace sdp::preload {

// The environment variable that names the descriptor made by SealSockets.
inline constexpr const char* kInheritedVariable = "SDP_INHERITED";

enum class Heirloom : unsigned char {
  kOpen,  // sockets with a descriptor that is not close-on-exec
  kAll,   // all sockets, whatever becomes of their descriptors
};

enum class Giver : unsigned char {
  kGoes,   // its threads end with the exec: worth waiting for a connection that is in use
  kStays,  // it keeps the connection; one in use is shared when the giver can leave its state to the other
};

// Ends connections before an exec: those that are closed, and those that the next program will not have.
// Waits, at most 5 s, until their data has left. A connection that other processes share is not ended. If the
// exec fails, the connections stay closed.
void FinishBeforeExec();
// Returns whether a closed connection still has work to do.
bool HasLingering();
// Waits a moment for connects in the background to end, since a connect under way cannot be handed over.
// Waits only once for each.
void AwaitConnects();
// Locks all sockets, as fork does, and prepares them for a program that gets them from here. Returns a
// close-on-exec descriptor for that program's AdoptSockets, or -1 if there is nothing to give or it is
// impossible. Until UnlockSockets no other thread may use a socket, so that the state given is the last one.
// If the program does not come about, close the descriptor; then everything is as before.
int SealSockets(Heirloom which, Giver giver);
// Take and release the locks alone.
void LockSockets();
void UnlockSockets();

// While this object exists, the sockets sealed for a child are at fd(), which the child inherits.
class SealedForChild {
 public:
  explicit SealedForChild(Heirloom which) {
    const int sealed = SealSockets(which, Giver::kStays);
    UnlockSockets();
    if (sealed >= 0) fd_ = HiddenFds::Hide(sealed);
    if (fd_ >= 0) real.fcntl(fd_, F_SETFD, 0);
  }
  ~SealedForChild() {
    const KeepErrno keep;
    HiddenFds::Close(fd_);
  }
  SealedForChild(const SealedForChild&) = delete;
  SealedForChild& operator=(const SealedForChild&) = delete;
  // -1: there is nothing to give, or it is impossible.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Call when a program starts. Adopts those of its descriptors that `sealed` describes as sockets. Closes
// `sealed`.
void AdoptSockets(int sealed);

enum class Receiver : unsigned char {
  kAnybody,
  kRelative,  // made by fork, and so with the memory of RelativesShare()
};
// Returns whether this process's relatives by fork share the memory of its connections. A relative need not
// trust this process's user.
bool RelativesShare();

// Call before the sockets among `fds` are passed on. Waits up to one second for their connects that are under
// way; a connect that does not end continues by TCP. Otherwise the receiver would have the RNIC's link.
// Returns false if a connect can do neither.
[[nodiscard]] bool SettleConnects(const std::vector<int>& fds);
// Returns a descriptor that holds one socket, for the receiver's AdoptSocket(), or -1 if that is impossible.
// Takes and releases the locks. First waits a moment for the peer to let go of lent memory, since the giver
// may be about to end.
int SealSocket(int fd, Receiver receiver);
// Returns whether `fd` looks like SealSocket's result. Another process may have forged it.
bool IsSealedSocket(int fd);
// Makes the socket in `fd` this process's own, under that number. If that fails, or if the maker is neither
// this user nor root nor a relative, the number becomes an unconnected socket.
void AdoptSocket(int fd);

// Returns whether the socket is an SDP connection.
bool IsConnection(Socket& socket);
// Returns whether other processes hold the SDP connection `sdp`, too.
bool IsSharedWithOthers(int sdp);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_INHERITANCE_H_
