#include "preload/socket/session.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <utility>
#include <variant>

#include "core/base/archive.h"
#include "preload/confinement.h"
#include "preload/link_calls.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

using verbs::ReadStatus;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// The engine's own work ids start at 1.
constexpr WorkId kNudge{0};

// A read of so many bytes is one of a stream of large messages.
constexpr uint64_t kBulk = 16 * 1024;

// How long the peer has to end its side of a link that has carried an abort, and how soon to look again.
constexpr Duration kPatienceForEnd = std::chrono::seconds(2);
constexpr Duration kLookForEnd = std::chrono::milliseconds(10);

}  // namespace

Session::Session(std::unique_ptr<engine::Engine> engine, std::unique_ptr<verbs::QueuePair> queue_pair)
    : engine_(std::move(engine)), queue_pair_(std::move(queue_pair)) {}

template <typename Post>
bool Session::PostWithRoom(Post post) {
  if (post() != verbs::PostResult::kNoResource) return true;
  if (!queue_pair_->Flush()) queue_pair_->DetachBorrowed();
  return post() != verbs::PostResult::kNoResource;
}

void Session::Pump() {
  // The flush may have completed all that the engine waits for; then nothing has to come in.
  do {
    do {
      CarryOut();
    } while (TakeCompletions());
  } while (move_ != nullptr && AdvanceMove());
}

void Session::CarryOut() {
  engine::Action action;
  bool posted = false;
  bool disconnect = false;
  bool abort = false;
  while (engine_->PollAction(&action)) {
    changed_ = true;
    std::visit(Overloaded{
                   [&](const engine::PostSend& send) {
                     posted = true;
                     recorder_.NoteSent(send.header_bytes(), send.payload(), send.solicited, send.invalidate);
                     const verbs::SendWork work{.id = send.id,
                                                .signaled = send.signaled,
                                                .solicited = send.solicited,
                                                .invalidate = send.invalidate,
                                                .header = send.header_bytes(),
                                                .payload = send.payload()};
                     if (!PostWithRoom([&] { return queue_pair_->PostSend(work); })) abort = true;
                   },
                   [&](const engine::PostReceives& receives) { queue_pair_->PostReceives(receives.count); },
                   [&](const engine::SetReceiveSize& size) {
                     if (!queue_pair_->SetReceiveBufferSize(size.bytes, size.count))
                       engine_->HandleReceiveSizeRefused();
                   },
                   [&](const engine::ReleaseReceive& release) {
                     if (release.token == kLent) return TakeLentOut();
                     queue_pair_->Release(verbs::ReceiveToken(release.token));
                   },
                   [&](const engine::PostRdmaRead& read) {
                     posted = true;
                     recorder_.NoteRdma(stats::NoteKind::kRdmaRead, read.length,
                                        {.local_stag = read.local_stag.value(),
                                         .remote_stag = read.remote_stag.value(),
                                         .local_to = read.local_va,
                                         .remote_to = read.remote_va});
                     const verbs::RdmaReadWork work{.id = read.id,
                                                    .local_stag = read.local_stag,
                                                    .local_to = read.local_va,
                                                    .length = read.length,
                                                    .remote_stag = read.remote_stag,
                                                    .remote_to = read.remote_va};
                     if (!PostWithRoom([&] { return queue_pair_->PostRdmaRead(work); })) abort = true;
                   },
                   [&](const engine::PostRdmaWrite& write) {
                     posted = true;
                     recorder_.NoteRdma(stats::NoteKind::kRdmaWrite,
                                        static_cast<uint32_t>(write.local.size()),
                                        {.local_stag = write.local_stag.value(),
                                         .remote_stag = write.remote_stag.value(),
                                         .remote_to = write.remote_va});
                     const verbs::RdmaWriteWork work{.id = write.id,
                                                     .signaled = true,
                                                     .local = {&write.local, 1},
                                                     .local_stag = write.local_stag,
                                                     .remote_stag = write.remote_stag,
                                                     .remote_to = write.remote_va};
                     if (!PostWithRoom([&] { return queue_pair_->PostRdmaWrite(work); })) abort = true;
                   },
                   [&](const engine::DisconnectLink&) { disconnect = true; },
                   [&](const engine::AbortLink&) { abort = true; },
               },
               action);
  }
  if (leaves_first_ && engine_->state() == engine::State::kSendClosed && !engine_->has_unfinished_sends()) {
    leaves_first_ = false;
    left_first_ = true;
    queue_pair_->Disconnect();
  }
  if ((posted || queue_pair_->unsent_bytes() != 0) && !between_links()) {
    changed_ = true;
    if (!queue_pair_->Flush()) queue_pair_->DetachBorrowed();
  }
  if (disconnect) queue_pair_->Disconnect();
  if (abort) Abort();
}

