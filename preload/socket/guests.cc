#include "preload/socket/guests.h"

#include "preload/hidden_fds.h"

namespace sdp::preload {

Guests::~Guests() {
  for (const Guest& guest : guests_) {
    HiddenFds::Close(guest.membership);
    HiddenFds::Close(guest.watched);
    guest.arena->Unref();
  }
}

const Guests::Guest* Guests::Of(SharedArena* arena) {
  for (const Guest& guest : guests_) {
    if (guest.arena == arena) return &guest;
  }
  Guest guest{.arena = arena,
              .number = static_cast<uint32_t>(guests_.size()),
              .member = 0,
              .membership = -1,
              .watched = -1};
  guest.member = arena->Invite(&guest.membership);
  // Invite fails where there is no /proc, as in a process that has confined itself.
  if (guest.member == 0 && receiver_ == Receiver::kRelative && arena->inherited())
    guest.member = arena->InviteRelative(&guest.membership, &guest.watched);
  if (guest.member == 0) return nullptr;
  arena->Ref();
  guests_.push_back(guest);
  return &guests_.back();
}

}  // namespace sdp::preload
