// The processes invited to this process's arenas when it gives connections away: one member in each arena of
// such a connection. Owns the invitations. Used with all sockets locked.
#ifndef SDP_PRELOAD_SOCKET_GUESTS_H_
#define SDP_PRELOAD_SOCKET_GUESTS_H_

#include <list>

#include "preload/inheritance.h"
#include "preload/socket/clock.h"
#include "preload/socket/shared_arena.h"

namespace sdp::preload {

class Guests {
 public:
  explicit Guests(Receiver receiver) : receiver_(receiver) {}
  // How long all connections together wait for processes that keep one to themselves, move data with RDMA, or
  // have a thread that sleeps for data.
  [[nodiscard]] Time patience_ends() const { return patience_ends_; }
  struct Guest {
    SharedArena* arena;
    uint32_t number;  // in the order of the invitations
    Member member;    // of a relative, which is a member already: see SharedArena::InviteRelative
    int membership;   // hidden; to be passed on
    int watched;      // hidden; for a relative; else -1
  };

  Guests(const Guests&) = delete;
  Guests& operator=(const Guests&) = delete;
  // A guest that was not passed on by now never comes.
  ~Guests();

  // Returns the guest in this arena, invited when first asked for; nullptr if it cannot be invited.
  const Guest* Of(SharedArena* arena);
  [[nodiscard]] const std::list<Guest>& all() const { return guests_; }

 private:
  static constexpr Duration kPatience = std::chrono::seconds(2);

  const Receiver receiver_;
  const Time patience_ends_ = Now() + kPatience;
  std::list<Guest> guests_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_GUESTS_H_
