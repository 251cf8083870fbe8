// Memory of short connections that have ended, kept for a moment. The next connection of the same two
// processes has it again, which costs neither end a file, a mapping or a page fault.
//
//   connecting end: offers the id of what it has kept of this peer     accepting end: has kept it too?
//   again, both: the accepting end makes the rings new, and says so (meeting.h)
//   else: new memory, as for a first connection; each end drops what it has kept of the other in time
//
// Each end keeps what it is done with. So when both have, nothing of the earlier connection touches it. A
// peer that offers an id of another's gets memory that it has not mapped, and harms itself. A process keeps
// no memory that another process of its end has, or may have: what existed at a fork, or was handed over.
//
// All functions may be called in a signal handler: they give up where they would have to wait.
#ifndef SDP_VERBS_SOFTIWARP_LOCAL_KEPT_MEMORIES_H_
#define SDP_VERBS_SOFTIWARP_LOCAL_KEPT_MEMORIES_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/types.h"
#include "verbs/softiwarp/local/memory.h"

namespace sdp::iwarp {

class KeptMemories {
 public:
  static constexpr size_t kMost = 16;
  // A connection that has carried more is no short one.
  static constexpr uint64_t kMostCarried = 64 * 1024;

  // Keeps memory from now on. The thread that keeps the first calls `note`. The caller of Begin() then calls
  // Forget() until that returns false; `note` is called again for the next. With nullptr, keeps none.
  static void Begin(void (*note)());
  // Before a fork: what exists now is the child's, too. In the child: forgets what another thread of the
  // parent was at.
  static void NoteFork();
  static void ForgetInChild();
  // Ends what was kept `age` ago or earlier. Returns true if any is left.
  static bool Forget(Duration age);

  // Returns the memory that was kept under this id, with new rings, or nullptr.
  static std::shared_ptr<LocalMemory> TakeById(const LocalMemory::Id& id);
  // Returns memory that was kept of a connection to this peer, or nullptr. The one kept longest comes first:
  // the other end has probably kept it by now.
  static std::shared_ptr<LocalMemory> TakeByPeer(const LocalMemory::Peer& peer);

 private:
  // LocalMemory::at_end: keeps it, or deletes it.
  static void Retire(LocalMemory* memory);
  static bool WillKeep(const LocalMemory& memory);
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LOCAL_KEPT_MEMORIES_H_
