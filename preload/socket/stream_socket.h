// A stream socket of the application's in every state it can have: new, listening, connecting, an SDP
// connection, closed and lingering; and, once it is plain TCP, gone from the library's sight.
//
// One lock per socket guards everything in it, the session's engine and queue pair included. Held over system
// calls that do not block; dropped over those that do. Lock order: StreamSocket, then an observer's
// (EpollSet), a Listener's, Background's; never two StreamSockets.
#ifndef SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_
#define SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_

#include <poll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "preload/config.h"
#include "preload/inheritance.h"
#include "preload/socket/address.h"
#include "preload/socket/background.h"
#include "preload/socket/board.h"
#include "preload/socket/call_mark.h"
#include "preload/socket/co_holders.h"
#include "preload/socket/connect_attempt.h"
#include "preload/socket/corked.h"
#include "preload/socket/guests.h"
#include "preload/socket/handover.h"
#include "preload/socket/kept_options.h"
#include "preload/socket/lending.h"
#include "preload/socket/lingering.h"
#include "preload/socket/listener.h"
#include "preload/socket/option_log.h"
#include "preload/socket/poll_budget.h"
#include "preload/socket/quiet_links.h"
#include "preload/socket/reader_patience.h"
#include "preload/socket/report.h"
#include "preload/socket/restart.h"
#include "preload/socket/session.h"
#include "preload/socket/shared_connection.h"
#include "preload/socket/socket.h"
#include "preload/socket/socket_mutex.h"
#include "preload/socket/tcp_answers.h"
#include "preload/socket/urgent_mark.h"

namespace sdp::preload {

class StreamSocket final : public Socket {
 public:
  enum class State : uint8_t { kNew, kListening, kConnecting, kSdp, kPlain, kClosed };

  // AF_INET, AF_INET6, or kFamilySdp: SDP or nothing.
  explicit StreamSocket(int domain);
  // An accepted SDP connection.
  StreamSocket(int domain, int fd, std::unique_ptr<Session> session, const Address& local,
               const Address& peer, const KeptOptions& options, bool nonblocking);
  // Connected, from another program: TakeUp() comes next.
  StreamSocket(int domain, const std::vector<int>& descriptors, std::unique_ptr<SharedConnection> shared);
  // Neither connected nor listening, from another program; it may have listened: TakeUpListening() comes
  // next.
  StreamSocket(int domain, const std::vector<int>& descriptors, const KeptOptions& options);

  // --- The calls (socket.h)
  ssize_t Send(int fd, const iovec* iov, size_t count, int flags) override;
  ssize_t SendFromFile(int fd, int file, off64_t offset, size_t count) override;
  ssize_t Receive(int fd, const iovec* iov, size_t count, int flags, int* out_flags) override;
  void WriteControl(ssize_t received, ControlRoom* room) override;
  ssize_t ReceiveError(ControlRoom* room, int* out_flags) override;
  int Bind(int fd, const sockaddr* address, socklen_t length) override;
  int Listen(int fd, int backlog) override;
  void ListensForOthers() override { listens_for_others_ = true; }
  int Connect(int fd, const sockaddr* address, socklen_t length) override;
  int Accept(int fd, sockaddr* address, socklen_t* length, int flags, SocketRef* connection) override;
  int Shutdown(int fd, int how) override;
  int GetSockName(int fd, sockaddr* address, socklen_t* length) override;
  int GetPeerName(int fd, sockaddr* address, socklen_t* length) override;
  int GetSockOpt(int fd, int level, int name, void* value, socklen_t* length) override;
  int SetSockOpt(int fd, int level, int name, const void* value, socklen_t length) override;
  int Ioctl(int fd, unsigned long request, void* argument) override;
  int Close(int fd) override;
  void AddDescriptor(int fd) override;
  bool MoveDescriptor(int from, int to) override;
  void Vanished(int fd) override;
  int VisibleStatusFlags(int kernel_flags) override;
  int ChangeStatusFlags(int flags) override;
  bool DoesNotBlock() override { return nonblocking_.value_or(false); }
  bool Appends(int fd) override;
  int TakeErrorAhead() override;
  void ReportLater(int error) override;
  void RanOutOfMemory(int fd) override;
  bool IsStream() override {
    const State state = state_.load(std::memory_order_relaxed);
    return state == State::kSdp || state == State::kConnecting;
  }
  void PublishStanding() override;
  void OwnerChanged(int fd) override;

