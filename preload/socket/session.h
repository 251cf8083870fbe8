// One established SDP connection. Owns the engine and the queue pair, and carries the engine's actions to the
// queue pair and completions back. Passive and unlocked: the StreamSocket that owns the session holds its
// lock around every call.
#ifndef SDP_PRELOAD_SOCKET_SESSION_H_
#define SDP_PRELOAD_SOCKET_SESSION_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "preload/socket/address.h"
#include "preload/socket/clock.h"
#include "preload/socket/iovec_cursor.h"
#include "preload/socket/link_move.h"
#include "preload/stats_recorder.h"
#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {

class Session {
 public:
  // The most unread bytes of a connection that is going to be moved; no less than a TCP socket keeps by
  // default.
  static constexpr uint64_t kMostToMove = 4 << 20;
  // The most while this end waits for something later on the link: credit, or the news that the peer has read
  // lent memory.
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

  // Carries out the engine's actions and hands the result to the link. Afterwards nothing refers to the
  // caller's memory.
  void Pump();
  // Pump(), except that data from the link stays with the queue pair until the next call that reads.
  void PumpOut() { CarryOut(); }

  // Ends the link at once, whatever state the connection is in.
  void Abort();
  // Returns true if the connection has been aborted, but not its link, which has carried an AbortConn or a
  // Terminate.
  [[nodiscard]] bool link_outlives_abort() const;
  // Resets that link. First the peer must acknowledge the message, and answer or end its direction, or have
  // had time to (SDP 8.2.2). Returns when to call again; kNever: the link is gone.
  Time EndOutlivingLink(Time now);

  // --- data, the direct way where that may be (session_direct.cc)
  // Takes bytes as Engine::Send does, and hands them to the link. Returns how many.
  size_t Send(std::span<const Bytes> data, engine::SendFlags flags) {
    if (const size_t sent = flags.out_of_band ? 0 : TrySendDirect(data); sent != 0) return sent;
    const size_t taken = engine().Send(data, flags);
    Pump();
    return taken;
  }
  // If nothing received is unread: takes whole messages off the link, straight into `room`. Returns the
  // number of bytes; 0 if ReadSome() has to be called. A message that is larger than the room left becomes
  // readable where it is, in the link.
  size_t ReceiveDirect(ReceiveCursor* room);
  // Does what ReceiveDirect() does, without its rare cases: for the express way (stream_socket_express.cc).
  // Needs plain(). Returns 0 if `room` is too small for all that the link has. Returns less than all where
  // something is due, or another kind of message comes: the caller goes on the usual way.
  size_t ReceiveAllDirect(MutableBytes room);
  // Returns true if the link is memory, and nothing is under way but usual Data past the queues.
  [[nodiscard]] bool plain() const { return !lent_ && DirectLink() != nullptr && engine_->plain(); }
  // Returns true if SendDirect() may follow, with `size` bytes. Needs a link that is memory.
  [[nodiscard]] bool MaySendDirect(size_t size) {
    return engine_->may_send_direct(size) && queue_pair_->direct()->MaySendDirect(engine::kDataHeader + size);
  }
  // Sends all of `data` in one message past the queues.
  void SendDirect(std::span<const Bytes> data, size_t total);
  // After SendDirect() or ReceiveAllDirect(): returns true if more is due, or the link has ended:
  // FinishDirect() and a look at everything have to follow.
  [[nodiscard]] bool due_after_direct() const {
    return engine_->due_after_direct() || std::as_const(*queue_pair_).send_failed();
  }
  void FinishDirect() {
    if (engine_->due_after_direct()) Pump();
  }
  // Returns true if the link has one message that ReceiveAllDirect() would take, false if it has nothing.
  // Returns nothing if only a look by the usual way tells.
  [[nodiscard]] std::optional<bool> OneComesDirect() const;
  [[nodiscard]] bool HasNothingInLink() const {
    const verbs::Direct* const link = queue_pair_->direct();
    return link == nullptr || link->InLink() == 0;
  }
  // Returns true if the link has a message that ReceiveDirect() would take.
  [[nodiscard]] bool ComesDirect() const;
  // Returns how many bytes ReceiveDirect() would find in the link behind what is readable. Returns nothing if
  // something else is there, or too much to be looked at. What is behind the next message is judged later.
  [[nodiscard]] std::optional<uint64_t> DirectBytes() const;
  // Returns true if a message is readable where it is, in the link.
  [[nodiscard]] bool lends() const { return lent_.has_value(); }

