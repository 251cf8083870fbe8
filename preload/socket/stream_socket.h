// The application's stream socket in each of its states: new, listening, connecting, an SDP connection,
// closed and lingering. Once it is plain TCP, the library no longer has it.
//
// One lock per socket guards everything in it, with the session's engine and queue pair. A thread holds it
// over system calls that do not block, and drops it over those that do. Lock order: StreamSocket, then an
// observer's (EpollSet), a Listener's, Background's; never two StreamSockets.
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
#include "preload/socket/calls_inside.h"
#include "preload/socket/corked.h"
#include "preload/socket/guests.h"
#include "preload/socket/handover.h"
#include "preload/socket/lending.h"
#include "preload/socket/lingering.h"
#include "preload/socket/numbers.h"
#include "preload/socket/quiet_links.h"
#include "preload/socket/report.h"
#include "preload/socket/restart.h"
#include "preload/socket/session.h"
#include "preload/socket/share.h"
#include "preload/socket/socket.h"
#include "preload/socket/socket_mutex.h"
#include "preload/socket/socket_parts.h"
#include "preload/socket/tcp_answers.h"
#include "preload/socket/tcp_side.h"
#include "preload/socket/urgent_mark.h"

namespace sdp::preload {

class StreamSocket final : public Socket {
 public:
  enum class State : uint8_t { kNew, kListening, kConnecting, kSdp, kPlain, kClosed };

  // `domain`: AF_INET, AF_INET6, or kFamilySdp, which means SDP or nothing.
  explicit StreamSocket(int domain);
  // An accepted SDP connection.
  StreamSocket(int domain, int fd, std::unique_ptr<Session> session, const Address& local,
               const Address& peer, const KeptOptions& options, bool nonblocking);
  // A connection from another program. TakeUp() comes next.
  StreamSocket(int domain, const std::vector<int>& descriptors, std::unique_ptr<SharedConnection> shared);
  // A socket from another program that is not connected. TakeUpListening() comes next if it listened there.
  StreamSocket(int domain, const std::vector<int>& descriptors, const KeptOptions& options);

  // --- The calls (socket.h)
  ssize_t Send(int fd, const iovec* iov, size_t count, int flags) override;
  ssize_t SendFromFile(int fd, int file, off64_t offset, size_t count) override;
  ssize_t Receive(int fd, const iovec* iov, size_t count, int flags, int* out_flags) override;
  void WriteControl(ssize_t received, ControlRoom* room) override;
  ssize_t ReceiveError(ControlRoom* room, int* out_flags) override;
  int Bind(int fd, const sockaddr* address, socklen_t length) override;
  int Listen(int fd, int backlog) override;
  void ListensForOthers() override { listening_.for_others = true; }
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
  bool DoesNotBlock() override { return numbers_.nonblocking(); }
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
    bool device = false;  // link_fd is of an RNIC with a completion queue: LookAtQueue() comes before a sleep
    bool looked = false;  // the caller reports sleeps to NoteSlept(), and looks to EndLook()
    Duration look{};      // how long to look before a sleep; zero: not at all
    bool shared = false;  // other processes hold it, too, and do not report what they do: look again soon
    bool left_in_link = false;  // readable by a message that the next receive takes off the link
    bool read_ahead = false;    // shared, and so much is unread that no more is taken off the link
    uint64_t read_edge = 0;
    uint64_t write_edge = 0;
    int listener_fds[3] = {
        -1, -1, -1};  // kListening: beside the conventional descriptor, readable when accept may succeed
  };
  Readiness GetReadiness();
  // Returns the events and edges if usual Data and room to write are all there is to report. Returns nothing
  // if only GetReadiness() knows. Does not wait for the socket's lock: the caller may hold a lock that comes
  // later in the lock order.
  [[nodiscard]] std::optional<Readiness> ReadyExpress();
  // Returns true if all that there may be to report is in the link.
  [[nodiscard]] bool NothingTaken() const { return mutex_.express_open(); }
  [[nodiscard]] bool listening() const { return state_.load(std::memory_order_relaxed) == State::kListening; }
  // Handles a listener's SDP side that has become readable: see Listener::TakeOn.
  bool TakeOnConnections();
  // Takes what has come after the descriptor became ready. `polled`: as in TakeRung(); then data may stay in
  // the link.
  void Progress(bool polled = false);
  // What a looking thread waits for: poll events or, if it is edge-triggered, an edge that it has not seen.
  struct Wanted {
    short events = 0;
    bool edges = false;
    uint64_t read_edge = 0;
    uint64_t write_edge = 0;
  };
  // Looks once at the completion queue before a thread sleeps (Readiness::device), mostly without a system
  // call. Returns kFound if what the thread waits for has come, kCame if something else has.
  enum class QueueLook : uint8_t { kNothing, kCame, kFound };
  QueueLook LookAtQueue(const Wanted& wanted);
  // kUseless: something came, but not what the thread waits for.
  enum class LookResult : uint8_t { kFound, kInVain, kUseless, kCrowded };
  // Ends a thread's looks. Returns true if the thread must not sleep yet, because something has come. `bell`:
  // of the epoll set that is going to sleep; null if it has none.
  bool EndLook(LookResult result, const verbs::BellName* bell = nullptr, uint64_t cookie = 0);
  // The peer has rung an epoll set's bell for this link. `polled`: the set looks at the link until EndLook(),
  // and no other thread waits for the link.
  void TakeRung(bool polled);
  // Notes a sleep of this length. An event of this socket ended it, or one of another socket that was looked
  // at, or neither.
  enum class WokenBy : uint8_t { kThis, kAnother, kNeither };
  void NoteSlept(Duration lasted, WokenBy by);
  // Notes such a sleep of a thread that had not looked, because another thread did.
  void NoteSleptUnlooked(WokenBy by);
  // `bell`: the waiter's bell, which the peer may ring as well; or null.
  void AddWaiter(Waiter* waiter, iwarp::Bell* bell);
  void RemoveWaiter(Waiter* waiter);
  // Returns kPlain, and adds nothing, if the kernel answers for the descriptor.
  State AddObserver(ReadinessObserver* observer, int fd);
  void RemoveObserver(ReadinessObserver* observer, int fd);

