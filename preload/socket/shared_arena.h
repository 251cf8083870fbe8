// Memory that the processes of one family share: a process that shared connections by fork, exec or a passed
// descriptor, and the receivers. It is a file with a slot for each connection, and tells which processes are
// alive. Each process has a lock for its list of arenas.
//
// A member is a process. It gets its number, which is never used again, from the giver before it gets the
// connection. A member is alive while a byte of the file is locked on an open file description that only it
// has: its membership. Until fork has returned the giver has it, too, or it waits in a message. The kernel
// releases the lock with the last descriptor. So no process waits for a dead one, whatever killed it, nor for
// a child that was never made.
//
// A process makes at most one file of its own. It also maps the files of others that gave it connections.
#ifndef SDP_PRELOAD_SOCKET_SHARED_ARENA_H_
#define SDP_PRELOAD_SOCKET_SHARED_ARENA_H_

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sdp::preload {

using Member = uint64_t;  // 0: none
// Marks a placeholder: the member that takes the connection out of a message is a member already, but not
// known yet. The rest is the placeholder's number.
inline constexpr Member kInFlight = Member{1} << 63;
inline constexpr bool IsInFlight(Member member) { return (member & kInFlight) != 0; }

// One connection's slot, in memory that all processes of the family have mapped. `mutex`, which is robust,
// guards all of it except `used`.
struct SharedSlot {
  static constexpr size_t kMostHolders = 96;
  static constexpr uint32_t kFree = 0, kUsed = 1, kChanging = 2;
  std::atomic<uint32_t> used;  // kFree, kUsed, or kChanging between them
  uint32_t broken;             // a process died while it changed the connection: the state is unknown
  uint64_t version;  // of the state; 0: as at the first fork; each holder has that in its own memory
  uint64_t size;     // bytes of the frozen state of that version
  Member exclusive;  // the only member with the state, because it cannot be frozen now
  pthread_mutex_t mutex;
  std::array<Member, kMostHolders> holders;
};

class SharedArena {
 public:
  // The longest frozen state, in bytes.
  static constexpr uint64_t kMostState = 16 << 20;

  // Returns true if the limit on the length of files (RLIMIT_FSIZE) leaves room for one.
  static bool MayBeMade();
  static constexpr const char* kNoRoom =
      "RLIMIT_FSIZE leaves no room for what a child of fork would have to know";
  // Returns the arena for connections that this process begins to share, with itself a member. Made when
  // first asked for. Returns nullptr with errno if it cannot be had (without /proc, for one).
  static SharedArena* Own();
  // Returns the arena in `file`, which another process made. Takes over both descriptors. `membership` is
  // that of `self` for as long as this process lives; -1: only its connections have memberships there.
  // Returns nullptr if it cannot be used.
  static SharedArena* Attach(int file, int membership, Member self);
  // Returns true if this process has mapped `file`: only a member, or root, can have it.
  static bool IsKnown(int file);
  // Returns true if fork made this process when Own() existed. Then every relative that it has made since has
  // Own().
  static bool OwnIsInherited();
  [[nodiscard]] bool inherited() const { return inherited_; }

  // Around fork, in the forking thread. First, if the child is to get connections, InviteChild() gives it a
  // number in each arena. LockForFork() comes last.
  static void InviteChild();
  static void LockForFork();
  static void ParentAfterFork();
  static void ChildAfterFork();
  // Returns the child's number; 0 if nothing is shared across this fork.
  [[nodiscard]] Member child() const { return child_; }

  // Makes a member for a process that will be given connections. Its membership, hidden, is to be passed on
  // and closed. Returns 0 if that is not possible; errno says why.
  Member Invite(int* membership);

  // Invites a process that is a member already, where no membership can be made; returns a kInFlight number.
  // `passed`, hidden too, says nothing to others. `watched` stays the caller's: it hangs up (POLLHUP) when
  // `passed` is closed everywhere, because it was taken or lost.
  Member InviteRelative(int* passed, int* watched);

  // Returns the member that this process is; 0 if it is none.
  [[nodiscard]] Member self() const { return self_; }
  [[nodiscard]] bool Alive(Member member) const;
  // Returns true if a member is alive besides these: it may take a connection out of a message.
  [[nodiscard]] bool LivesBesides(std::span<const Member> members) const;
  // Returns the file, to be passed on with an invitation.
  [[nodiscard]] int file() const { return file_; }

  // Takes a slot with this process as its only holder. Returns nullptr if no slot is left.
  SharedSlot* Take();
  // `slot` is kChanging and has no holder.
  void Free(SharedSlot* slot);
  // Maps the first `size` bytes of the slot's frozen state, whole pages; the caller unmaps them. Returns
  // nullptr without memory.
  [[nodiscard]] std::byte* MapState(const SharedSlot* slot, size_t size) const;
  [[nodiscard]] uint32_t NumberOf(const SharedSlot* slot) const;
  // Returns nullptr if no connection has that number.
  [[nodiscard]] SharedSlot* At(uint32_t number);

  // Count the connections shared there. With the last one this process leaves an arena of another process.
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
  // Returns a number that no member has had.
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
  Member child_ = 0;     // while a fork is in progress
  int child_membership_ = -1;
  std::atomic<int> references_{0};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SHARED_ARENA_H_
