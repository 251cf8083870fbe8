// One established SDP connection. Owns the engine and the queue pair, and carries the engine's actions to the
// queue pair and completions back. Passive and unlocked: the StreamSocket that owns the session holds its
// lock around every call.
#ifndef SDP_PRELOAD_SOCKET_SESSION_H_
#define SDP_PRELOAD_SOCKET_SESSION_H_

#include <memory>
#include <optional>

#include "core/engine/engine.h"
#include "preload/socket/address.h"
#include "preload/socket/clock.h"
#include "preload/socket/kinship.h"
#include "preload/socket/link_move.h"
#include "preload/socket/link_reads.h"
#include "preload/stats_recorder.h"
#include "verbs/rnic.h"

namespace sdp::preload {

class Session {
 public:
  // The most unread bytes of a connection that is going to be moved to another process; no less than a TCP
  // socket keeps by default.
  static constexpr uint64_t kMostToMove = 4 << 20;

  Session(std::unique_ptr<engine::Engine> engine, std::unique_ptr<verbs::QueuePair> queue_pair);

  engine::Engine& engine() {
    changed_ = true;
    return *engine_;
  }
  verbs::QueuePair& queue_pair() {
    changed_ = true;
    return *queue_pair_;
  }
  const engine::Engine& engine() const { return *engine_; }
  const verbs::QueuePair& queue_pair() const { return *queue_pair_; }

  // --- What a session does besides. Each class has a header; an object of it serves one call.
  class Direct;  // past the queues
  inline Direct direct();
  class Transfer;  // to another process
  inline Transfer transfer();
  class Moves;  // to another link, at the peer's request
  inline Moves moves();
  class AbortedLink;
  inline AbortedLink aborted_link();

  // Carries out the engine's actions and hands the result to the link. Afterwards nothing refers to the
  // caller's memory.
  void Pump();
  // Pump(), except that data from the link stays with the queue pair until the next call that reads.
  void PumpOut();

  // Ends the link at once, whatever state the connection is in.
  void Abort();

  // Takes bytes as Engine::Send does, and hands them to the link. Returns how many.
  size_t Send(std::span<const Bytes> data, engine::SendFlags flags);

  // Takes what the link has and lets the engine react, without blocking. Returns false once the link has
  // nothing more (it would block, or has ended).
  enum class ReadFor : uint8_t {
    kAll,
    kSome,       // for a program that takes next what has come: about one message (QueuePair::ReadSome)
    kSolicited,  // before a sleep that only a solicited message has to end (Pollable::ReadForSolicited)
  };
  bool Read(ReadFor wanted = ReadFor::kAll);
  // Reads some for a caller that polls (Pollable::PollLink). Returns false if nothing has come.
  using PollFor = verbs::Pollable::PollFor;
  bool Poll(PollFor wanted = PollFor::kNow);
  // Returns true if anything that comes from now on ends a sleep (Pollable::may_sleep). If false, the caller
  // calls Read() first.
  [[nodiscard]] bool MaySleep();
  // Returns a look at the link that needs no lock, or nullptr (Pollable::peek).
  [[nodiscard]] std::shared_ptr<const verbs::Peek> Peek() {
    return queue_pair_->pollable() != nullptr ? queue_pair_->pollable()->peek() : nullptr;
  }
  LinkReads& reads() { return reads_; }
  const LinkReads& reads() const { return reads_; }
  // Returns true if so much is unread that Read() takes nothing more off the link: moving it to another
  // process must stay possible.
  [[nodiscard]] bool full() const;
  // Returns what to poll the link for; 0: nothing.
  [[nodiscard]] short watch_events() const;

  // The peer has to send its first FPDU until then. Before that this end may send nothing (RFC 5044, 7.1.2).
  void AwaitStart(Time until) { start_until_ = until; }
  // Returns that time; kNever if the peer has sent it, or need not.
  [[nodiscard]] Time start_until() const {
    const bool waits =
        queue_pair_->device() == nullptr && queue_pair_->counters().bytes_in == 0 && !link_ended_;
    return waits ? start_until_ : kNever;
  }
  // As connecting peer: handles the answer of the peer's RNIC to `hello`, after which the queue pair was
  // made. `speak_first`: the peer may have to receive a message of ours before it may send one.
  Result<void, engine::AbortReason> HandleReply(Bytes hello, Bytes reply, bool speak_first);
  Kinship& kinship() { return kinship_; }
  const Kinship& kinship() const { return kinship_; }

  // The messages of the connection, recorded from the handshake on.
  stats::MessageRecorder& recorder() { return recorder_; }
  const stats::MessageRecorder& recorder() const { return recorder_; }

  // Returns true if the session is to leave its link, has none, or the new link is not set up yet.
  [[nodiscard]] bool moving() const {
    return move_.now != nullptr || (!link_ended_ && engine_->suspended_port().has_value());
  }
  // Returns true if no byte will ever come again.
  [[nodiscard]] bool link_ended() const { return link_ended_; }
  // Returns why the link ended, or why there is none.
  [[nodiscard]] const verbs::LinkCause& cause() const {
    return move_.failure ? *move_.failure : queue_pair_->cause();
  }
  // Returns true if a write has failed because the link ended, and no thread has read that end yet.
  [[nodiscard]] bool end_unread() const {
    return !link_ended_ && !moving() && queue_pair_->facts().send_failed;
  }
  // Returns true if only time and the peer can finish something: bytes to send, or a handshake message to
  // wait for.
  [[nodiscard]] bool has_unsent() const;
  // Returns true if nothing is unsent, and the RNIC has nothing that would be lost with the process or the
  // queue pair (verbs::DeviceLink::AllTaken).
  [[nodiscard]] bool AllTaken() {
    if (link_ended_) return true;
    return !has_unsent() && (queue_pair_->device() == nullptr || queue_pair_->device()->AllTaken());
  }

 private:
  inline void KeepLent();  // session_direct.h
  // Returns true if there was one.
  bool TakeCompletions();
  // The link has ended by itself.
  void NoteEnd();
  void EndLink();
  [[nodiscard]] bool between_links() const { return move_.now != nullptr && move_.now->between_links(); }

  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<verbs::QueuePair> queue_pair_;
  stats::MessageRecorder recorder_;
  LinkReads reads_;
  bool link_ended_ = false;
  bool changed_ = true;        // Transfer::changed
  bool reads_little_ = false;  // Transfer::ReadLittle
  Kinship kinship_;
  Time reset_at_{};  // when AbortedLink::End stops waiting; kNever: it has ended the link
  Time start_until_ = kNever;
  // A message that stays in the link, and what Direct::BytesInLink has counted behind that message.
  struct Lent {
    explicit Lent(const verbs::Direct::Arrived& message) : last(message) {}
    verbs::Direct::Arrived last;  // the message itself, until others are counted
    int messages = 0;
    uint64_t bytes = 0;
  };
  std::optional<Lent> lent_;
  static constexpr uint64_t kLent = UINT64_MAX;  // the token by which the engine has it
  struct Move {
    std::unique_ptr<LinkMove> now;
    bool stepped = false;
    int idle = 0;  // in a row; a peer must not keep the program busy with moves alone
    uint64_t payload_then = 0;
    std::unique_ptr<verbs::LinkCause> failure;
    std::unique_ptr<verbs::QpCounters> earlier_links;  // the sums over them
  };
  Move move_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SESSION_H_