  // Returns one of the socket's descriptors; -1 if the application has closed them all.
  int AnyDescriptor() override;
  // Returns a descriptor of the socket that is not `fd`; -1 if there is none.
  int OtherDescriptor(int fd);

  // --- For inheritance
  // Adds what another program has to know to take over this socket. The caller holds own().
  void HandOver(uint64_t inode, Giver giver, Guests& guests, Handover* out, HandoverFds* fds);
  [[nodiscard]] bool connected() const { return state_.load(std::memory_order_relaxed) == State::kSdp; }
  // Other processes hold the connection, too.
  bool IsShared();
  // Asks the peer to let go of lent memory and of its copies, which keep a connection to this process. Waits
  // for that.
  void SettleToGive();
  // Takes one step of a connect that is under way in the background. Returns true if the connect is still to
  // be waited for.
  bool StepConnect();
  void NoteWaitedForConnect();
  // Waits for a connect that is under way. At the deadline the connect goes on by TCP, of which the kernel
  // knows all. Returns false if it may not, or if a thread sleeps in it.
  [[nodiscard]] bool SettleConnect(Time deadline);
  // `front`: the connection's front, used while another process has the state. Returns false if there is no
  // such connection any more.
  [[nodiscard]] bool TakeUp(Bytes front);
  // Takes the listener over. Returns false if the kernel answers for the listener from here on.
  [[nodiscard]] bool TakeUpListening(const Handover::Listener& from, const Handover::ListenerFds& fds);

