// sendfile without a copy in the program's memory: the payload goes from the file's pages to the link.
#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/socket/lender.h"
#include "preload/socket/limits.h"
#include "preload/socket/looks.h"
#include "preload/socket/options.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// What is handed to the link at a time: if it is full, as much is copied. Whole messages towards an embedded
// RNIC.
constexpr size_t kStep = 4 * kUsualPayload;
constexpr size_t kPage = 4096;

// kStep addresses with nothing there, to name a file's bytes by (verbs::FileRange); empty if there are none
// to be had. A page on either side keeps them apart from all that is memory.
Bytes Names() {
  static constinit std::atomic<std::byte*> names{nullptr};
  std::byte* found = names.load(std::memory_order_acquire);
  if (found == nullptr) {
    constexpr size_t kReserved = kStep + 2 * kPage;
    void* const reserved =
        mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return {};
    auto* const mine = static_cast<std::byte*>(reserved) + kPage;
    if (names.compare_exchange_strong(found, mine, std::memory_order_acq_rel)) {
      found = mine;
    } else {
      munmap(reserved, kReserved);
    }
  }
  return {found, kStep};
}

}  // namespace

ssize_t StreamSocket::SendFromFile(int fd, int file, off64_t offset, size_t count) {
  Lock lock(mutex_);
  // The link's descriptor has the mode of the program's: in blocking mode sendfile would sleep with the lock
  // held. Behind a filter only the calls of the one way are known to be allowed.
  if (!usable() || Confined() || !numbers_.IsNonblocking(fd)) return 0;
  Lender(*this).MendJump(lock, fd, __builtin_frame_address(0));
  ++use_.calls;
  const Bytes names = Names();
  const bool promised = Limits(*this).Writable();
  size_t sent = 0;
  bool looked = false;
  bool link_full = false;
  while (!names.empty() && sent < count) {
    if (tcp_.pending_error != 0 || !session_->engine().can_send() || session_->end_unread()) break;
    if (session_->queue_pair().unsent_bytes() != 0) {
      session_->Pump();
      if (session_->queue_pair().unsent_bytes() != 0) {
        // The caller may wait for an edge now. It has one at once, and its next call copies what room there
        // is.
        if (sent > 0) board_.NoteRoom(/*full=*/true);
        break;
      }
    }
    verbs::FileSource* const source = session_->queue_pair().file_source();
    if (source == nullptr) break;
    const size_t room = Limits(*this).LinkRoom(count - sent);
    link_full = room == 0 && Limits(*this).AwaitsLinkRoom();
    if (room == 0) break;
    const verbs::FileRange range = {.name = names.first(std::min({count - sent, kStep, room})),
                                    .fd = file,
                                    .offset = offset + static_cast<off64_t>(sent)};
    if (!source->BorrowFile(range)) break;
    size_t moved;
    const size_t taken =
        corked_.Send(*session_, {&range.name, 1}, {.buffering = engine::Buffering::kNone}, &moved);
    source->ReturnFile();
    sent += taken;
    if (taken == range.name.size()) continue;
    if (sent > 0 || looked) break;
    // No credit. The peer may have granted some meanwhile.
    looked = true;
    if (!session_->Read()) break;
    AfterProgress();
  }
  AfterProgress();
  upkeep_.LeaveToBackground();
  if (sent > 0 || count == 0) return static_cast<ssize_t>(sent);
  if (link_full) {
    Looks(*this).GlanceAtLink();
    return Fail(tcp_.pending_error != 0 ? tcp_.TakeError() : EAGAIN);
  }
  if (!looked || promised || tcp_.pending_error != 0 || session_->end_unread() ||
      !session_->engine().can_send())
    return 0;
  return Fail(EAGAIN);
}

}  // namespace sdp::preload