  // Takes what the link has and lets the engine react, without blocking. Returns false once the link has
  // nothing more (it would block, or has ended).
  bool ReadAvailable() { return Read(ReadFor::kAll); }
  // ReadAvailable() for a program that takes next what has come: about one message (QueuePair::ReadSome).
  bool ReadSome() { return Read(ReadFor::kSome); }
  // ReadAvailable() before a sleep that only a solicited message has to end (Pollable::ReadForSolicited).
  bool ReadForSolicited() { return Read(ReadFor::kSolicited); }
  // ReadSome() for a caller that polls (Pollable::PollLink). Returns false if nothing has come.
  using PollFor = verbs::Pollable::PollFor;
  bool PollAvailable(PollFor wanted = PollFor::kNow);

  // Returns true if anything that comes from now on ends a sleep (Pollable::may_sleep). If false, the caller
  // calls ReadAvailable() first.
  [[nodiscard]] bool MaySleep() {
    KeepLent();
    changed_ = true;
    return queue_pair_->pollable() != nullptr && queue_pair_->pollable()->may_sleep();
  }

  // Returns a look at the link that needs no lock, or nullptr (Pollable::peek).
  [[nodiscard]] std::shared_ptr<const verbs::Peek> Peek() {
    return queue_pair_->pollable() != nullptr ? queue_pair_->pollable()->peek() : nullptr;
  }

  // Return whether a read, ReadSleeping() included, has looked at the link since the last clock tick, or
  // `time`.
  [[nodiscard]] bool ReadLately() const;
  [[nodiscard]] bool ReadSince(Time time) {
    if (std::exchange(read_untimed_, false)) read_at_ = std::max(read_at_, NotedAt());
    return read_at_ >= time;
  }

  // Returns true if large messages come. A thread that sleeps then takes more at once than one that looks.
  [[nodiscard]] bool in_bulk() const { return bulk_; }

  // Reads, asleep in the link's read until something comes, with `lock` dropped. Only while
  // may_sleep_in_read(). `memory`: what is registered to be filled.
  verbs::ReadStatus ReadSleeping(verbs::CallerLock& lock, verbs::SleeperMemory memory);
  [[nodiscard]] bool may_sleep_in_read() const;
  // Wakes the thread in ReadSleeping, although the peer's application sends nothing. A round trip to the
  // peer's RNIC does that, if the RNIC answers by itself or the peer is in a call.
  void NudgeReader();
  // A jump tore that thread out of its sleep, and it has read nothing.
  void AbandonReading();
  // The thread in ReadSleeping is the calling one, in a signal handler, and its read returns nothing. The
  // session continues without it, on the link `fd`. Returns false if the session cannot be frozen now.
  bool LeaveReader(int fd);
  // Returns true if a thread sleeps in ReadSleeping. Then no other thread may read.
  [[nodiscard]] bool being_read() const { return read_ != 0; }

  // The peer has to send its first FPDU until then. Before that this end may send nothing (RFC 5044, 7.1.2).
  void AwaitStart(Time until) { start_until_ = until; }
  // Returns that time; kNever if the peer has sent it, or need not.
  [[nodiscard]] Time start_until() const {
    const bool waits =
        queue_pair_->device() == nullptr && queue_pair_->counters().bytes_in == 0 && !link_ended_;
    return waits ? start_until_ : kNever;
  }

  // The messages of the connection, recorded from the handshake on.
  stats::MessageRecorder& recorder() { return recorder_; }
  const stats::MessageRecorder& recorder() const { return recorder_; }

  // How waits ended that may look before they sleep (Waiting::LooksBeforeSleep).
  struct WaitCounts {
    uint64_t polled = 0;  // polling found the event
    uint64_t slept = 0;
  };
  WaitCounts& waits() { return waits_; }
  const WaitCounts& waits() const { return waits_; }

  // Returns the descriptor to wait on for this connection. `fd`: the application's for it.
  [[nodiscard]] int LinkOf(int fd) const {
    return queue_pair_->device() != nullptr ? queue_pair_->event_fd() : fd;
  }

  // Return the connection's own names, if the RNIC has some that the application's descriptor does not know;
  // else of length 0.
  [[nodiscard]] Address LocalName() const;
  [[nodiscard]] Address PeerName() const;