  // --- For process_life
  // Only the forking thread calls these. Returns false if the socket is locked for this fork already.
  bool LockForFork();
  void UnlockAfterFork();
  // Has threads leave the link's read, before a fork or before the connection is given away. Threads wait by
  // poll until UnlockAfterFork(). A thread that cannot be reached keeps the connection until it wakes.
  void EndLinkRead(Time deadline);
  // Returns true if this is an SDP connection that other processes can have, too. The caller holds the lock.
  [[nodiscard]] bool shareable() const {
    return state_ == State::kSdp && session_ != nullptr && !share_.not_inherited && session_->portable();
  }
  void ShareWithChild();
  // Before ShareWithChild(), asks back memory that the peer knows of, which keeps the connection to this
  // process (SDP 9.5.4, 9.5.5). Waits for a receive buffer to come back; a copy replaces a send buffer.
  void SettleLoans(Time deadline);
  // In the child of a fork, leaves to the parent what is not shared. The caller holds the lock.
  void DisownAfterFork();
  void NoteForkInParent();
  // Finds out by system calls, before a seccomp filter comes, what can be used behind it.
  void PrepareConfinement(int fd);
  // After all sockets have prepared: a listener waits until `give_up` for what other processes have taken on.
  void FinishConfinement(Time give_up);
  // Other threads' sends fail with EPIPE from here on, without a signal.
  static void NoteProcessEnds();
  // Takes one step, without waiting, before the process ends or an exec closes the descriptors. What was sent
  // must leave, and the peer must learn that no more comes. Returns true if this socket no longer holds the
  // process up. `interrupted`: a thread that a signal has taken out of its call for good, or 0. Must not be
  // called in a handler.
  enum class ProcessEnd : bool { kExit, kExec };
  [[nodiscard]] bool StepToEnd(ProcessEnd how, pthread_t interrupted);
  // Ends the connection in a handler, or without memory, as far as that needs no wait for the peer.
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
  // Prepares for the process's first connection or listener over SDP.
  static void NoteFirst();
  void EnterSdp(std::unique_ptr<Session> session, const Address& local, const Address& peer,
                stats::Role role);
  void BecomePlain(int fd, stats::FallbackReason reason, const std::string& text);
  // `publish` false: the caller publishes the statistics before it returns.
  void AfterProgress(bool publish = true);
  // At the end of a call that has moved data, after AfterProgress(false).
  void PublishTraffic();
  // Takes what has come, if the connection is this process's to read.
  void Look();
  // Like Look(), but leaves some of it to the next look where the kernel goes on to report it.
  void TakeFromLink();
  // Looks until nothing more has come. A reset comes behind earlier bytes, and TCP knows of it before those
  // are read.
  void LookToTheEnd();
  void AnswerRefused();
  void NoteAbort();
  // Returns the poll events that hold now.
  [[nodiscard]] short ReadyNow() const;
  [[nodiscard]] bool InCloseWait() const { return preload::InCloseWait(tcp_view(), session_->cause()); }
  [[nodiscard]] TcpView tcp_view() const {
    return {.engine = engine(),
            .link_ended = session_->link_ended(),
            .pending_error = tcp_.pending_error,
            .receive_shut = tcp_.receive_shut,
            .send_shut = tcp_.send_shut};
  }
  [[nodiscard]] const engine::Engine& engine() const { return std::as_const(*session_).engine(); }
  [[nodiscard]] const verbs::QueuePair& queue_pair() const { return std::as_const(*session_).queue_pair(); }
  short WatchEvents() const;
  int LinkOf(int fd) const { return session_ != nullptr ? session_->LinkOf(fd) : fd; }
  // Returns true if a receive may take messages off the link itself (Session::ReceiveDirect).
  [[nodiscard]] bool TakesDirect() const {
    return queue_pair().direct() != nullptr && share_.with == nullptr && !board_.hears_doorbells() &&
           !options_.kept.tells_queue();
  }
  // Returns how many bytes in the link make the socket readable where they are. Returns nothing if only a
  // look at the link tells what is there.
  [[nodiscard]] std::optional<uint64_t> LeftInLink() const;
  [[nodiscard]] bool ComesDirect() const { return LeftInLink().value_or(0) != 0; }
  // stream_socket_express.cc
  void OpenExpress(int inside);
  std::optional<ssize_t> SendExpress(const iovec& piece, int flags);
  std::optional<ssize_t> ReceiveExpress(const iovec& piece, int flags, size_t* taken);
  std::optional<ssize_t> ReceiveLeftovers(MutableBytes room);
  std::optional<Readiness> ReadinessExpress();
  [[nodiscard]] std::optional<Readiness> LookExpress() const;
  bool ObserveExpress(ReadinessObserver* observer, int fd);
  bool ForgetExpress(ReadinessObserver* observer, int fd);
  void LeaveBellExpress(ExpressLock& lock);
  bool ComesSoon(int flags);
  [[nodiscard]] bool Blocks(int flags) const {
    return (flags & MSG_DONTWAIT) == 0 && !numbers_.nonblocking();
  }
  void FinishExpress(ExpressLock& lock);