  // --- For the readiness room
  struct Readiness {
    State state = State::kNew;
    short events = 0;     // poll events that hold now (kSdp, kConnecting)
    short watch = 0;      // what to watch the descriptor for meanwhile; 0: nothing
    int link_fd = -1;     // to be watched in place of the descriptor; -1: the descriptor itself
    bool device = false;  // link_fd is an RNIC's with a completion queue: before a sleep see LookAtQueue()
    bool looked = false;  // NoteSlept() is to be told of sleeps, EndLook() of looks
    Duration look{};      // how long to look before a sleep; zero: not at all
    bool shared = false;  // other processes hold the connection, too. Look again soon: they do not say what
                          // they do to it
    bool left_in_link = false;  // readable by a message that the next receive takes off the link
    bool read_ahead = false;    // then: so much is unread that no more is to be taken off the link
    uint64_t read_edge = 0;
    uint64_t write_edge = 0;
    int listener_fds[3] = {
        -1, -1, -1};  // kListening: beside the conventional descriptor, readable when accept may succeed
  };
  Readiness GetReadiness();
  // Returns the poll events that hold, if usual Data and room to write are all that there is to tell of. 0:
  // GetReadiness() knows. Does not wait for the socket's lock: the caller may hold a lock that comes later in
  // the lock order.
  [[nodiscard]] uint32_t ReadyExpress();
  // Returns whether what is in the link is all that there may be to tell of.
  [[nodiscard]] bool NothingTaken() const { return mutex_.express_open(); }
  [[nodiscard]] bool listening() const { return state_.load(std::memory_order_relaxed) == State::kListening; }
  // A listener's SDP side became readable: see Listener::TakeOn.
  bool TakeOnConnections();
  // The descriptor became ready: takes what is there. `polled`: as of TakeRung(); then data that a look finds
  // may stay in the link.
  void Progress(bool polled = false);
  // What a thread waits for that looks: poll events; or, edge-triggered, an edge that it has not seen.
  struct Wanted {
    short events = 0;
    bool edges = false;
    uint64_t read_edge = 0;
    uint64_t write_edge = 0;
  };
  // Before a thread sleeps for a socket over a kernel RNIC (Readiness::device), with others or alone: one
  // look at the completion queue, without a system call most times. kFound: what it waits for; kCame:
  // something else, credit perhaps.
  enum class QueueLook : uint8_t { kNothing, kCame, kFound };
  QueueLook LookAtQueue(const Wanted& wanted);
  // kUseless: in vain, though something came.
  enum class LookResult : uint8_t { kFound, kInVain, kUseless, kCrowded };
  // The last of these is over. True: it must not sleep yet, something has come. `bell`: of the epoll set that
  // is going to sleep; null: it has none.
  bool EndLook(LookResult result, const verbs::BellName* bell = nullptr, uint64_t cookie = 0);
  // The peer has rung an epoll set's bell for this link. `polled`: the set looks at the link until EndLook(),
  // and no other thread waits for the link.
  void TakeRung(bool polled);
  // The sleep is over that began so long ago, by what this socket was waited for, or another of those that
  // were looked at, or neither.
  enum class WokenBy : uint8_t { kThis, kAnother, kNeither };
  void NoteSlept(Duration lasted, WokenBy by);
  // The same of a thread that had not looked, because another one did.
  void NoteSleptUnlooked(WokenBy by);
  // `bell`: the waiter's, to be heard as well; or null.
  void AddWaiter(Waiter* waiter, iwarp::Bell* bell);
  void RemoveWaiter(Waiter* waiter);
  // kPlain: not added, the kernel answers for the descriptor.
  State AddObserver(ReadinessObserver* observer, int fd);
  void RemoveObserver(ReadinessObserver* observer, int fd);

  // One of its descriptors, -1 if the application has closed them all.
  int AnyDescriptor() override;
  // One that is not `fd`, -1 if there is none.
  int OtherDescriptor(int fd);

  // --- For inheritance
  // With own() locked: what another program has to know that gets this socket.
  void HandOver(uint64_t inode, Giver giver, Guests& guests, Handover* out, HandoverFds* fds);
  [[nodiscard]] bool connected() const { return state_.load(std::memory_order_relaxed) == State::kSdp; }
  // Other processes hold the connection, too.
  bool IsShared();
  // What keeps a connection to this process that the peer can let go of, memory that was lent or a copy of
  // it, is asked back, and waited for.
  void SettleToGive();
  // One step of a connect that is under way in the background. False: there is none, or it was waited for in
  // vain.
  bool StepConnect();
  void NoteWaitedForConnect();
  // A connect that is under way ends, and one that has not at the deadline goes on by TCP, which the kernel
  // knows all of. False: it may not, or a thread sleeps in it.
  [[nodiscard]] bool SettleConnect(Time deadline);
  // `front`: of the connection, for as long as another process has its state. False: there is no such
  // connection any more.
  [[nodiscard]] bool TakeUp(Bytes front);
  // Takes both descriptors over. False: the kernel answers for the listener from here on.
  [[nodiscard]] bool TakeUpListening(const Handover::Listener& from, const Handover::ListenerFds& fds);

