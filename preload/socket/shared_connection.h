// One process's hold on a connection that other processes hold, too: which state is the newest, and which
// processes hold it. Passive; used under the lock of the StreamSocket that owns it.
//
// Everything except the making happens between Lock() and Unlock(), which lock the slot. No holder keeps that
// lock over a sleep. The state itself is bytes here.
#ifndef SDP_PRELOAD_SOCKET_SHARED_CONNECTION_H_
#define SDP_PRELOAD_SOCKET_SHARED_CONNECTION_H_

#include <memory>
#include <utility>
#include <vector>

#include "core/base/archive.h"
#include "core/base/types.h"
#include "preload/socket/shared_arena.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {

class SharedConnection {
 public:
  // Makes one with the calling process as its only holder. Returns nullptr if nothing is left to share with.
  static std::unique_ptr<SharedConnection> Make();
  // Joins the connection with this number in the arena, which the calling process was given. `membership`: of
  // `member`, taken over; -1: that of the whole process. For a member in flight, the process joins as the
  // member it already is. Returns nullptr if the connection was not given to it.
  static std::unique_ptr<SharedConnection> Join(SharedArena* arena, uint32_t number, Member member,
                                                int membership);
  // Leaves, unless that was done.
  ~SharedConnection();

  enum class View : uint8_t {
    kCurrent,    // the calling process used the connection last, or none has since the fork
    kStale,      // another process has: Read() before anything else
    kElsewhere,  // another process keeps the state for now
    kBroken,     // the process that kept the state has died: the connection is lost
  };
  View Lock();
  void Unlock();
  [[nodiscard]] bool locked() const { return locked_; }

  // Adds a holder. Returns false if there is no room, or `member` is 0.
  bool Add(Member member);
  // The member will not come after all.
  void Remove(Member member);
  // `member` is in flight. When `watched` has hung up (SharedArena::InviteRelative), it has come or never
  // will. The caller keeps `watched`.
  void Await(Member member, int watched);
  // Returns whether other processes hold it. `sure`: checks which of them live; else only every so often.
  bool HasOthers(bool sure);
  // The calling process holds the connection no longer. If it kept the state, no other process can continue.
  void Leave();

  // Reads the state that others have left. Returns false if it cannot be had.
  bool Read(std::vector<std::byte>* state);
  // Publishes the state as the calling process leaves it; does nothing if it has not changed. Returns false
  // if it is too large: the caller keeps it.
  bool Publish(const Writer& state);
  // The state stays with the calling process until the next Publish().
  void Keep();
  [[nodiscard]] bool Keeps() const { return slot_->exclusive == self_; }
  // Marks the connection as lost for all holders.
  void Break() { slot_->broken = 1; }

  // In the child of a fork, which was added before: the hold becomes the child's.
  void AdoptAfterFork();
  // In a child that got no place: gives up the parent's hold without any effect on the parent.
  void ForgetAfterFork() { left_ = true; }

  // What another program of this end has left of the link besides its descriptor, until the first state is
  // read: the memory of a local link, or null.
  void SetMemory(std::shared_ptr<iwarp::LocalMemory> memory) { memory_ = std::move(memory); }
  std::shared_ptr<iwarp::LocalMemory> TakeMemory() { return std::move(memory_); }

  // Lets usual states be read and published without a system call from here on, if memory allows.
  void Prepare() { (void)Window(1); }

  [[nodiscard]] SharedArena& arena() const { return *arena_; }
  [[nodiscard]] uint32_t number() const { return arena_->NumberOf(slot_); }

 private:
  SharedConnection(SharedArena* arena, SharedSlot* slot, Member self, int membership);
  void CloseMembership();
  // Removes holders that were in flight and are lost. One that other processes wait for is lost if no member
  // is left to take it, except those that are holders already.
  void ForgetLost();
  void ForgetAwaited();
  // Returns memory for a state of that size; nullptr if there is none.
  std::byte* Window(uint64_t size);

  SharedArena* const arena_;
  SharedSlot* const slot_;
  std::byte* window_ = nullptr;
  uint64_t window_size_ = 0;
  Member self_;
  int membership_;        // hidden; -1: that of the process
  uint64_t version_ = 0;  // of the state that the calling process has
  std::shared_ptr<iwarp::LocalMemory> memory_;
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