  // stream_socket_readiness.cc
  // Takes what the link does not report to a wait, before a thread waits by poll or epoll (has_untold()).
  // Returns false if there was nothing.
  bool TakeUntold();
  [[nodiscard]] bool HasUntold() const;
  // Returns true if another process also has the socket, which has no connection yet and may become TCP.
  // Neither process would know what the other makes of it.
  [[nodiscard]] bool IsCommon(int fd) const;
  // Looks for the reset by which a closed peer answers what is sent. The next call has to know of it.
  void LookForRefusal();
  // Asks the kernel whether the link has ended, and reads only if it has.
  void GlanceAtLink();
  // A shared connection's unread bytes go from process to process. At so many, no more is read ahead.
  static constexpr size_t kReadAheadOfShared = 64 << 10;

  // stream_socket_wait.cc
  // What signal handlers do to a sleep. kRestart heeds SA_RESTART, as TCP does without a time-out.
  enum class Signals : uint8_t { kInterrupt, kRestart };
  // kSolicited: of the peer's messages only a solicited one has to end the sleep (SDP 14.2).
  // kData: only more to be read, or the end, is of use.
  // kMessage: as kData, for a caller that takes a message off the link itself (Session::ReceiveDirect).
  enum class Awaited : uint8_t { kAll, kData, kMessage, kSolicited };
  [[nodiscard]] static bool AwaitsData(Awaited awaited) {
    return awaited == Awaited::kData || awaited == Awaited::kMessage;
  }
  int WaitForChange(Lock& lock, int fd, Time deadline, Signals signals, Awaited awaited = Awaited::kAll,
                    const HandlerWatch& handlers = {});
  // Sleeps with `lock` dropped until `link` is ready or a thread wakes the waiters. Returns 0 or an errno.
  // `handlers`: a handler that has run since, and would have ended the sleep, ends it at once.
  int SleepAsWaiter(Lock& lock, pollfd* link, Time deadline, Signals signals,
                    const HandlerWatch& handlers = {}, Awaited awaited = Awaited::kAll);
  // stream_socket_look.cc
  // Looks at the beginning of a call for what has come, without a system call where the RNIC can do that.
  // Returns true if something came. `takes`: the caller takes the data, and publishes that.
  bool LookAtLink(bool takes = false, Session::PollFor wanted = Session::PollFor::kNow);
  bool LookForEnd();
  // Returns true if the link is a local one.
  [[nodiscard]] bool OnLocalLink() const;
  // Returns true if threads sleep in Send or Receive on a local link: there they sleep in poll.
  [[nodiscard]] bool HasSleepers() const { return calls_inside_.count() != 0 && OnLocalLink(); }
  // MayHearByBell() returns true if a sleeper may ask for its bell. HearByBell() has the peer ring `bell`
  // when it writes next, or returns false if something has come already. LeaveBell() ends that, and returns
  // true if the caller has to read.
  [[nodiscard]] bool MayHearByBell() const;
  bool HearByBell(const verbs::BellName& bell, uint64_t cookie = 0);
  bool LeaveBell();
  // Has the helper watch the link while the thread sleeps for its bell alone: for the link's end, and for a
  // doorbell of a peer that cannot ring. Returns false if the helper does not. Ends with
  // quiet_.RelyOnNoMore().
  bool RelyOnHelper();
  // Returns true if a wait looks at the link before it sleeps: it is this process's, and no thread reads it.
  [[nodiscard]] bool LooksBeforeSleep() const;
  // What a reader finds: bytes to read, and bytes that the peer advertises.
  struct ReadSide {
    uint64_t bytes = 0;
    uint64_t advertised = 0;
    bool operator==(const ReadSide&) const = default;
  };
  [[nodiscard]] ReadSide read_side() const {
    return {.bytes = engine().readable_bytes(), .advertised = engine().advertised_bytes()};
  }
  // The state when a wait began.
  struct WaitMark {
    HandlerWatch handlers;
    uint64_t wakes;
    ReadSide read_side;
  };
  [[nodiscard]] WaitMark MarkWait(const HandlerWatch& handlers) const {
    return {.handlers = handlers, .wakes = board_.wakes(), .read_side = read_side()};
  }
  // Notes that the wait has slept, after a look.
  void NoteWait(Awaited awaited, const WaitMark& mark, Duration lasted);
  // After progress: returns true if something has come that this wait is for.
  [[nodiscard]] bool CameFor(Awaited awaited, const WaitMark& mark) const {
    return awaited == Awaited::kAll || board_.wakes() != mark.wakes || session_->link_ended() ||
           (AwaitsData(awaited) && read_side() != mark.read_side);
  }
  // Returns true if the link has a message that the caller will take off it.
  [[nodiscard]] bool ComesFor(Awaited awaited) const {
    return awaited == Awaited::kMessage && TakesDirect() && session_->ComesDirect();
  }
  // Looks for a bounded time, and drops `lock` in between. Goes on after what is no use to the caller
  // (credit, to a reader), then asks to be woken. Returns 0 if something has come or changed, EINTR if a
  // handler ran that ends a sleep, and nothing if it is time to sleep.
  std::optional<int> LookBeforeSleep(Lock& lock, Time deadline, Awaited awaited, const WaitMark& mark,
                                     Signals signals);
  bool TakeBeforeSleep(Awaited awaited);
  [[nodiscard]] Report::Names names() const {
    return {.fd = numbers_.any(), .local = names_.local, .peer = names_.peer, .sdp_peer = names_.sdp_peer};
  }

