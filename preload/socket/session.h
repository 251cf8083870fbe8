// One established SDP connection: the engine and the queue pair, and the carrying of actions one way and
// completions the other. Passive and unlocked: the StreamSocket that owns it holds its lock around every
// call.
#ifndef SDP_PRELOAD_SOCKET_SESSION_H_
#define SDP_PRELOAD_SOCKET_SESSION_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "preload/socket/address.h"
#include "preload/socket/link_move.h"
#include "preload/stats_recorder.h"
#include "verbs/rnic.h"

namespace sdp::preload {

class Session {
 public:
  // Unread bytes of a connection that is going to be moved; a TCP socket keeps no more either, unless it is
  // told to.
  static constexpr uint64_t kMostToMove = 4 << 20;
  // The same while something is waited for that comes behind them on the link: credit, or that lent memory
  // was read.
  static constexpr uint64_t kMostToMoveForCredit = 10 << 20;

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

  // Carries out what the engine wants and hands it to the link. Nothing of the caller's memory is referenced
  // afterwards.
  void Pump();
  // The same, but what the link has brought stays with the queue pair until the next call that reads.
  void PumpOut() { CarryOut(); }

  // Ends the link at once, whatever state the connection is in.
  void Abort();
  // The connection has been aborted, but not its link: AbortConn or Terminate has been said on it.
  [[nodiscard]] bool link_outlives_abort() const;
  // Resets that link once the peer has acknowledged what was said, and has answered or ended its direction,
  // or has had time to (SDP 8.2.2). Returns when to come again; kNever: the link is gone.
  Time EndOutlivingLink(Time now);

  // Takes what the link has and lets the engine react, without blocking. False once the link has nothing more
  // (would block, ended).
  bool ReadAvailable() { return Read(ReadFor::kAll); }
  // ReadAvailable() before a sleep that only a solicited message has to end (Pollable::ReadForSolicited).
  bool ReadForSolicited() { return Read(ReadFor::kSolicited); }
  // ReadAvailable() for a caller that comes again at once (Pollable::PollLink). False: nothing has come.
  bool PollAvailable();

  // Whatever comes from now on ends a sleep (Pollable::may_sleep). False: ReadAvailable() comes before one.
  [[nodiscard]] bool MaySleep() {
    changed_ = true;
    return queue_pair_->pollable() != nullptr && queue_pair_->pollable()->may_sleep();
  }

  // Any of these, or the next, has looked at the link since the clock's last tick.
  [[nodiscard]] bool ReadLately() const;
  [[nodiscard]] bool ReadSince(Time time) const { return read_at_ >= time; }

  // The same, asleep in the link's read until something comes, with `lock` dropped. Only while
  // may_sleep_in_read(). `memory`: what is registered to be filled.
  verbs::ReadStatus ReadSleeping(verbs::CallerLock& lock, verbs::SleeperMemory memory);
  [[nodiscard]] bool may_sleep_in_read() const;
  // Wakes the thread in ReadSleeping, although the peer's application has nothing to say: by a round trip to
  // its RNIC, if that answers by itself or the peer is in a call.
  void NudgeReader();
  // That thread was torn out of its sleep by a jump, and nothing was read.
  void AbandonReading();
  // Some thread sleeps in ReadSleeping, or one of another process did before the connection became common to
  // both: nobody else may read.
  [[nodiscard]] bool being_read() const { return being_read_ || read_elsewhere_; }
  // One of this process.
  [[nodiscard]] bool read_here() const { return being_read_; }
  // Whether one of another process does. True: that is news.
  bool SetReadElsewhere(bool read) { return std::exchange(read_elsewhere_, read) != read; }
  // Lets the session be frozen, and go on, while the thread sleeps, whatever becomes of the state:
  // ReadSleeping returns kDiverted, and what it has brought is taken by TakeBrought(), on the newest state;
  // until then read_here() holds. False: not now. `fd`: the link.
  bool DivertReader(int fd);
  [[nodiscard]] bool divertible() const { return being_read_ && diverted_ == nullptr && at_rest(); }
  // It may have brought something already.
  [[nodiscard]] bool reader_is_back() const {
    return diverted_ != nullptr && diverted_->portable()->reader_is_back();
  }
  verbs::ReadStatus TakeBrought();

