#include "preload/socket/sleeping_read.h"

#include <algorithm>
#include <memory>

#include "preload/socket/session_transfer.h"

namespace sdp::preload {

using verbs::ReadStatus;

bool Session::SleepingRead::possible() const {
  const verbs::Sleepable* const sleepable = std::as_const(*s_.queue_pair_).sleepable();
  return !s_.being_read() && !s_.link_ended_ && !s_.moving() && sleepable != nullptr &&
         sleepable->can_block() && !s_.queue_pair_->interest().write;
}

ReadStatus Session::SleepingRead::Read(verbs::CallerLock& lock, verbs::SleeperMemory memory) {
  struct Reading {
    Session& session;
    const uint32_t number;
    // Also when the thread is cancelled in its sleep; it holds the lock again by then.
    ~Reading() {
      if (session.read_ == number) session.read_ = 0;
    }
  };
  const std::shared_ptr<verbs::QueuePair> read = s_.queue_pair_;
  ReadStatus status;
  {
    s_.last_read_ = std::max(s_.last_read_ + 1, uint32_t{1});
    s_.changed_ = true;
    const Reading reading{.session = s_, .number = s_.read_ = s_.last_read_};
    status = read->sleepable()->ReadLinkBlocking(lock, memory);
  }
  if (s_.queue_pair_ != read) {
    if (status == ReadStatus::kProgress) s_.Abort();  // a part of the stream is lost
    return ReadStatus::kInterrupted;
  }
  if (status == ReadStatus::kInterrupted) return status;
  s_.reads_.NoteBytes(s_.queue_pair_->counters().bytes_in);
  s_.reads_.Note();
  s_.TakeCompletions();
  if (status == ReadStatus::kEnded) s_.NoteEnd();
  s_.Pump();
  return status;
}

void Session::SleepingRead::Nudge() {
  s_.changed_ = true;
  // Only the link's next bytes end that sleep. The peer's RNIC alone answers a zero-length RDMA Read, and its
  // STag means nothing.
  s_.queue_pair_->PostRdmaRead({.id = kNudge, .length = 0, .remote_stag = STag(1)});
  if (!s_.queue_pair_->Flush()) s_.queue_pair_->DetachBorrowed();
}

void Session::SleepingRead::Abandon() {
  s_.read_ = 0;
  s_.changed_ = true;
  if (s_.queue_pair_->sleepable() != nullptr) s_.queue_pair_->sleepable()->AbandonReading();
}

bool Session::SleepingRead::Leave(int fd) {
  if (!s_.transfer().at_rest() || !s_.transfer().Thaw(s_.transfer().Freeze(), fd)) return false;
  s_.read_ = 0;
  s_.changed_ = true;
  return true;
}

}  // namespace sdp::preload