  // Mends what this thread's earlier call left behind when a signal handler jumped out of it. Comes first in
  // every call that may sleep, or that takes from the link.
  void MendJump(Lock& lock, int fd, const void* frame);

  class Call;  // call.h
  // What a part of Send or Receive leaves to do. kGoOn: the next part. kAgain: all from the beginning. kDone:
  // nothing, the call returns what it has moved. kOver: the call ends, see Call::Ended(). kFailed: with
  // errno, nothing was moved.
  enum class Step : uint8_t { kGoOn, kAgain, kDone, kOver, kFailed };
  // Returns true if nothing can be sent, ever again or before the error is reported.
  [[nodiscard]] bool CannotSend() const { return tcp_.pending_error != 0 || !engine().can_send(); }

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
  // In CLOSE_WAIT, when the peer has gone: takes the bytes as TCP does. The reset that answers them is the
  // next call's error.
  ssize_t SendToNobody(size_t bytes);

  // stream_socket_receive.cc
  struct Receiving;
  ssize_t ReceiveNothing(int fd, int flags, int* out_flags);
  Step TakeReadable(Receiving* run);
  Step ReceiveByLoan(Call& call, Receiving* run);
  Step LookForMore(Receiving* run);
  Step EndOfReceive(Call& call, Receiving* run);
  Step AwaitData(Call& call, Receiving* run);
  // Has RunLinger go on after a reader's sleep, if the socket was closed meanwhile.
  void LetGoOn();

  // stream_socket_urgent.cc
  ssize_t ReceiveOutOfBand(std::span<const MutableBytes> room, int flags, int* out_flags);
  void PassMark();
  [[nodiscard]] uint64_t ReadableAtOnce() const { return urgent_mark_.readable_at_once(engine()); }
  [[nodiscard]] bool FillsReceiveBuffer() const;
  // Returns FIONREAD's answer if all that counts is here or can stay in the link.
  std::optional<int> CountWhereItIs();  // stream_socket_ioctl.cc

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
  // Returns SO_RCVLOWAT, but no more than the peer can send. (The kernel bounds it by the receive buffer.)
  size_t LowWater() const;
  [[nodiscard]] size_t SendLimit() const;
  // Returns how many bytes a send may take now.
  [[nodiscard]] size_t SendRoom() const { return RoomWithin(SendLimit()); }
  // A link with less room than this, and less than the caller has to send, is full.
  static constexpr size_t kLeastRoom = 32 * 1024;
  // Returns how much of `wanted` a call may hand to the link at a time. Returns 0 if the link is full; room
  // is then an edge (Board::NoteRoom).
  size_t LinkRoom(size_t wanted);
  [[nodiscard]] uint64_t Queued() const;  // bytes that have not left
  [[nodiscard]] size_t RoomWithin(size_t limit) const;
  // Returns true if a send may leave so many bytes to the library and return, though the peer has taken none.
  [[nodiscard]] bool MayBuffer(size_t bytes) const;
  // Returns true if poll reports room to a writer.
  [[nodiscard]] bool Writable() const;
  // Returns true if a writer has found the link full, and it still is.
  [[nodiscard]] bool AwaitsLinkRoom() const;
  // After progress: notes whether there is room again for a writer that found none.
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

