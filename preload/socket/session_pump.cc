#include <poll.h>

#include <utility>
#include <variant>

#include "preload/confinement.h"
#include "preload/socket/session.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/session_moves.h"

namespace sdp::preload {
namespace {

using verbs::ReadStatus;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// The most unread bytes of a connection that is going to be moved to another process, while this end waits
// for something later on the link: credit, or the news that the peer has read lent memory.
constexpr uint64_t kMostToMoveForCredit = 10 << 20;

// Posts one piece of work. A peer may grant more credit than the send queue has room for: then flushes the
// queue first. Returns false if there is still no room. A stream that is gone counts as posted; the next
// read reports its end to the engine.
template <typename Post>
bool PostWithRoom(verbs::QueuePair& queue_pair, Post post) {
  if (post() != verbs::PostResult::kNoResource) return true;
  if (!queue_pair.Flush()) queue_pair.DetachBorrowed();
  return post() != verbs::PostResult::kNoResource;
}

}  // namespace

Session::Session(std::unique_ptr<engine::Engine> engine, std::unique_ptr<verbs::QueuePair> queue_pair)
    : engine_(std::move(engine)), queue_pair_(std::move(queue_pair)) {}

size_t Session::Send(std::span<const Bytes> data, engine::SendFlags flags) {
  if (const size_t sent = flags.out_of_band ? 0 : direct().TrySend(data); sent != 0) return sent;
  const size_t taken = engine().Send(data, flags);
  Pump();
  return taken;
}

void Session::Pump() {
  // The flush may have completed all that the engine waits for; then nothing has to come in.
  do {
    do {
      PumpOut();
    } while (TakeCompletions());
  } while (move_.now != nullptr && moves().Advance());
}

void Session::PumpOut() {
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
                     if (!PostWithRoom(*queue_pair_, [&] { return queue_pair_->PostSend(work); }))
                       abort = true;
                   },
                   [&](const engine::PostReceives& receives) { queue_pair_->PostReceives(receives.count); },
                   [&](const engine::SetReceiveSize& size) {
                     if (!queue_pair_->SetReceiveBufferSize(size.bytes, size.count))
                       engine_->HandleReceiveSizeRefused();
                   },
                   [&](const engine::ReleaseReceive& release) {
                     if (release.token == kLent) return direct().TakeLentOut();
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
                     if (!PostWithRoom(*queue_pair_, [&] { return queue_pair_->PostRdmaRead(work); }))
                       abort = true;
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
                     if (!PostWithRoom(*queue_pair_, [&] { return queue_pair_->PostRdmaWrite(work); }))
                       abort = true;
                   },
                   [&](const engine::DisconnectLink&) { disconnect = true; },
                   [&](const engine::AbortLink&) { abort = true; },
               },
               action);
  }
  if (kinship_.leaves_first() && engine_->state() == engine::State::kSendClosed &&
      !engine_->has_unfinished_sends()) {
    kinship_.NoteLeft();
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
    move_.now->Dissolve(*queue_pair_);
  }
  move_.now.reset();
  EndLink();
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
        recorder_.NoteReadDone();
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
  if (!link_ended_ && move_.now == nullptr && engine_->suspended_port() && !Confined()) moves().Start();
  EndLink();
}

void Session::EndLink() {
  if (link_ended_) return;
  changed_ = true;
  engine_->HandleLinkEnd(queue_pair_->cause().end == verbs::LinkEnd::kClosedByPeer);
  if (move_.now != nullptr && move_.now->phase() == LinkMove::Phase::kLeaving && engine_->suspended())
    return move_.now->NoteLeft(Now());
  if (move_.now != nullptr && move_.now->phase() == LinkMove::Phase::kNewLink && !move_.failure) {
    move_.failure = std::make_unique<verbs::LinkCause>(
        move_.now->Cause(0, "the new connection ended before its HelloAck"));
  }
  move_.now.reset();
  link_ended_ = true;
  // A FIN without DisConn is an abort, which our end of the link does not survive either.
  const bool in_order = engine_->peer_closed() || kinship_.left_first() || queue_pair_->device() != nullptr;
  if (queue_pair_->cause().end == verbs::LinkEnd::kClosedByPeer && !in_order) queue_pair_->Abort();
  // An engine that is still suspended waits for the next connection, which will not come.
  if (engine_->suspended_port()) engine_->Abort(engine::AbortReason::kLinkLost);
}

bool Session::Read(ReadFor wanted) {
  if (link_ended_) return false;
  if (full()) {  // data to send must not wait for the reader
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
  reads_.NoteBytes(queue_pair_->counters().bytes_in);
  reads_.Note();
  changed_ = changed_ || status != ReadStatus::kWouldBlock;
  const bool any = TakeCompletions();
  if (status == ReadStatus::kEnded) NoteEnd();
  Pump();
  return any || status == ReadStatus::kProgress;
}

bool Session::Poll(PollFor wanted) {
  verbs::Pollable* const pollable = queue_pair_->pollable();
  if (pollable == nullptr || link_ended_ || moving() || full()) return Read(ReadFor::kSome);
  KeepLent();
  changed_ = changed_ || queue_pair_->unsent_bytes() != 0;
  const ReadStatus status = pollable->PollLink(wanted);
  reads_.Note();
  changed_ = changed_ || status != ReadStatus::kWouldBlock;
  const bool any = TakeCompletions() || status != ReadStatus::kWouldBlock;
  if (status == ReadStatus::kEnded) NoteEnd();
  if (any) Pump();
  return any;
}

bool Session::MaySleep() {
  KeepLent();
  changed_ = true;
  return queue_pair_->pollable() != nullptr && queue_pair_->pollable()->may_sleep();
}

bool Session::full() const {
  if (!reads_little_ || move_.now != nullptr || engine_->readable_bytes() < kMostToMove) return false;
  const bool waits = !engine_->writable() || engine_->offered_bytes() != 0;
  // Bytes that were unsent when several processes began to share the connection have no bound.
  const uint64_t unsent = queue_pair_->unsent_bytes() + engine_->buffered_bytes();
  return !waits || engine_->readable_bytes() + (unsent > kMostToMove ? unsent - kMostToMove : 0) >=
                       kMostToMoveForCredit;
}

short Session::watch_events() const {
  if (link_ended_) return 0;
  if (between_links()) return move_.now->events();
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