  // --- For process_life
  // False: locked for this fork already. Only the forking thread calls these.
  bool LockForFork();
  void UnlockAfterFork();
  // Before the lock is taken for a fork, or to give the connection away: threads leave the link's read, and
  // wait by poll until UnlockAfterFork(). One that cannot be reached keeps the connection until it wakes.
  void EndLinkRead(Time deadline);
  // With the lock held, before fork: an SDP connection is the child's, too.
  [[nodiscard]] bool shareable() const {
    return state_ == State::kSdp && session_ != nullptr && !foreign_ && session_->portable();
  }
  void ShareWithChild();
  // Before that: memory that the peer knows of keeps the connection to this process. It is asked back
  // (SDP 9.5.4, 9.5.5). A receive buffer's return is waited for; of a send buffer there is a copy.
  void SettleLoans(Time deadline);
  // In the child of a fork, lock held: what was not shared is the parent's.
  void DisownAfterFork();
  void NoteForkInParent();
  // A seccomp filter comes: what is found out by system calls now can be used behind it.
  void PrepareConfinement(int fd);
  // Behind that of all sockets: a listener waits until `give_up` for what other processes have taken on.
  void FinishConfinement(Time give_up);
  // What other threads send from here on is EPIPE without a signal.
  static void NoteProcessEnds();
  // The process ends, or an exec is about to close its descriptors: what it has sent must leave, and the peer
  // must learn that no more comes. One step, without waiting. Returns true if nothing of this socket holds
  // the process up any more. `interrupted`: a thread that a signal has taken out of its call for good; 0:
  // none. Must not be called in a handler.
  enum class ProcessEnd : bool { kExit, kExec };
  [[nodiscard]] bool StepToEnd(ProcessEnd how, pthread_t interrupted);
  // In a handler, or without memory: as far as no peer has to be waited for.
  void EndAtOnce();

 private:
  class Task final : public Background::Task {
   public:
    explicit Task(StreamSocket* socket) : socket_(socket) {}
    Background::Wait Run(Time now) override { return socket_->RunInBackground(now); }
    Socket* owner() override { return socket_; }

   private:
    StreamSocket* const socket_;
  };
  class QuietLink final : public QuietLinks::Link {
   public:
    explicit QuietLink(StreamSocket* socket) : socket_(socket) {}
    Socket* owner() override { return socket_; }
    void LookIfUnread(Time since) override { socket_->LookIfUnread(since); }
    void TakeUnread() override { socket_->TakeUnread(); }

   private:
    StreamSocket* const socket_;
  };
  using Lock = std::unique_lock<SocketMutex>;

  ~StreamSocket() override;

  // stream_socket.cc
  // The process's first connection or listener over SDP comes.
  static void NoteFirst();
  void EnterSdp(std::unique_ptr<Session> session, const Address& local, const Address& peer,
                stats::Role role);
  void BecomePlain(int fd, stats::FallbackReason reason, const std::string& text);
  // `publish` false: the caller does it again before it returns.
  void AfterProgress(bool publish = true);
  // At the end of a call that has moved data, after AfterProgress(false).
  void PublishTraffic();
  // Takes what has come, if the connection is this process's to read.
  void Look();
  // Like Look(), but leaves some of it to the next look where the kernel goes on to tell of it.
  void TakeFromLink();
  // Like Look(), until nothing more has come: a reset stands behind the bytes that were ahead of it, and TCP
  // knows of it before those are read.
  void LookToTheEnd();
  void AnswerRefused();
  void NoteAbort();
  // What poll finds, as poll events.
  [[nodiscard]] short ReadyNow() const;
  [[nodiscard]] bool InCloseWait() const { return preload::InCloseWait(tcp_view(), session_->cause()); }
  [[nodiscard]] TcpView tcp_view() const {
    return {.engine = engine(),
            .link_ended = session_->link_ended(),
            .pending_error = pending_error_,
            .receive_shut = receive_shut_,
            .send_shut = send_shut_};
  }
  [[nodiscard]] const engine::Engine& engine() const { return std::as_const(*session_).engine(); }
  [[nodiscard]] const verbs::QueuePair& queue_pair() const { return std::as_const(*session_).queue_pair(); }
  short WatchEvents() const;
  int LinkOf(int fd) const { return session_ != nullptr ? session_->LinkOf(fd) : fd; }
  bool IsNonblocking(int fd);
  int TakeError();
  // Returns true if a receive may take messages off the link itself (Session::ReceiveDirect).
  [[nodiscard]] bool TakesDirect() const {
    return queue_pair().direct() != nullptr && shared_ == nullptr && !board_.hears_doorbells() &&
           !options_.tells_queue();
  }
  // Returns how many bytes in the link make the socket readable where they are. Nothing: only a look at the
  // link tells what is there.
  [[nodiscard]] std::optional<uint64_t> LeftInLink() const;
  [[nodiscard]] bool ComesDirect() const { return LeftInLink().value_or(0) != 0; }
  // stream_socket_express.cc
  void OpenExpress(int inside);
  std::optional<ssize_t> SendExpress(const iovec& piece, int flags);
  std::optional<ssize_t> ReceiveExpress(const iovec& piece, int flags, size_t* taken);
  std::optional<ssize_t> ReceiveLeftovers(MutableBytes room);
  std::optional<Readiness> ReadinessExpress();
  bool ObserveExpress(ReadinessObserver* observer, int fd);
  bool ForgetExpress(ReadinessObserver* observer, int fd);
  void LeaveBellExpress(ExpressLock& lock);
  bool ComesSoon(int flags);
  [[nodiscard]] bool Blocks(int flags) const {
    return (flags & MSG_DONTWAIT) == 0 && !nonblocking_.value_or(false);
  }
  void FinishExpress(ExpressLock& lock);