  // The messages of the connection, noted down from the handshake on.
  stats::MessageRecorder& recorder() { return recorder_; }
  const stats::MessageRecorder& recorder() const { return recorder_; }

  // How waits for the peer ended, where an RNIC's completion queue is looked at before a sleep
  // (StreamSocket::LookBeforeSleep).
  struct WaitCounts {
    uint64_t polled = 0;  // a look found what was waited for
    uint64_t slept = 0;
  };
  WaitCounts& waits() { return waits_; }
  const WaitCounts& waits() const { return waits_; }

  // What to wait on for this connection, `fd` being a descriptor of the application's for it.
  [[nodiscard]] int LinkOf(int fd) const {
    return queue_pair_->device() != nullptr ? queue_pair_->event_fd() : fd;
  }

  // The connection's own name, where the RNIC has one that the application's descriptor does not know; else
  // of length 0.
  [[nodiscard]] Address LocalName() const;
  [[nodiscard]] Address PeerName() const;

  // --- moving to another process, or between those that share the connection
  // False: the connection stays with its process. In a child of fork the session must not be destroyed.
  [[nodiscard]] bool portable() const { return queue_pair_->portable() != nullptr; }
  [[nodiscard]] bool freezable() const { return (!being_read_ || diverted_ != nullptr) && at_rest(); }
  // Needs freezable().
  [[nodiscard]] std::vector<std::byte> Freeze() const;
  // The same behind what `ar` has, which refers to the data until the session's next call.
  void Freeze(Writer& ar) const;
  // In the place of one that is still to be thawed, from what another process will leave; on the link `fd`.
  // What it says is of no connection.
  [[nodiscard]] static std::unique_ptr<Session> Blank(int fd);
  // What was frozen, in another process. nullptr: these bytes are no session.
  [[nodiscard]] static std::unique_ptr<Session> Thawed(Bytes frozen, int fd);
  // Becomes what was frozen, on the link `fd`; engine() stays where it is. False: these bytes are no session.
  bool Thaw(Bytes frozen, int fd);
  // Something of what is frozen may have changed since it was told otherwise.
  [[nodiscard]] bool changed() const { return changed_; }
  void SetChanged(bool changed) { changed_ = changed; }
  // What is read is going to be moved: see verbs::Portable::ReadLittle, and full(). Stays so through Thaw().
  void ReadLittle(bool little);
  // So much is unread that ReadAvailable takes nothing more off the link: it has to be possible to move it.
  [[nodiscard]] bool full() const {
    if (!reads_little_ || move_ != nullptr || engine_->readable_bytes() < kMostToMove) return false;
    const bool waits = !engine_->writable() || engine_->offered_bytes() != 0;
    // What was unsent when the connection became common to several has no bound.
    const uint64_t unsent = queue_pair_->unsent_bytes() + engine_->buffered_bytes();
    return !waits || engine_->readable_bytes() + (unsent > kMostToMove ? unsent - kMostToMove : 0) >=
                         kMostToMoveForCredit;
  }
  // In the child of a fork: the thread that slept in ReadSleeping is not here, unless it is the one that
  // forked, in a handler.
  void ForgetReader() {
    being_read_ = false;
    (void)diverted_.release();
  }

  // --- Socket Duplication (SDP 13), asked for by the peer. session_move.cc
  // It is to leave its link, or has none, or the new one is not set up yet. Reading and pumping, on events of
  // watch_events() and at move_deadline(), lead on, but for the steps that LeadMove() takes.
  [[nodiscard]] bool moving() const {
    return move_ != nullptr || (!link_ended_ && engine_->suspended_port().has_value());
  }
  // After progress: ends the old link, and, when that is over and no result of a loan is left to be taken,
  // connects anew to `peer`, which the link had. Who does not tend to the session, as a listener, does not
  // call this. True if the engine has gone on to the next connection in this call: what it counts for one
  // connection begins anew.
  bool LeadMove(const Address& peer);
  // A seccomp filter is about to be set, which would end the process at the next step: the connection is lost
  // instead.
  void EndMove();
  [[nodiscard]] Time move_deadline() const;
  // Grows with each step: who waits has to look what he waits for.
  [[nodiscard]] uint32_t move_steps() const { return move_steps_; }
  // What to poll the link for; 0: nothing.
  [[nodiscard]] short watch_events() const;
  // Over all links.
  [[nodiscard]] verbs::QpCounters link_counters() const;