  // --- moving to another process, or between those that share the connection
  // Returns false if the connection stays with its process: a child of fork must not destroy such a session.
  [[nodiscard]] bool portable() const { return queue_pair_->portable() != nullptr; }
  [[nodiscard]] bool freezable() const { return !being_read() && at_rest(); }
  // Needs freezable().
  [[nodiscard]] std::vector<std::byte> Freeze();
  // Appends the frozen state to `ar`, which refers to the data until the session's next call.
  void Freeze(Writer& ar);
  // Returns a session on the link `fd` in place of one that is still to be thawed, from what another process
  // will leave. Its answers belong to no connection.
  // `memory`: the link's, if it is a local one.
  using Memory = std::shared_ptr<iwarp::LocalMemory>;
  [[nodiscard]] static std::unique_ptr<Session> Blank(int fd, Memory memory);
  // Returns the session that another process has frozen; nullptr if these bytes are none.
  [[nodiscard]] static std::unique_ptr<Session> Thawed(Bytes frozen, int fd, Memory memory);
  // Returns the descriptor that another program needs besides the link, or -1. The session owns it.
  [[nodiscard]] int memory_fd() const { return iwarp::DescriptorOf(iwarp::MemoryOf(*queue_pair_).get()); }
  // Becomes the session that was frozen, on the link `fd`; engine() stays where it is. Returns false if these
  // bytes are no session.
  bool Thaw(Bytes frozen, int fd);
  // Returns true if the frozen part may have changed since SetChanged(false).
  [[nodiscard]] bool changed() const { return changed_; }
  void SetChanged(bool changed) { changed_ = changed; }
  // What is read is going to be moved: every read takes little, and see full(). Survives Thaw().
  void ReadLittle(bool little) {
    if (little) KeepLent();
    reads_little_ = little;
  }
  // Returns true if so much is unread that ReadAvailable takes nothing more off the link: moving it must stay
  // possible.
  [[nodiscard]] bool full() const {
    if (!reads_little_ || move_ != nullptr || engine_->readable_bytes() < kMostToMove) return false;
    const bool waits = !engine_->writable() || engine_->offered_bytes() != 0;
    // Bytes that were unsent when several processes began to share the connection have no bound.
    const uint64_t unsent = queue_pair_->unsent_bytes() + engine_->buffered_bytes();
    return !waits || engine_->readable_bytes() + (unsent > kMostToMove ? unsent - kMostToMove : 0) >=
                         kMostToMoveForCredit;
  }
  // In the child of a fork: the thread that slept in ReadSleeping is not here, unless it forked, in a
  // handler.
  void ForgetReader() { read_ = 0; }

  // --- Socket Duplication (SDP 13), at the peer's request. session_move.cc
  // Returns true if the session is to leave its link, has none, or the new link is not set up yet. Reads and
  // pumps do all steps except those of LeadMove(), on events of watch_events() and at move_deadline().
  [[nodiscard]] bool moving() const {
    return move_ != nullptr || (!link_ended_ && engine_->suspended_port().has_value());
  }
  // After progress: ends the old link. Once it has ended and no result of a loan is left to be taken,
  // connects anew to `peer`, which the link had. An owner that does not serve the session, such as a
  // listener, does not call this. Returns true if the engine has begun the next connection: its counts begin
  // anew.
  bool LeadMove(const Address& peer);
  // A seccomp filter is about to be set, and would end the process at the next step. The connection is lost
  // instead.
  void EndMove();
  [[nodiscard]] Time move_deadline() const;
  // Return true if a move has taken a step since the last TakeMoved(). A waiting thread then looks at its
  // condition again.
  [[nodiscard]] bool has_moved() const { return moved_; }
  [[nodiscard]] bool TakeMoved() { return std::exchange(moved_, false); }
  // Returns what to poll the link for; 0: nothing.
  [[nodiscard]] short watch_events() const;
  // Sums over all links.
  [[nodiscard]] verbs::QpCounters link_counters() const;

  // As connecting peer: handles the answer of the peer's RNIC to `hello`, after which the queue pair was
  // made. `speak_first`: the peer may have to receive a message of ours before it may send one.
  Result<void, engine::AbortReason> HandleReply(Bytes hello, Bytes reply, bool speak_first);

  // Returns true if the peer is known to be this library, on the first link. To such a peer a FIN behind our
  // DisConn is the end in good order, although we do not wait for its DisConn (SDP 8.2.1).
  [[nodiscard]] bool kin() const { return kin_; }
  void SetKin(bool kin) { kin_ = kin; }
  // Both directions are closed here. To kin that has not closed, our direction of the link ends with our
  // DisConn, in one segment. So TIME_WAIT is this end's, which has closed first.
  void LeaveFirst() { leaves_first_ = kin_; }
  // Returns true if that has happened. Then the peer's FIN is all that is awaited.
  [[nodiscard]] bool left_first() const { return left_first_; }