  // What came before the connection was anybody's to wait for, who is about to wait by poll or epoll.
  void TakeUntold();
  [[nodiscard]] bool HasUntold() const;
  // Still neither connected nor listening, it is another process's, too: what the one makes of it the other
  // would not know of.
  [[nodiscard]] bool IsCommon(int fd) const;
  // Whoever has closed answers what is sent with a reset, which the next call is to know of.
  void LookForRefusal();
  // Whether the link is over, in the kernel's words alone: nothing is read.
  void GlanceAtLink();
  // What is unread goes from process to process with a shared connection.
  static constexpr size_t kReadAheadOfShared = 64 << 10;

  // stream_socket_wait.cc
  // What the handlers of signals do to a sleep: kRestart heeds SA_RESTART, as TCP does without a time-out.
  enum class Signals : uint8_t { kInterrupt, kRestart };
  // kSolicited: of the peer's messages none has to end it but a solicited one (SDP 14.2).
  // kData: whom more to be read, and the end, is the news.
  // kMessage: kData, for a caller that takes a message off the link itself (Session::ReceiveDirect).
  enum class Awaited : uint8_t { kAll, kData, kMessage, kSolicited };
  [[nodiscard]] static bool AwaitsData(Awaited awaited) {
    return awaited == Awaited::kData || awaited == Awaited::kMessage;
  }
  int WaitForChange(Lock& lock, int fd, Time deadline, Signals signals, Awaited awaited = Awaited::kAll,
                    const HandlerWatch& handlers = {});
  // The sleep in it: until `link` is ready or somebody wakes the waiters, with `lock` dropped. 0, or an errno
  // as above. `handlers`: also if one has run since that would have ended it.
  int SleepAsWaiter(Lock& lock, pollfd* link, Time deadline, Signals signals,
                    const HandlerWatch& handlers = {}, Awaited awaited = Awaited::kAll);
  // stream_socket_look.cc
  // What a call does first that may come in vain, and again at once: without a system call where the RNIC can
  // do that. True: something came. `takes`: the caller takes the data that has come, and publishes that.
  bool LookAtLink(bool takes = false, Session::PollFor wanted = Session::PollFor::kNow);
  bool LookForEnd();
  // Returns true if the link is a local one.
  [[nodiscard]] bool OnLocalLink() const;
  // Returns true if threads sleep in Send or Receive on a local link: there they sleep in poll.
  [[nodiscard]] bool HasSleepers() const { return calls_inside_ != 0 && OnLocalLink(); }
  // MayHearByBell() tells whether a sleeper may ask for its bell. After HearByBell() the peer rings `bell`
  // when it writes next; false: something has come already. LeaveBell() ends that; true: the caller has to
  // read.
  [[nodiscard]] bool MayHearByBell() const;
  bool HearByBell(const verbs::BellName& bell, uint64_t cookie = 0);
  bool LeaveBell();
  // The thread will sleep for its bell alone: the helper watches the link for its end, and for a doorbell of
  // a peer that cannot ring. Ends with quiet_.RelyOnNoMore(). Returns false if the helper does not.
  bool RelyOnHelper();
  // Returns true if a wait looks at the link before it sleeps: it is this process's, and no thread reads it.
  [[nodiscard]] bool LooksBeforeSleep() const;
  // More to be read, or to be asked for, than before.
  struct ReadSide {
    uint64_t bytes = 0;
    uint64_t advertised = 0;
    bool operator==(const ReadSide&) const = default;
  };
  [[nodiscard]] ReadSide read_side() const {
    return {.bytes = engine().readable_bytes(), .advertised = engine().advertised_bytes()};
  }
  // How things stood when a wait began.
  struct WaitMark {
    HandlerWatch handlers;
    uint64_t wakes;
    ReadSide read_side;
  };
  [[nodiscard]] WaitMark MarkWait(const HandlerWatch& handlers) const {
    return {.handlers = handlers, .wakes = board_.wakes(), .read_side = read_side()};
  }
  // The wait has slept, after a look.
  void NoteWait(Awaited awaited, const WaitMark& mark, Duration lasted);
  // Behind progress: something that this wait is for.
  [[nodiscard]] bool CameFor(Awaited awaited, const WaitMark& mark) const {
    return awaited == Awaited::kAll || board_.wakes() != mark.wakes || session_->link_ended() ||
           (AwaitsData(awaited) && read_side() != mark.read_side);
  }
  // A message is in the link that the caller will take off it.
  [[nodiscard]] bool ComesFor(Awaited awaited) const {
    return awaited == Awaited::kMessage && TakesDirect() && session_->ComesDirect();
  }
  // Looks for a bounded time, with `lock` given back in between, over what is no use to the caller (credit,
  // to a reader) too; then asks to be woken. 0: something has come, or changed, meanwhile. EINTR: a handler
  // ran that ends a sleep. Nothing: it is time to sleep.
  std::optional<int> LookBeforeSleep(Lock& lock, Time deadline, Awaited awaited, const WaitMark& mark,
                                     Signals signals);
  bool TakeBeforeSleep(Awaited awaited);
  void LeaveToBackground();
  [[nodiscard]] Report::Names names() const {
    return {.fd = descriptors_.empty() ? -1 : descriptors_.front(),
            .local = local_,
            .peer = peer_,
            .sdp_peer = sdp_peer_};
  }

