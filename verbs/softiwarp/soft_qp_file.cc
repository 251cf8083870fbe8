// The queue pair's files, and the link's room for them.
#include <cstdint>

#include "verbs/softiwarp/link_calls.h"
#include "verbs/softiwarp/soft_qp.h"

namespace sdp::iwarp {

bool FileAbility::BorrowFile(const verbs::FileRange& file) {
  const SendOptions& options = qp_.send_queue_.options();
  if (options.crc || options.markers || (!qp_.local_ && link_calls().sendfile == nullptr)) return false;
  qp_.send_queue_.set_unread(&file_.emplace(file));
  return true;
}

void FileAbility::ReturnFile() {
  qp_.send_queue_.set_unread(nullptr);
  file_.reset();
}

size_t FileAbility::room() const { return qp_.local_ ? qp_.local_->link().room() : SIZE_MAX; }

bool FileAbility::AwaitRoom() {
  if (!qp_.local_) return false;
  qp_.local_->link().AwaitRoom();
  qp_.link_full_ = true;
  return !HasRoomAgain();
}

bool FileAbility::HasRoomAgain() const { return qp_.local_ && qp_.local_->link().has_room(); }

// What is queued may be the end of a frame alone, behind all its payload.
bool FileAbility::full() const {
  return qp_.local_ && qp_.link_full_ && qp_.unsent_bytes() == 0 && !qp_.local_->link().has_room();
}

bool FileAbility::TakeRoom() {
  if (!qp_.link_full_ || qp_.unsent_bytes() != 0 || !HasRoomAgain()) return false;
  ForgetRoom();
  return true;
}

void FileAbility::ForgetRoom() {
  if (!qp_.link_full_) return;
  qp_.link_full_ = false;
  if (qp_.local_) qp_.local_->link().ForgetRoom();
}

}  // namespace sdp::iwarp
