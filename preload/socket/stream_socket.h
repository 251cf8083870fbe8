// The application's stream socket in each of its states: new, listening, connecting, an SDP connection,
// closed and lingering. Once it is plain TCP, the library no longer has it.
//
// One lock per socket guards everything in it, with the session's engine and queue pair. A thread holds it
// over system calls that do not block, and drops it over those that do. Lock order: StreamSocket, then an
// observer's (EpollSet), a Listener's, Background's; never two StreamSockets.
#ifndef SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_
#define SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "preload/socket/address.h"
#include "preload/socket/background.h"
#include "preload/socket/board.h"
#include "preload/socket/calls_inside.h"
#include "preload/socket/corked.h"
#include "preload/socket/held_session.h"
#include "preload/socket/lending.h"
#include "preload/socket/lingering.h"
#include "preload/socket/link_names.h"
#include "preload/socket/numbers.h"
#include "preload/socket/quiet_links.h"
#include "preload/socket/report.h"
#include "preload/socket/session.h"
#include "preload/socket/session_transfer.h"
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

  // --- What other rooms do with a socket. Each class has a header; an object of it is made for one call.
  class Watch;      // what poll and epoll ask
  class Departure;  // how a connection ends
  class Connector;
  class Holders;  // among processes
  class Forking;
  class Giving;  // to another program

  // Returns true if all that there may be to report is in the link.
  [[nodiscard]] bool NothingTaken() const { return mutex_.express_open(); }
  [[nodiscard]] bool listening() const { return state_.load(std::memory_order_relaxed) == State::kListening; }

  // Returns one of the socket's descriptors; -1 if the application has closed them all.
  int AnyDescriptor() override;
  // Returns a descriptor of the socket that is not `fd`; -1 if there is none.
  int OtherDescriptor(int fd);

  // --- For inheritance
  [[nodiscard]] bool connected() const { return state_.load(std::memory_order_relaxed) == State::kSdp; }

  // --- For process_life
  // Returns true if this is an SDP connection that other processes can have, too. The caller holds the lock.
  [[nodiscard]] bool shareable() const {
    return state_ == State::kSdp && session_ != nullptr && !share_.given_up &&
           session_.last_known()->transfer().portable();
  }
  // Finds out by system calls, before a seccomp filter comes, what can be used behind it.
  void PrepareConfinement(int fd);
  // After all sockets have prepared: a listener waits until `give_up` for what other processes have taken on.
  void FinishConfinement(Time give_up);
  // Other threads' sends fail with EPIPE from here on, without a signal.
  static void NoteProcessEnds();

 private:
  // The socket as the helper thread knows it.
  class Tended final : public Background::Task, public QuietLinks::Link {
   public:
    explicit Tended(StreamSocket* socket) : socket_(socket) {}
    Socket* owner() override { return socket_; }
    Background::Wait Run(Time now) override;
    void LookIfUnread(Time since) override;
    void TakeUnread() override;

   private:
    StreamSocket* const socket_;
  };
  using Lock = std::unique_lock<SocketMutex>;

  // More such classes, for the socket's own use.
  class Lender;
  class Limits;
  class Waiting;
  class Upkeep;  // by the helper
  class Looks;   // at the link
  class ExpressWay;
  class OptionCalls;
  class Server;
  class Urgent;

  ~StreamSocket() override;

  // The socket's life, and what follows from progress (stream_socket_progress.cc).
  void EnterSdp(std::unique_ptr<Session> session, const Address& local, const Address& peer,
                stats::Role role);
  void BecomePlain(int fd, stats::FallbackReason reason, const std::string& text);
  // `publish` false: the caller publishes the statistics before it returns.
  void AfterProgress(bool publish = true);
  // At the end of a call that has moved data, after AfterProgress(false).
  void PublishTraffic();
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
  // Return what this process knows of the connection: perhaps old, unless usable().
  [[nodiscard]] const engine::Engine& engine() const {
    return std::as_const(*session_.last_known()).engine();
  }
  [[nodiscard]] const verbs::QueuePair& queue_pair() const {
    return std::as_const(*session_.last_known()).queue_pair();
  }
  short WatchEvents() const;
  int LinkOf(int fd) const { return session_ != nullptr ? preload::LinkOf(*session_.last_known(), fd) : fd; }
  // Returns true if a receive may take messages off the link itself (Session::Direct::Receive).
  [[nodiscard]] bool TakesDirect() const {
    return queue_pair().direct() != nullptr && share_.with == nullptr && !board_.hears_doorbells() &&
           !options_.kept.tells_queue();
  }
  // Returns how many bytes in the link make the socket readable where they are. Returns nothing if only a
  // look at the link tells what is there.
  [[nodiscard]] std::optional<uint64_t> LeftInLink() const;
  [[nodiscard]] bool ComesDirect() const { return LeftInLink().value_or(0) != 0; }

  [[nodiscard]] bool HasUntold() const;
  // Returns true if another process also has the socket, which has no connection yet and may become TCP.
  // Neither process would know what the other makes of it.
  [[nodiscard]] bool IsCommon(int fd) const;
  // A shared connection's unread bytes go from process to process. At so many, no more is read ahead.
  static constexpr size_t kReadAheadOfShared = 64 << 10;

  // Sleeping.
  // What signal handlers do to a sleep. kRestart heeds SA_RESTART, as TCP does without a time-out.
  enum class Signals : uint8_t { kInterrupt, kRestart };
  // kSolicited: of the peer's messages only a solicited one has to end the sleep (SDP 14.2).
  // kData: only more to be read, or the end, is of use.
  // kMessage: as kData, for a caller that takes a message off the link itself (Session::Direct::Receive).
  enum class Awaited : uint8_t { kAll, kData, kMessage, kSolicited };
  [[nodiscard]] static bool AwaitsData(Awaited awaited) {
    return awaited == Awaited::kData || awaited == Awaited::kMessage;
  }
  // Returns true if the link is a local one.
  [[nodiscard]] bool OnLocalLink() const;
  // Returns true if threads sleep in Send or Receive, and hear of all that comes. A thread that jumped out of
  // its call is none.
  [[nodiscard]] bool HasSleepers() const {
    if (calls_inside_.count() == 0 || !calls_inside_.all_return()) return false;
    return OnLocalLink() || (share_.with == nullptr && queue_pair().pollable() == nullptr);
  }
  [[nodiscard]] Report::Names names() const {
    return {.fd = numbers_.any(), .local = names_.local, .peer = names_.peer, .sdp_peer = names_.sdp_peer};
  }

  class Call;  // call.h
  // What a part of Send or Receive leaves to do. kGoOn: the next part. kAgain: all from the beginning. kDone:
  // nothing, the call returns what it has moved. kOver: the call ends, see Call::Ended(). kFailed: with
  // errno, nothing was moved.
  enum class Step : uint8_t { kGoOn, kAgain, kDone, kOver, kFailed };
  // Returns true if nothing can be sent, ever again or before the error is reported.
  [[nodiscard]] bool CannotSend() const { return tcp_.pending_error != 0 || !engine().can_send(); }

  class Sending;
  class Receiving;
  ssize_t ReceiveNothing(int fd, int flags, int* out_flags);

  // Room to send (stream_socket_limits.cc).
  // A link with less room than this, and less than the caller has to send, is full.
  static constexpr size_t kLeastRoom = 32 * 1024;
  // Returns how much of `wanted` a call may hand to the link at a time. Returns 0 if the link is full; room
  // is then an edge (Board::NoteRoom).
  size_t LinkRoom(size_t wanted);
  // After progress: notes whether there is room again for a writer that found none.
  void NoteSendRoom();
  // An option may have changed the sizes of buffers.
  void AfterBufferSize();

  ssize_t SendZeroCopy(int fd, const iovec* iov, size_t count, int flags);

  [[nodiscard]] int LinkFd() const { return lingering_.fd() >= 0 ? lingering_.fd() : numbers_.any(); }
  [[nodiscard]] bool foreign() const { return share_.foreign(); }
  // Returns true if this is an SDP connection, and this process has its newest state.
  [[nodiscard]] bool usable() const { return state_ == State::kSdp && !foreign(); }

  // Returns `fd` if it is still the socket's, else another descriptor of its link.
  [[nodiscard]] int NumberNow(int fd) const;

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
  HeldSession session_{share_};
  UrgentMark urgent_mark_;
  Lending lending_;
  Corked corked_;
  Board board_;
  CallsInside calls_inside_;
  ConnectionUse use_;
  Report report_;

  Tended tended_{this};
  Lingering lingering_;  // since the program has closed its descriptors
};

// Every Socket of this library is a StreamSocket.
inline StreamSocket& Stream(const SocketRef& socket) { return static_cast<StreamSocket&>(*socket.get()); }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_
