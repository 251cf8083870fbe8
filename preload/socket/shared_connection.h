// One process's hold on a connection that other processes hold, too: whose state is the newest, and who is
// there. Passive; used under the lock of the StreamSocket that owns it.
//
// Everything but the making is done between Lock() and Unlock(), which no holder keeps over a sleep. The
// state itself is bytes here.
#ifndef SDP_PRELOAD_SOCKET_SHARED_CONNECTION_H_
#define SDP_PRELOAD_SOCKET_SHARED_CONNECTION_H_

#include <memory>
#include <vector>

#include "core/base/archive.h"
#include "core/base/types.h"
#include "preload/socket/shared_arena.h"

namespace sdp::preload {

class SharedConnection {
 public:
  // The calling process is the only holder. nullptr: nothing left to share with.
  static std::unique_ptr<SharedConnection> Make();
  // The connection that has this number in the arena, and that the calling process was given. `membership`:
  // of `member`, taken over; -1: it is that of the whole process. A member in flight: as the member that the
  // process is. nullptr: nobody was given that.
  static std::unique_ptr<SharedConnection> Join(SharedArena* arena, uint32_t number, Member member,
                                                int membership);
  // Leaves, if that was not done.
  ~SharedConnection();

  enum class View : uint8_t {
    kCurrent,    // the calling process used the connection last, or nobody has since the fork
    kStale,      // another process has: Read() before anything else
    kElsewhere,  // another process keeps it to itself for now
    kBroken,     // the one that did has died: the connection is lost
  };
  View Lock();
  void Unlock();
  [[nodiscard]] bool locked() const { return locked_; }

  // Another holder. False: there is no room, or it is none.
  bool Add(Member member);
  // It will not come after all.
  void Remove(Member member);
  // `member` is in flight, and when `watched` has hung up (SharedArena::InviteRelative) it has come, or will
  // not. The caller keeps that.
  void Await(Member member, int watched);
  // Somebody else holds it, too. `sure`: the living are told from the dead here and now; else every so often.
  bool HasOthers(bool sure);
  // The calling process holds it no longer. If it kept the state to itself, nobody else can go on.
  void Leave();

  // The state others have left. False: it is not to be had.
  bool Read(std::vector<std::byte>* state);
  // The state as the calling process leaves it; nothing happens when it is as it was. False: too much, keep
  // it.
  bool Publish(const Writer& state);
  // The state stays with the calling process until the next Publish().
  void Keep();
  [[nodiscard]] bool Keeps() const { return slot_->exclusive == self_; }
  // The calling process has a thread that sleeps in the link's read, where that is at `from`; it has none
  // (any more).
  void SetReader(uint64_t from);
  void ForgetReader();
  [[nodiscard]] bool reads() const { return slot_->reader == self_; }
  // Another process has one.
  [[nodiscard]] bool ReadElsewhere() const { return slot_->reader != 0 && !reads(); }
  // It had, and is dead. If the link is not where the thread began, it has taken something along.
  [[nodiscard]] bool ReaderIsLost() const;
  [[nodiscard]] uint64_t reader_from() const { return slot_->reader_from; }
  // Nobody can go on.
  void Break() { slot_->broken = 1; }

  // In the child of a fork, which was added before: the hold is its own.
  void AdoptAfterFork();
  // In a child that got no place: the parent's hold is none of its business.
  void ForgetAfterFork();

  // Reads and publishes states of usual size without a system call from here on, if there is memory for that.
  void Prepare() { (void)Window(1); }

  [[nodiscard]] SharedArena& arena() const { return *arena_; }
  [[nodiscard]] uint32_t number() const { return arena_->NumberOf(slot_); }

 private:
  SharedConnection(SharedArena* arena, SharedSlot* slot, Member self, int membership);
  void CloseMembership();
  // Whoever was in flight and is lost is no holder. What others wait for is lost when nobody is left to take
  // it who is not a holder already.
  void ForgetLost();
  void ForgetAwaited();
  // Memory for a state of that size; nullptr: there is none.
  std::byte* Window(uint64_t size);

  SharedArena* const arena_;
  SharedSlot* const slot_;
  std::byte* window_ = nullptr;
  uint64_t window_size_ = 0;
  Member self_;
  int membership_;        // hidden; -1: that of the process
  uint64_t version_ = 0;  // of the state the calling process has
  bool left_ = false;
  bool locked_ = false;
  Time checked_{};
  struct Awaited {
    Member member;
    int watched;  // hidden
  };
  std::vector<Awaited> awaited_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SHARED_CONNECTION_H_