  // What this thread's earlier call has left behind because a signal handler jumped out of it. First in every
  // call that may sleep, or that takes from the link.
  void MendJump(Lock& lock, int fd, const void* frame);

  class Call;  // call.h
  // What a part of Send or Receive leaves to do. kGoOn: the next part. kAgain: all from the beginning. kDone:
  // nothing, the call returns what it has moved. kOver: the call ends, see Call::Ended(). kFailed: with
  // errno, nothing was moved.
  enum class Step : uint8_t { kGoOn, kAgain, kDone, kOver, kFailed };
  // Nothing more can be sent, for ever or for the error that is to be reported first.
  [[nodiscard]] bool CannotSend() const { return pending_error_ != 0 || !engine().can_send(); }

  // stream_socket_send.cc
  struct Sending;
  void LookAheadOfSend(size_t total);
  void TakeCredit();
  [[nodiscard]] bool MayCork(const Call& call, const Sending& send, int flags) const;
  std::optional<ssize_t> EndOfSend(Call& call, const Sending& send);
  std::optional<ssize_t> EndOfLink(Call& call, const Sending& send);
  Step SendByLoan(Call& call, Sending* send);
  Step SendByCopy(Sending* send);
  Step AwaitRoom(Call& call, Sending* send);
  // In CLOSE_WAIT, when the peer has gone: TCP takes what is sent, and the reset that answers it is the next
  // call's error.
  ssize_t SendToNobody(size_t bytes);

  // stream_socket_receive.cc
  struct Receiving;
  ssize_t ReceiveNothing(int fd, int flags, int* out_flags);
  Step TakeReadable(Receiving* run);
  Step ReceiveByLoan(Call& call, Receiving* run);
  Step LookForMore(Receiving* run);
  Step EndOfReceive(Call& call, Receiving* run);
  Step AwaitData(Call& call, Receiving* run);
  // A reader's sleep is over, and the socket was closed meanwhile: RunLinger has waited for that.
  void LetGoOn();

  // stream_socket_urgent.cc
  ssize_t ReceiveOutOfBand(std::span<const MutableBytes> room, int flags, int* out_flags);
  void PassMark();
  [[nodiscard]] uint64_t ReadableAtOnce() const { return urgent_mark_.readable_at_once(engine()); }
  [[nodiscard]] bool FillsReceiveBuffer() const;
  // FIONREAD's answer, if all that counts is here or can stay in the link.
  std::optional<int> CountWhereItIs();

