// What the processes of one family (a process that forked with connections open, and its descendants) share
// about their connections: a file in memory with a slot for each connection, and who is alive.
//
// A member is a process; its number, never used again, is given to it before it is born, by the one that
// forks. It is alive while a byte of the file is locked on an open file description that only it has (and its
// parent, until fork has returned). The kernel takes the lock off when the process ends or execs. So nobody
// waits for the dead, whatever killed them, nor for a child that was never born.
#ifndef SDP_PRELOAD_SOCKET_SHARED_ARENA_H_
#define SDP_PRELOAD_SOCKET_SHARED_ARENA_H_

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/types.h"

namespace sdp::preload {

using Member = uint64_t;  // 0: none

// One connection's, in memory that all processes of the family have mapped. Everything but `used` is guarded
// by `mutex`, which is robust.
struct SharedSlot {
  static constexpr size_t kMostHolders = 96;
  static constexpr uint32_t kFree = 0, kUsed = 1, kChanging = 2;
  std::atomic<uint32_t> used;  // kFree, kUsed, or kChanging between them
  uint32_t broken;             // a process died while it moved the connection: nobody knows the state
  uint64_t version;  // of the state; 0: as it was at the first fork, which each holder has in its own memory
  uint64_t size;     // bytes of the frozen state of that version
  Member exclusive;  // who alone has the state, because it cannot be frozen now
  pthread_mutex_t mutex;
  std::array<Member, kMostHolders> holders;
};

class SharedArena {
 public:
  // The longest frozen state.
  static constexpr uint64_t kMostState = 16 << 20;

  // Around fork, in the forking thread. Makes the file if it is not there, and the child a member; 0: no
  // sharing across this fork.
  static Member PrepareFork();
  static void ParentAfterFork();
  static void ChildAfterFork(Member child);

  // This process; 0 if it is no member of a family.
  static Member self();
  static bool Alive(Member member);

  // A slot with this process as its only holder; nullptr: none is left.
  static SharedSlot* Take();
  // `slot` is kChanging, and nobody holds it.
  static void Free(SharedSlot* slot);
  static bool Write(const SharedSlot* slot, Bytes state);
  static bool Read(const SharedSlot* slot, std::vector<std::byte>* state);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SHARED_ARENA_H_