  // Keeps `data` for the next message, if time and room allow. Returns false if it is to be sent at once.
  bool Cork(std::span<const iovec> data, size_t total);

  // stream_socket_shared.cc
  friend class SocketMutex;
  void EnterShared();
  void LeaveShared();
  void PublishShared();
  [[nodiscard]] bool ThawShared();
  // Notes that the lock was taken only for a look. If nothing has changed when it is released, the other
  // processes keep the state that they have.
  void OnlyLooks();
  // Leaves the state to the other processes. Returns false if it is too large.
  bool FreezeShared();
  template <typename Archive>
  void VisitShared(Archive& ar);
  // Returns the socket's own part of that state.
  std::vector<std::byte> FreezeFront();
  // Takes the front; another process will leave the rest (Share::elsewhere). Returns false if the bytes are
  // no front.
  [[nodiscard]] bool ExpectShared(Bytes front);
  // Begins to share the process's own connection. Returns false without a place for it. Lock() comes next.
  [[nodiscard]] bool StartSharing();
  void LoseShared();
  [[nodiscard]] int LinkFd() const { return lingering_.fd() >= 0 ? lingering_.fd() : numbers_.any(); }
  // StopSharing: this process alone holds the connection, with all its state. DropShared: it no longer does.
  void StopSharing();
  void DropShared();
  // Returns true, with the shared lock, if other processes hold the connection and it needs nothing of this
  // one. The caller holds own() alone.
  bool OthersGoOn();
  void ForgetShared();
  // For _exit and signal handlers. Returns true if this process has to end the connection, and has its newest
  // state.
  bool FinishSharedAtOnce();
  [[nodiscard]] bool foreign() const { return share_.foreign(); }
  // Returns true if this process has something to finish before the other holders of the connection can go on
  // without it.
  [[nodiscard]] bool keeps_from_others() const {
    return session_->has_unsent() || (lending_.offered() && !session_->link_ended());
  }
  // Waits until foreign() no longer holds, as for a peer that takes nothing, or says nothing. Returns 0,
  // EAGAIN, EINTR, EBADF if the socket was closed, or EIO if it is foreign for ever. `deadline`: of the whole
  // call; if it has none yet, `timeout` (0: without end) from now.
  int AwaitConnection(Lock& lock, bool nonblocking, Duration timeout, Time* deadline);
  // Waits for a moment, and only once, in calls that cannot return EAGAIN.
  void AwaitOwner(Lock& lock);
  Lock LockWithOwner();

  // stream_socket_move.cc
  // After progress: follows the connection as it leaves its link, or has another one.
  void FollowMove();
  // Moves the connection on, also where no thread waits for it any more.
  void LeadMove();
  Background::Wait RunMove(Time look_again);

  // stream_socket_handover.cc
  bool GiveConnection(Giver giver, Guests& guests, Handover::Connection* out);
  [[nodiscard]] bool ComeToRest(Time deadline);
  SharedConnection::View LockToGive(bool brings, Time deadline);

  // stream_socket_zcopy.cc. SendLent and ReceiveLent return the bytes moved from or into the beginning of the
  // memory. If that is less than all without an error, the caller copies the rest. ReceiveLent returns
  // nothing if the memory could not be lent. `error`: as WaitForChange() returns it.
  size_t SendLent(Call& call, Bytes data, int* error);
  std::optional<size_t> ReceiveLent(Call& call, MutableBytes room, bool advertise, int* error);
  class WhileLent;
  // Waits until the peer has read the lent memory, the call is interrupted or late, or no reader comes.
  // Returns 0, EINTR or EAGAIN.
  int AwaitReader(Call& call, size_t size);
  int WaitForLoan(Lock& lock, int fd, const Loan& loan, Time deadline, Signals signals,
                  Time solicited_until = Time{});
  // Returns true if the connection waits for nothing but the memory that a sender has lent, and nothing waits
  // to be sent.
  [[nodiscard]] bool AwaitsSolicitedAlone() const;
  void FinishLoan(Lock& lock, int fd, Loan* loan);
  void CollectLoans();
  // Asks back loans, and copies as well, since other processes are to have the connection, too.
  void WithdrawLoans();
  // Has the peer send what it offers to be read (SDP 9.5.2.1), if fewer than `enough` bytes are here. For a
  // reader that only looks, or does not wait.
  void WantBcopy(uint64_t enough);