  // stream_socket_options.cc
  int GetStreamInfo(int fd, void* value, socklen_t* length);
  int PutPeerName(void* value, socklen_t* length) const;
  int ReceiveNothingMapped(void* value, socklen_t* length);
  void AfterKeptOption(int fd, int level, int name);
  [[nodiscard]] bool IsTuning(int level, int name) const;
  int SetTuning(int name, const void* value, socklen_t length);
  int GetTuning(int name, void* value, socklen_t* length) const;
  void ApplyBcopyThreshold();

  // stream_socket_limits.cc
  // SO_RCVLOWAT, but never so much that the peer cannot send it (the kernel bounds it by the receive buffer).
  size_t LowWater() const;
  [[nodiscard]] size_t SendLimit() const;
  // How many bytes a send may take now.
  [[nodiscard]] size_t SendRoom() const { return RoomWithin(SendLimit()); }
  // A link with less room than this, and less than the caller has to send, is full.
  static constexpr size_t kLeastRoom = 32 * 1024;
  // Returns how much of `wanted` a call may hand to the link at a time. 0: the link is full, and what waits
  // for it is told when it is not.
  size_t LinkRoom(size_t wanted);
  [[nodiscard]] uint64_t Queued() const;  // bytes that have not left
  [[nodiscard]] size_t RoomWithin(size_t limit) const;
  // A send of so many bytes may leave them to the library and return, though no peer has taken any.
  [[nodiscard]] bool MayBuffer(size_t bytes) const;
  // What poll tells a writer.
  [[nodiscard]] bool Writable() const;
  // A sender of files has found the link full, and nothing is unsent.
  [[nodiscard]] bool AwaitsLinkRoom() const;
  // After progress: is there room again for a writer that found none?
  void NoteSendRoom();
  // An option may have changed the sizes of buffers.
  void AfterBufferSize();

  // stream_socket_control.cc
  ssize_t SendZeroCopy(int fd, const iovec* iov, size_t count, int flags);

  // stream_socket_signals.cc
  void TellOwner();
  bool UrgentInterrupts();
  bool ListensForPeer();
  Background::Wait IdleWait();
  Background::Wait TrimmedWait(Time now);
  // The link at `fd` is waited for, if anything of it is of interest.
  [[nodiscard]] Background::Wait LinkWait(int fd, Time deadline) const;

  // Keeps the bytes of `data` for the next message, if there are time and room to. False: send them.
  bool Cork(std::span<const iovec> data, size_t total);

  // stream_socket_shared.cc
  friend class SocketMutex;
  void EnterShared();
  void LeaveShared();
  void PublishShared();
  [[nodiscard]] bool ThawShared();
  // The lock was taken for a look: if nothing was changed when it is given back, nothing is left to the
  // others.
  void OnlyLooks();
  // Leaves the state to the others. False: it is too much.
  bool FreezeShared();
  template <typename Archive>
  void VisitShared(Archive& ar);
  // What is the socket's of that state.
  std::vector<std::byte> FreezeFront();
  // Another process has the rest, and will leave it (away_). False: these bytes are nobody's front.
  [[nodiscard]] bool ExpectShared(Bytes front);
  // The connection is the process's own; false: there is no place to share it. Lock() comes next.
  [[nodiscard]] bool StartSharing();
  void LoseShared();
  [[nodiscard]] int LinkFd() const {
    return lingering_.fd() >= 0 || descriptors_.empty() ? lingering_.fd() : descriptors_.front();
  }
  // This process alone holds the connection from here on, with all its state; it holds it no longer.
  void StopSharing();
  void DropShared();
  // With own() locked, not entered. Returns true, with the shared lock, if other processes hold the
  // connection and it needs nothing of this one.
  bool OthersGoOn();
  void ForgetShared();
  // From _exit, or a signal's handler. True: the end of the connection is this process's to make, and its
  // newest state is here.
  bool FinishSharedAtOnce();
  // Nobody tells a sleeper what another process does to the connection: it looks again after this.
  Duration NextNap();
  [[nodiscard]] bool foreign() const { return foreign_ || away_; }
  // Of a connection that others hold, too: what this process has to bring to its end before they can go on
  // without it.
  [[nodiscard]] bool keeps_from_others() const {
    return session_->has_unsent() || (lending_.offered() && !session_->link_ended());
  }
  // Until foreign() no longer holds: the call waits as for a peer that takes nothing, or says nothing. 0, or
  // an errno: EAGAIN, EINTR; EIO: it never will. `deadline`: of the whole call; if it has none yet, `timeout`
  // (0: without end) from now.
  int AwaitConnection(Lock& lock, bool nonblocking, Duration timeout, Time* deadline);
  // For a moment, once: of calls that cannot say EAGAIN.
  void AwaitOwner(Lock& lock);
  Lock LockWithOwner();

