// Watches over connections that the program leaves alone for a while. Their peers may still need an answer,
// which the helper thread gives within a second: credit (SDP 10.5), SrcAvailCancel (9.5.4), SuspComm
// (13.1.1), a broken rule. Has a lock of its own, which comes after the sockets'.
//
// A connection is in use or watched. Every kLook the helper looks at those in use. If no thread has read a
// link lately, an epoll descriptor of the library watches it. A watched link with something to read counts as
// in use again. If no thread has read that by the next look, the helper does. So a busy process costs one
// wake-up of the helper per look, and its calls cost nothing. A process whose peers are silent makes no
// system call at all.
#ifndef SDP_PRELOAD_SOCKET_QUIET_LINKS_H_
#define SDP_PRELOAD_SOCKET_QUIET_LINKS_H_

#include <atomic>
#include <cstdint>

#include "core/base/types.h"
#include "preload/socket/socket.h"

namespace sdp::preload {

class QuietLinks {
 public:
  // The time between the helper's looks, and how long a link must be unread to be watched. Both together are
  // less than a second.
  static constexpr Duration kLook = std::chrono::milliseconds(850);
  static constexpr Duration kUnread = std::chrono::milliseconds(50);
  // The time to the next look after the helper has read a link: a peer that had more than fits into the
  // kernel's buffers goes on by then.
  static constexpr Duration kSoon = 2 * kUnread;

  // One connection: a part of its socket, whose lock is held around Enter, Leave, Watch and Unwatch.
  class Link {
   public:
    virtual ~Link() = default;
    // Returns the socket, which is referenced while the helper calls the link.
    virtual Socket* owner() = 0;
    // Both run on the helper's thread, with no lock held. LookIfUnread() lets the link be watched if no
    // thread has read it since `since`. TakeUnread() reads what the link has, and then lets it be watched.
    // Neither blocks. Each calls Watch, Leave or nothing; after nothing, the next look calls again.
    virtual void LookIfUnread(Time since) = 0;
    virtual void TakeUnread() = 0;

    // Returns true if the helper waits for the link's descriptor.
    [[nodiscard]] bool watched() const { return watch_ != Watched::kNot; }
    // Returns true if the helper does not look at the link otherwise.
    [[nodiscard]] bool left_alone() const { return watch_ == Watched::kForProgram; }
    // Returns true if the helper's looks come to this link, at least once more.
    [[nodiscard]] bool looked_at() const { return known_ && !left_alone(); }
    // Around a thread's sleep that hears of the watched descriptor by the helper alone: TakeUnread() comes at
    // once. The owner's lock is held.
    void RelyOn() { ++relied_on_; }
    [[nodiscard]] bool relied_on() const { return relied_on_ != 0; }
    void RelyOnNoMore() {
      if (relied_on()) --relied_on_;  // else fork has made this process meanwhile
    }

   private:
    friend class QuietLinks;
    enum class Watched : uint8_t { kNot, kForSleeper, kForProgram };
    std::atomic<Watched> watch_{Watched::kNot};
    std::atomic<int> relied_on_{0};
    bool known_ = false;  // it has a place in this process
    uint32_t place_ = 0;
  };

  // The link is in use from now on. Does nothing if the link is known, there is no memory, or the process is
  // confined. While there is no helper thread, no thread looks at the link.
  static void Enter(Link* link);
  // The connection is over here. To be called by the owner's destructor, if not before.
  static void Leave(Link* link);
  // `fd` becomes readable when the link has something to read. Returns false without a descriptor or memory
  // for the watch: the link stays in use, and the caller reads it.
  // kSleeper: for a thread that takes itself what comes. What it has taken is no news to the helper, which
  // goes on to look at the link: while that thread is awake, nothing may tell of what comes.
  enum class WatchFor : uint8_t { kProgram, kSleeper };
  static bool Watch(Link* link, int fd, WatchFor whom = WatchFor::kProgram);
  // To be called before `fd` is closed, or stands for something else. The link counts as in use.
  static void Unwatch(Link* link, int fd);

  // A seccomp filter is about to be set (confinement.h), or was refused after all.
  [[nodiscard]] static bool stopped();
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