  // stream_socket_connect.cc, stream_socket_connect_steps.cc
  int ConnectInline(Lock& lock, int fd);
  // Waits until no connect is under way. Returns 0, EINTR, or EAGAIN when `timeout` (0: without end) is over.
  int AwaitConnect(Lock& lock, Duration timeout);
  // A connect while another one is under way.
  int JoinConnect(Lock& lock, int fd);
  int FailAgain(int fd);
  int ShutDownConnect(int fd);
  int FailTaken();
  ConnectAttempt::Outcome LeadAttempt(int fd, Time now);
  // Leaves the connect to the helper thread. Returns false if there is none.
  bool LeaveConnect();
  int ReportConnected(int fd);
  // For AF_UNSPEC: the socket has no peer from here on.
  int Disconnect(int fd);
  int FinishConnect(int fd, ConnectAttempt::Outcome outcome);
  Background::Wait RunAttempt(Time now);
  // `outcome` is not kPending.
  void EndAttempt(int fd, ConnectAttempt::Outcome outcome);
  void StepAttempt();

  // stream_socket_listen.cc
  void EnterListening(int fd);
  void StopListening(int fd);
  // Returns true if another process has shut the listener down. Then this process stops listening, too.
  bool WasShutDown();
  static void FinishStart(Session& session, int fd);

  // stream_socket_in_call.cc
  // Keeps the connection for threads that sleep in calls, when the last descriptor is about to be closed.
  // Returns false if it does not.
  bool KeepForCalls(int fd);
  // Closes it when the last of these calls is about to return.
  void EndForCalls(Lock& lock);
  // Returns `fd` if it is still the socket's, else another descriptor of its link.
  [[nodiscard]] int NumberNow(int fd) const;

  // stream_socket_close.cc
  // One of several descriptors is gone.
  void GoOnWithout(int fd);
  int CloseLast(Lock& lock, int fd);
  void EndStream();
  // Returns true if the kernel has taken and sent all bytes, as far as this process may ask (Confined). Bytes
  // that it keeps for a peer without room are lost if the link is closed and the peer sends anything, such as
  // credit.
  [[nodiscard]] bool AllSent(int link);
  // Waits for that. Returns 0, EAGAIN at the deadline or, with Signals::kInterrupt, EINTR. Drops the lock
  // while it sleeps.
  int AwaitSent(Lock& lock, int fd, Time deadline, Signals signals);
  [[nodiscard]] bool MayGoAtOnce(int fd);
  [[nodiscard]] bool KinHasAll(int fd) const;
  int DescriptorToLinger(Lock& lock, int fd);
  void DropSession();

  // stream_socket_background.cc
  void LeaveToBackground();
  Background::Wait RunInBackground(Time now);
  Background::Wait TrimmedWait(Time now);
  // Returns a wait for the link at `fd`, if any event of it is of interest.
  [[nodiscard]] Background::Wait LinkWait(int fd, Time deadline) const;
  Background::Wait RunLinger(Time now);
  // Steps a connect that was under way when the socket was closed. Returns false while the connect goes on.
  // Afterwards there is a session, or the connect has come to nothing.
  bool StepClosedConnect(Time now);

  // stream_socket_quiet.cc
  void LookIfUnread(Time since);
  void TakeUnread();
  // Returns true if the helper is to read what the program does not.
  [[nodiscard]] bool HasQuietLink() const;

  // stream_socket_end.cc
  void StepToSent();

  SocketMutex mutex_{this};
  std::atomic<State> state_{State::kNew};
  const SocketFamily family_;
  Numbers numbers_;
  SocketOptions options_;
  ConnectionNames names_;
  TcpSide tcp_;
  Share share_;

  Listening listening_;
  Connecting connecting_;
  std::unique_ptr<Session> session_;
  UrgentMark urgent_mark_;
  Lending lending_;
  Corked corked_;
  Board board_;
  Sleeps sleeps_;
  CallsInside calls_inside_;
  ConnectionUse use_;
  Report report_;

  Task task_{this};
  QuietLink quiet_{this};
  Lingering lingering_;  // since the program has closed its descriptors
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_