  // stream_socket_move.cc
  // After progress: the connection leaves its link, or has another one.
  void FollowMove();
  // The same where nobody waits for the connection any more.
  void LeadMove();
  Background::Wait RunMove(Time look_again);

  // stream_socket_handover.cc
  bool GiveConnection(Giver giver, Guests& guests, Handover::Connection* out);
  [[nodiscard]] bool ComeToRest(Time deadline);
  SharedConnection::View LockToGive(bool brings, Time deadline);

  // stream_socket_zcopy.cc. SendLent and ReceiveLent return the bytes moved from or into the beginning of the
  // memory. Less than all with no error: the rest is to be copied. Nothing (ReceiveLent): the memory could
  // not be lent. `error` as of WaitForChange.
  size_t SendLent(Call& call, Bytes data, int* error);
  std::optional<size_t> ReceiveLent(Call& call, MutableBytes room, bool advertise, int* error);
  class WhileLent;
  // While memory is lent to be read: until it has been, the call is interrupted or late, or no reader comes.
  // Returns 0, EINTR or EAGAIN.
  int AwaitReader(Call& call, size_t size);
  int WaitForLoan(Lock& lock, int fd, const Loan& loan, Time deadline, Signals signals,
                  Time solicited_until = Time{});
  // Nothing is waited for on this connection but that the memory comes back which a sender has lent, and
  // nothing waits to be sent.
  [[nodiscard]] bool AwaitsSolicitedAlone() const;
  void FinishLoan(Lock& lock, int fd, Loan* loan);
  void CollectLoans();
  // The same where the connection is to be other processes', too: copies come back as well.
  void WithdrawLoans();
  // A reader only looks, or does not wait, and `enough` bytes are not here: what the peer offers to be read
  // is to come by itself (SDP 9.5.2.1).
  void WantBcopy(uint64_t enough);

  // stream_socket_connect.cc
  int ConnectInline(Lock& lock, int fd);
  // A connect while another one is under way.
  // Until no connect is under way. 0, EINTR, or EAGAIN when `timeout` (0: without end) is over.
  int AwaitConnect(Lock& lock, Duration timeout);
  int JoinConnect(Lock& lock, int fd);
  int FailAgain(int fd);
  int ShutDownConnect(int fd);
  int FailTaken();
  ConnectAttempt::Outcome LeadAttempt(int fd, Time now);
  // The helper goes on with it. False: there is none.
  bool LeaveConnect();
  int ReportConnected(int fd);
  // AF_UNSPEC: without a peer from here on.
  int Disconnect(int fd);
  int FinishConnect(int fd, ConnectAttempt::Outcome outcome);
  Background::Wait RunAttempt(Time now);
  // With an outcome that is not kPending.
  void EndAttempt(int fd, ConnectAttempt::Outcome outcome);
  void StepAttempt();

  // stream_socket_listen.cc
  void EnterListening(int fd);
  void StopListening(int fd);
  // Another process has shut the listener down: then it is one no more here either.
  bool WasShutDown();
  static void FinishStart(Session& session, int fd);

  // stream_socket_in_call.cc
  // The last number is about to be closed: threads that sleep in calls have the connection until they return.
  // False: there are none.
  bool KeepForCalls(int fd);
  // The last of them is about to return.
  void EndForCalls(Lock& lock);
  // `fd`, if it is the socket's still, else another number of its link.
  [[nodiscard]] int NumberNow(int fd) const;

  // stream_socket_close.cc
  // One of several descriptors is gone.
  void GoOnWithout(int fd);
  int CloseLast(Lock& lock, int fd);
  void EndStream();
  // The kernel has taken all that there is to send, and sent it. What it keeps for a peer that has no room is
  // lost if the peer sends anything, credit as a rule, when nobody has the link any more. As far as one may
  // ask it (Confined).
  [[nodiscard]] bool AllSent(int link);
  // 0, or why not: EAGAIN at the deadline; with Signals::kInterrupt, EINTR. Lets go of the lock while it
  // sleeps.
  int AwaitSent(Lock& lock, int fd, Time deadline, Signals signals);
  [[nodiscard]] bool MayGoAtOnce(int fd);
  [[nodiscard]] bool KinHasAll(int fd) const;
  int DescriptorToLinger(Lock& lock, int fd);
  Background::Wait RunInBackground(Time now);
  Background::Wait RunLinger(Time now);
  // A connect that was under way when the socket was closed. False: it goes on. Then there is a session, or
  // it has come to nothing.
  bool StepClosedConnect(Time now);
  void DropSession();

  // stream_socket_quiet.cc
  void LookIfUnread(Time since);
  void TakeUnread();
  // The helper is to read what the program does not.
  [[nodiscard]] bool HasQuietLink() const;

