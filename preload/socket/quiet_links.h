// Connections that the program leaves alone for a while. What their peers say wants an answer all the same:
// credit (SDP 10.5), SrcAvailCancel (9.5.4), SuspComm (13.1.1), a broken rule. The helper thread gives it,
// within a second.
//
// A connection is in use or watched. Every kLook the helper looks at those in use. If no thread has read a
// link lately, an epoll descriptor of the library's watches it from then on. A watched link that has
// something to be read counts as in use again; if no thread has read that by the next look, the helper does.
// So a busy process costs one wake-up of the helper a look, its calls cost nothing, and a process whose peers
// say nothing makes no system call at all.
#ifndef SDP_PRELOAD_SOCKET_QUIET_LINKS_H_
#define SDP_PRELOAD_SOCKET_QUIET_LINKS_H_

#include <cstdint>

#include "core/base/types.h"
#include "preload/socket/socket.h"

namespace sdp::preload {

class QuietLinks {
 public:
  // How often the helper looks, and how long nobody has read a link that is watched. Both together are less
  // than a second.
  static constexpr Duration kLook = std::chrono::milliseconds(850);
  static constexpr Duration kUnread = std::chrono::milliseconds(50);

  // One connection: a part of its socket, whose lock is held around Enter, Leave, Watch and Unwatch.
  class Link {
   public:
    virtual ~Link() = default;
    // Referenced while the helper calls the link.
    virtual Socket* owner() = 0;
    // Both on the helper's thread, with no lock held. LookIfUnread() lets the link be watched if no thread
    // has read it since `since`; TakeUnread() takes what the link has, and then lets it be watched. Neither
    // blocks; each calls Watch, Leave or nothing, and then comes again.
    virtual void LookIfUnread(Time since) = 0;
    virtual void TakeUnread() = 0;

   private:
    friend class QuietLinks;
    uint32_t known_in_ = 0;  // the generation of processes in which the link has a place; 0: none
    uint32_t place_ = 0;
  };

  // The link is in use from now on. Nothing where it is known already, where there is no helper thread to be
  // had, or no memory.
  static void Enter(Link* link);
  // The connection is over here. At the latest in the owner's destructor.
  static void Leave(Link* link);
  // `fd` tells when the link has something to be read. False where there is no descriptor or no memory for
  // that: the link stays in use, and the caller reads it.
  static bool Watch(Link* link, int fd);
  // Before `fd` is closed, or stands for something else. The link counts as in use.
  static void Unwatch(Link* link, int fd);

  // A seccomp filter is about to be set (confinement.h), or was refused after all.
  static void Stop();
  static void GoOn();
  // Around fork, with the sockets' locks held; Forget in the child.
  static void LockForFork();
  static void UnlockAfterFork();
  static void ForgetAfterFork();

 private:
  struct State;
  class Task;
  static State& state();
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_QUIET_LINKS_H_
