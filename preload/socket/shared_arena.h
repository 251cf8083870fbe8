// What the processes of one family (a process that shared connections by fork, exec or a passed descriptor,
// and those it shared them with) have in common: a file in memory with a slot for each connection, and who is
// alive.
//
// A member is a process; its number, never used again, is given to it before it has the connection, by the
// process that it has it from. It is alive while a byte of the file is locked on an open file description
// that only it has: its membership (which the giver has, too, until fork has returned, or which waits in a
// message). The kernel takes the lock off with the last descriptor. So nobody waits for the dead, whatever
// killed them, nor for a child that was never born.
//
// A process makes one file of its own at most, and maps those of others whose connections it was given.
#ifndef SDP_PRELOAD_SOCKET_SHARED_ARENA_H_
#define SDP_PRELOAD_SOCKET_SHARED_ARENA_H_

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace sdp::preload {

using Member = uint64_t;  // 0: none
// In place of a member that is still to be found: who takes the connection out of a message is one already.
// The rest is its number.
inline constexpr Member kInFlight = Member{1} << 63;
inline constexpr bool IsInFlight(Member member) { return (member & kInFlight) != 0; }

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
  Member reader;  // who has a thread that sleeps in the link's read, from before the connection was shared:
                  // nobody else reads
  uint64_t reader_from;  // where in the link's stream (socket/link_position.h)
  pthread_mutex_t mutex;
  std::array<Member, kMostHolders> holders;
};

class SharedArena {
 public:
  // The longest frozen state.
  static constexpr uint64_t kMostState = 16 << 20;

  // The limit on the length of files (RLIMIT_FSIZE) leaves room for one.
  static bool MayBeMade();
  static constexpr const char* kNoRoom =
      "RLIMIT_FSIZE leaves no room for what a child of fork would have to know";
  // Where this process shares what is not shared yet, with itself a member; made when first asked for.
  // nullptr, errno says why: it cannot be had (without /proc, for one).
  static SharedArena* Own();
  // The one in `file`, which another process made. Takes both descriptors over. `membership` that of `self`
  // for as long as this process lives; -1: this process has none there but the connections' own. nullptr: it
  // cannot be used.
  static SharedArena* Attach(int file, int membership, Member self);
  // `file` is one that this process has mapped: nobody but a member, or root, can have it.
  static bool IsKnown(int file);
  // Own() was there when fork made this process, and so every relative that it has made since has it.
  static bool OwnIsInherited();
  [[nodiscard]] bool inherited() const { return inherited_; }

  // Around fork, in the forking thread. First, if there are connections that the child is to have: it gets a
  // number in each arena. In the end, the lock.
  static void InviteChild();
  static void LockForFork();
  static void ParentAfterFork();
  static void ChildAfterFork();
  // The child's; 0: no sharing across this fork.
  [[nodiscard]] Member child() const { return child_; }

  // Makes a member for a process that will be given connections; its membership, hidden, is to be passed on
  // and closed. 0, errno says why: not possible.
  Member Invite(int* membership);

  // The same for one who is a member already, where no membership can be made; the number is a kInFlight.
  // What is passed on, hidden too, says nothing to others; but `watched`, the caller's, hangs up (POLLHUP)
  // when that is closed everywhere: taken, or lost.
  Member InviteRelative(int* passed, int* watched);

  // This process; 0 if it is no member.
  [[nodiscard]] Member self() const { return self_; }
  [[nodiscard]] bool Alive(Member member) const;
  // Somebody is alive who is none of these: he may take a connection out of a message.
  [[nodiscard]] bool LivesBesides(std::span<const Member> members) const;
  // To be passed on, with an invitation.
  [[nodiscard]] int file() const { return file_; }

  // A slot with this process as its only holder; nullptr: none is left.
  SharedSlot* Take();
  // `slot` is kChanging, and nobody holds it.
  void Free(SharedSlot* slot);
  // The first `size` bytes of the slot's frozen state, whole pages; the caller unmaps them. nullptr: no
  // memory.
  [[nodiscard]] std::byte* MapState(const SharedSlot* slot, size_t size) const;
  [[nodiscard]] uint32_t NumberOf(const SharedSlot* slot) const;
  // nullptr: no connection has that number.
  [[nodiscard]] SharedSlot* At(uint32_t number);

  // Connections that are shared there. With the last one this process leaves, if the arena is another's.
  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref();

 private:
  struct All;
  static All& all();

  SharedArena() = default;
  ~SharedArena();
  static SharedArena* Make();
  bool Map(int file);
  static SharedArena* Mapped(const All& a, int file);
  SharedSlot* slots() const;
  int64_t StateOf(const SharedSlot* slot) const;
  // A number that no member has had.
  Member NewNumber();
  void FreeAbandonedSlots();

  int file_ = -1;  // hidden
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  std::byte* memory_ = nullptr;
  size_t slot_count_ = 0;
  bool inherited_ = false;
  Member self_ = 0;
  int membership_ = -1;  // hidden; has the lock that says this process lives
  Member child_ = 0;     // while a fork is under way
  int child_membership_ = -1;
  std::atomic<int> references_{0};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SHARED_ARENA_H_