  // stream_socket_end.cc
  // A number of it is not close-on-exec.
  [[nodiscard]] bool SurvivesExec() const;
  void StepToSent();

  SocketMutex mutex_{this};
  std::atomic<State> state_{State::kNew};
  const int domain_;   // AF_INET or AF_INET6
  const bool native_;  // made as kFamilySdp
  std::vector<int> descriptors_;
  std::optional<bool> nonblocking_;
  bool appends_ = false;  // as known with it
  bool listener_forced_nonblocking_ = false;
  bool plain_clients_allowed_ = true;  // of a listener
  bool listens_for_others_ = false;
  CoHolders others_ = CoHolders::kNone;  // without a connection: since a fork, an exec or a message another
                                         // process may have it, too
  KeptOptions options_;
  std::atomic<bool> gives_control_{false};  // recvmsg has control messages to give
  OptionLog options_set_;                   // before the socket was connected, or listened
  std::optional<int> v6only_;  // as it was before the look-up bound the socket to a port, which changes it

  std::unique_ptr<Listener> listener_;
  std::unique_ptr<ConnectAttempt> attempt_;
  std::unique_ptr<Session> session_;
  Address local_;  // conventional
  Address peer_;
  int pending_error_ = 0;  // SO_ERROR
  // Sends with MSG_ZEROCOPY that the error queue has told of, and that there were.
  uint32_t zero_copies_told_ = 0;
  uint32_t zero_copies_sent_ = 0;
  bool connects_inline_ = false;  // the caller of connect() goes on with it, not the helper
  bool abort_noted_ = false;
  bool connect_reported_ = false;  // connect() has said that there is a connection
  bool receive_shut_ = false;
  bool send_shut_ = false;  // in CLOSE_WAIT, when the engine is over
  // A connect in the background: until the next one the socket is as one whose connection has ended.
  bool connect_failed_ = false;
  bool error_outlived_ = false;  // pending_error_ is that of a connection which AF_UNSPEC has ended
  bool locked_for_fork_ = false;
  uint8_t sleeps_by_poll_ = 0;                // how many sleeps are not at the bell
  bool reads_by_poll_ = false;                // since EndLinkRead()
  bool foreign_ = false;                      // inherited by fork and not shared: the parent's connection
  std::unique_ptr<SharedConnection> shared_;  // while other processes hold the connection, too
  UrgentMark urgent_mark_;
  bool away_ = false;  // another process keeps the connection to itself
  Time look_for_refusal_{};
  Time found_nothing_{};  // by CoarseNow(): when a receive that does not wait last looked in vain
  Time look_for_credit_{};
  bool waited_for_connect_ = false;  // by a fork, in vain
  bool waited_in_vain_ = false;      // for that process; since it has gone away
  bool responsible_ = false;         // this process left bytes unsent when it used the connection last
  bool leaving_ = false;             // closed here, but for those bytes; others may hold it
  bool child_shares_ = false;        // around fork
  bool unchanged_ = false;  // since the state was left to the others, but for what the lock's owner does
  std::vector<std::byte> left_front_;  // of that state, what is the socket's
  int naps_ = 0;
  Time left_until_ =
      kNever;  // a writer leaves reading to another process till then; kNever: it has not begun to

  Lending lending_;
  ReaderPatience reader_patience_;
  Sleeper reader_;         // while session_->being_read()
  bool ending_ = false;    // by StepToEnd
  bool trimming_ = false;  // the background looks whether the send buffer is used

  Board board_;
  PollBudget poll_budget_{config().poll};
  uint32_t seen_move_steps_ = 0;
  Corked corked_;

  Task task_{this};
  QuietLink quiet_{this};
  uint64_t calls_ = 0;               // by the application, to see whether it is active
  uint64_t glanced_at_ = 0;          // calls_ at the last GlanceAtLink()
  uint64_t told_readable_ = 0;       // by FIONREAD
  uint64_t told_in_call_ = 0;        // calls_ when CountWhereItIs() told of much
  uint64_t calls_seen_ = 0;          // by the background
  std::atomic<bool> yields_{false};  // the background's alone: its last look found a connection that the
                                     // application's calls move as well
  Lingering lingering_;              // since the program has closed its descriptors
  int calls_inside_ = 0;         // threads in Send and Receive: whoever else has the lock finds them asleep
  uint32_t jumps_before_ = 0;    // of all threads, when the first of those came
  bool kept_for_calls_ = false;  // closed, but for them: lingering_ has the descriptor

  Report report_;
  Address sdp_peer_;
  uint32_t accepted_in_a_row_ = 0;  // over SDP, without a look for others
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_