  // Returns true if no byte will ever come again.
  [[nodiscard]] bool link_ended() const { return link_ended_; }
  // Returns why the link ended, or why there is none.
  [[nodiscard]] const verbs::LinkCause& cause() const { return failure_ ? *failure_ : queue_pair_->cause(); }
  // Returns true if a write has failed because the link ended, and no thread has read that end yet.
  [[nodiscard]] bool end_unread() const {
    return !link_ended_ && !being_read() && !moving() && queue_pair_->send_failed();
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
  // Posts one piece of work. A peer may grant more credit than the send queue has room for: then flushes the
  // queue first. Returns false if there is still no room. A stream that is gone counts as posted; the next
  // read reports its end to the engine.
  template <typename Post>
  bool PostWithRoom(Post post);
  [[nodiscard]] verbs::Direct* DirectLink() const;
  // Returns when the recorder has noted a message last, by CoarseNow().
  [[nodiscard]] Time NotedAt() const;
  // The message stays in the link while it is unread, until something else is read from there (KeepLent).
  void LendDirect(verbs::Direct* link, Bytes header, const verbs::Direct::Arrived& arrived);
  // What is unread of that message leaves the link.
  void KeepLent() {
    if (lent_) [[unlikely]]
      TakeLentOut();
  }
  void TakeLentOut();
  // Sends all of `data` in one message past the queues, and returns its size; or sends nothing.
  size_t TrySendDirect(std::span<const Bytes> data);
  void TakeDirect(verbs::Direct* link, Bytes header, const verbs::Direct::Arrived& arrived,
                  std::span<const MutableBytes> places);
  enum class ReadFor : uint8_t { kAll, kSome, kSolicited };
  bool Read(ReadFor wanted);
  [[nodiscard]] bool at_rest() const {
    return !moving() && engine_->freezable() && portable() && queue_pair_->portable()->freezable();
  }
  // Returns true if there was one.
  bool TakeCompletions();
  void CarryOut();
  void NoteSize();
  // Handles the result of a sleeping read.
  verbs::ReadStatus FinishSleep(verbs::ReadStatus status);
  bool Thaw(Bytes frozen, int fd, Memory memory);
  // The link has ended by itself.
  void NoteEnd();
  void EndLink();

  // session_move.cc
  [[nodiscard]] bool between_links() const { return move_ != nullptr && move_->between_links(); }
  // Returns false under a seccomp filter, which allows no connect.
  [[nodiscard]] bool MayMove() const;
  void StartMove();
  void BeginMove();
  // Returns true if there is something new to carry out.
  bool AdvanceMove();
  bool TakeMoveStep();
  bool EnterNewLink();
  bool FinishMove(Time now);
  void FailMove(verbs::LinkCause cause);

  std::unique_ptr<engine::Engine> engine_;
  std::shared_ptr<verbs::QueuePair> queue_pair_;  // a thread in ReadSleeping has a share of it
  stats::MessageRecorder recorder_;
  WaitCounts waits_;
  Time read_at_{};             // by CoarseNow()
  bool read_untimed_ = false;  // and again since
  bool bulk_ = false;          // the last read that brought bytes brought many
  uint64_t bytes_then_ = 0;
  uint32_t read_ = 0;   // the number of the ReadSleeping in progress; 0: none
  uint32_t reads_ = 0;  // the last such number
  bool link_ended_ = false;
  bool kin_ = false;
  bool leaves_first_ = false;
  bool left_first_ = false;
  Time reset_at_{};  // when EndOutlivingLink stops waiting; kNever: it has ended the link
  Time start_until_ = kNever;
  bool changed_ = true;
  bool reads_little_ = false;
  // A message that stays in the link, and what DirectBytes() has counted behind that message.
  struct Lent {
    explicit Lent(const verbs::Direct::Arrived& message) : last(message) {}
    verbs::Direct::Arrived last;  // the message itself, until others are counted
    int messages = 0;
    uint64_t bytes = 0;
  };
  mutable std::optional<Lent> lent_;
  static constexpr uint64_t kLent = UINT64_MAX;  // the token by which the engine has it
  bool moved_ = false;
  std::unique_ptr<LinkMove> move_;
  int idle_moves_ = 0;  // in a row; a peer must not keep the program busy with moves alone
  uint64_t payload_at_move_ = 0;
  std::optional<verbs::LinkCause> failure_;  // of a move
  verbs::QpCounters earlier_links_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SESSION_H_