  // As connecting peer: what the peer's RNIC has answered to `hello`, behind which the queue pair was made.
  // `speak_first`: the peer may have to hear a message of ours before it may send one.
  Result<void, engine::AbortReason> HandleReply(Bytes hello, Bytes reply, bool speak_first);

  // No byte will ever come again.
  [[nodiscard]] bool link_ended() const { return link_ended_; }
  // Why the link ended, or why there is none.
  [[nodiscard]] const verbs::LinkCause& cause() const { return failure_ ? *failure_ : queue_pair_->cause(); }
  // A write has heard of the end that nobody has read yet.
  [[nodiscard]] bool end_unread() const {
    return !link_ended_ && !being_read() && !moving() && queue_pair_->send_failed();
  }
  // There is something only time and the peer can finish: bytes to send, a handshake message to wait for.
  [[nodiscard]] bool has_unsent() const;
  // Nor is anything with the RNIC alone, where it would go with the process or the queue pair
  // (verbs::DeviceLink::AllTaken).
  [[nodiscard]] bool AllTaken() {
    if (link_ended_) return true;
    return !has_unsent() && (queue_pair_->device() == nullptr || queue_pair_->device()->AllTaken());
  }

 private:
  // Posts one piece of work. A peer may grant more credit than the send queue has room: then what is queued
  // is flushed first. False: there is no room even so. A stream that is gone counts as posted; the next read
  // reports its end to the engine.
  template <typename Post>
  bool PostWithRoom(Post post);
  enum class ReadFor : uint8_t { kAll, kSolicited };
  bool Read(ReadFor wanted);
  [[nodiscard]] bool at_rest() const {
    return !moving() && engine_->freezable() && portable() && queue_pair_->portable()->freezable();
  }
  // True if there was one.
  bool TakeCompletions();
  void CarryOut();
  // What a sleeping read leads to.
  verbs::ReadStatus FinishSleep(verbs::ReadStatus status);
  // The link has ended by itself.
  void NoteEnd();
  void EndLink();

  // session_move.cc
  [[nodiscard]] bool between_links() const { return move_ != nullptr && move_->between_links(); }
  // Not behind a seccomp filter, which knows of no connect.
  [[nodiscard]] bool MayMove() const;
  void StartMove();
  void BeginMove();
  // True if there is something new to carry out.
  bool AdvanceMove();
  bool TakeMoveStep();
  bool EnterNewLink();
  bool FinishMove(Time now);
  void FailMove(verbs::LinkCause cause);

  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<verbs::QueuePair> queue_pair_;
  stats::MessageRecorder recorder_;
  WaitCounts waits_;
  Time read_at_{};  // by CoarseNow()
  bool being_read_ = false;
  bool read_elsewhere_ = false;
  std::unique_ptr<verbs::QueuePair> diverted_;  // that thread is in its read
  std::vector<std::unique_ptr<verbs::QueuePair>>
      abandoned_;  // such ones that a jump left: their frames may not be gone
  bool link_ended_ = false;
  Time reset_at_{};  // EndOutlivingLink waits no longer; kNever: it has ended the link
  bool changed_ = true;
  bool reads_little_ = false;
  uint32_t move_steps_ = 0;
  std::unique_ptr<LinkMove> move_;
  int idle_moves_ = 0;  // in a row; a peer must not keep the program busy with nothing else
  uint64_t payload_at_move_ = 0;
  std::optional<verbs::LinkCause> failure_;  // of a move
  verbs::QpCounters earlier_links_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SESSION_H_