void Session::Abort() {
  changed_ = true;
  if (!between_links()) {
    queue_pair_->Abort();
  } else if (queue_pair_->device() != nullptr) {
    queue_pair_->Abort();    // a queue pair that was left late still exists
  } else if (!Confined()) {  // else the link goes with the descriptor
    move_->Dissolve(*queue_pair_);
  }
  move_.reset();
  EndLink();
}

bool Session::link_outlives_abort() const {
  const bool aborted = engine_->state() == engine::State::kAborted;
  if (!aborted || reset_at_ == kNever || moving() || queue_pair_->device() != nullptr) return false;
  const verbs::LinkEnd end = queue_pair_->cause().end;
  return end == verbs::LinkEnd::kOpen || end == verbs::LinkEnd::kTerminated;
}

Time Session::EndOutlivingLink(Time now) {
  if (Confined()) return kNever;
  if (reset_at_ == Time{}) reset_at_ = now + kPatienceForEnd;
  Pump();
  if (!link_outlives_abort()) return kNever;
  const int link = queue_pair_->event_fd();
  int unacknowledged = 0;
  char byte;
  // Our FIN counts as a byte.
  const bool heard = queue_pair_->unsent_bytes() == 0 &&
                     (real.ioctl(link, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged <= 1);
  const bool answered = LinkRecv(link, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
  if (!(heard && answered) && now < reset_at_) return now + kLookForEnd;
  Abort();
  return reset_at_ = kNever;
}

bool Session::TakeCompletions() {
  if (between_links()) return false;
  verbs::Completion completion;
  bool any = false;
  while (queue_pair_->PollCompletion(&completion)) {
    any = changed_ = true;
    if (completion.status != verbs::Status::kSuccess) continue;  // the link's end reports all of it
    switch (completion.opcode) {
      case verbs::Opcode::kReceive:
        recorder_.NoteReceived({completion.pieces, completion.piece_count}, completion.length,
                               completion.solicited, completion.invalidated);
        engine_->HandleReceive({.length = completion.length,
                                .pieces = {completion.pieces, completion.piece_count},
                                .token = completion.token.value(),
                                .cost = queue_pair_->ReceiveCost(completion.length),
                                .invalidated = completion.invalidated});
        break;
      case verbs::Opcode::kSend:
        engine_->HandleSendCompleted(completion.id);
        break;
      case verbs::Opcode::kRdmaRead:
        if (completion.id != kNudge) recorder_.NoteReadDone();
        engine_->HandleRdmaReadCompleted(completion.id);
        break;
      case verbs::Opcode::kRdmaWrite:
        engine_->HandleRdmaWriteCompleted(completion.id);
        break;
    }
  }
  if (any && queue_pair_->device() != nullptr)
    queue_pair_->device()->NotePeerHas(engine_->unacknowledged_messages());
  return any;
}

void Session::NoteEnd() {
  // A peer that has its SuspCommAck may end the link before this process has begun to.
  if (!link_ended_ && move_ == nullptr && engine_->suspended_port() && MayMove()) StartMove();
  EndLink();
}

void Session::EndLink() {
  if (link_ended_) return;
  changed_ = true;
  engine_->HandleLinkEnd(queue_pair_->cause().end == verbs::LinkEnd::kClosedByPeer);
  if (move_ != nullptr && move_->phase() == LinkMove::Phase::kLeaving && engine_->suspended())
    return move_->NoteLeft(Now());
  if (move_ != nullptr && move_->phase() == LinkMove::Phase::kNewLink && !failure_) {
    failure_ = move_->Cause(0, "the new connection ended before its HelloAck");
  }
  move_.reset();
  link_ended_ = true;
  // A FIN without DisConn is an abort, which our end of the link does not survive either.
  const bool in_order = engine_->peer_closed() || left_first_ || queue_pair_->device() != nullptr;
  if (queue_pair_->cause().end == verbs::LinkEnd::kClosedByPeer && !in_order) queue_pair_->Abort();
  // An engine that is still suspended waits for the next connection, which will not come.
  if (engine_->suspended_port()) engine_->Abort(engine::AbortReason::kLinkLost);
}

bool Session::Read(ReadFor wanted) {
  if (link_ended_) return false;
  if (being_read() || full()) {  // the reading thread takes what comes; data to send must not wait for it
    Pump();
    return false;
  }
  if (between_links()) {
    Pump();
    return !moving() && !link_ended_;
  }
  KeepLent();
  changed_ = changed_ || queue_pair_->unsent_bytes() != 0;  // some of it may leave
  verbs::Pollable* const pollable = wanted == ReadFor::kSolicited ? queue_pair_->pollable() : nullptr;
  const ReadStatus status = pollable != nullptr                         ? pollable->ReadForSolicited()
                            : reads_little_ || wanted == ReadFor::kSome ? queue_pair_->ReadSome()
                                                                        : queue_pair_->ReadLink();
  NoteSize();
  read_at_ = CoarseNow();
  changed_ = changed_ || status != ReadStatus::kWouldBlock;
  const bool any = TakeCompletions();
  if (status == ReadStatus::kEnded) NoteEnd();
  Pump();
  return any || status == ReadStatus::kProgress;
}

bool Session::PollAvailable(PollFor wanted) {
  verbs::Pollable* const pollable = queue_pair_->pollable();
  if (pollable == nullptr || link_ended_ || being_read() || moving() || full()) return ReadSome();
  KeepLent();
  changed_ = changed_ || queue_pair_->unsent_bytes() != 0;
  const ReadStatus status = pollable->PollLink(wanted);
  read_at_ = CoarseNow();
  changed_ = changed_ || status != ReadStatus::kWouldBlock;
  const bool any = TakeCompletions() || status != ReadStatus::kWouldBlock;
  if (status == ReadStatus::kEnded) NoteEnd();
  if (any) Pump();
  return any;
}

void Session::AbandonReading() {
  read_ = 0;
  changed_ = true;
  if (queue_pair_->sleepable() != nullptr) queue_pair_->sleepable()->AbandonReading();
}

void Session::NudgeReader() {
  changed_ = true;
  // Only the link's next bytes end that sleep. The peer's RNIC alone answers a zero-length RDMA Read, and its
  // STag means nothing.
  queue_pair_->PostRdmaRead({.id = kNudge, .length = 0, .remote_stag = STag(1)});
  if (!queue_pair_->Flush()) queue_pair_->DetachBorrowed();
}

bool Session::may_sleep_in_read() const {
  const verbs::Sleepable* const sleepable = std::as_const(*queue_pair_).sleepable();
  return !being_read() && !link_ended_ && !moving() && sleepable != nullptr && sleepable->can_block() &&
         !queue_pair_->interest().write;
}

ReadStatus Session::ReadSleeping(verbs::CallerLock& lock, verbs::SleeperMemory memory) {
  struct Reading {
    Session* session;
    const uint32_t number;
    // Also when the thread is cancelled in its sleep; it holds the lock again by then.
    ~Reading() {
      if (session->read_ == number) session->read_ = 0;
    }
  };
  const std::shared_ptr<verbs::QueuePair> read = queue_pair_;
  ReadStatus status;
  {
    reads_ = std::max(reads_ + 1, uint32_t{1});
    changed_ = true;
    const Reading reading{.session = this, .number = read_ = reads_};
    status = read->sleepable()->ReadLinkBlocking(lock, memory);
  }
  if (queue_pair_ != read) {
    if (status == ReadStatus::kProgress) Abort();  // a part of the stream is lost
    return ReadStatus::kInterrupted;
  }
  return status == ReadStatus::kInterrupted ? status : FinishSleep(status);
}

bool Session::ReadLately() const { return read_at_ == CoarseNow(); }

void Session::NoteSize() {
  const uint64_t bytes = queue_pair_->counters().bytes_in;
  if (bytes == bytes_then_) return;
  bulk_ = bytes - bytes_then_ >= kBulk;
  bytes_then_ = bytes;
}

ReadStatus Session::FinishSleep(ReadStatus status) {
  NoteSize();
  read_at_ = CoarseNow();
  TakeCompletions();
  if (status == ReadStatus::kEnded) NoteEnd();
  Pump();
  return status;
}

bool Session::LeaveReader(int fd) {
  if (!at_rest() || !Thaw(Freeze(), fd)) return false;
  read_ = 0;
  changed_ = true;
  return true;
}

Address Session::LocalName() const {
  if (queue_pair_->device() == nullptr) return {};
  sockaddr_storage local{};
  sockaddr_storage peer{};
  queue_pair_->device()->Names(&local, &peer);
  return MakeAddress(reinterpret_cast<const sockaddr*>(&local), sizeof local);
}

Address Session::PeerName() const {
  if (queue_pair_->device() == nullptr) return {};
  sockaddr_storage local{};
  sockaddr_storage peer{};
  queue_pair_->device()->Names(&local, &peer);
  return MakeAddress(reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
}

short Session::watch_events() const {
  if (link_ended_) return 0;
  if (between_links()) return move_->events();
  const short in = full() ? 0 : POLLIN;
  return queue_pair_->interest().write ? static_cast<short>(in | POLLOUT) : in;
}

Result<void, engine::AbortReason> Session::HandleReply(Bytes hello, Bytes reply, bool speak_first) {
  auto accepted = engine_->HandleReply(reply);
  if (!accepted) return accepted;
  recorder_.NotePrivateData(stats::NoteDirection::kOut, hello);
  if (reply.empty()) return accepted;
  recorder_.NotePrivateData(stats::NoteDirection::kIn, reply);
  if (speak_first) engine_->SendUpdate();
  return accepted;
}

bool Session::has_unsent() const {
  if (link_ended_) return false;
  return moving() || queue_pair_->unsent_bytes() != 0 || engine_->has_unfinished_sends();
}

}  // namespace sdp::preload
