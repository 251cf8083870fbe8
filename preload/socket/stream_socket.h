// The application's stream socket in each of its states: new, listening, connecting, an SDP connection,
// closed and lingering. Once it is plain TCP, the library no longer has it.
//
// This is a facade: the program's calls, over the parts (stream_parts.h). What the calls have in common
// stands in classes that are named here. Most have a header; an object of it is made for one call, and keeps
// nothing.
#ifndef SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_
#define SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "preload/socket/address.h"
#include "preload/socket/background.h"
#include "preload/socket/kept_options.h"
#include "preload/socket/quiet_links.h"
#include "preload/socket/session.h"
#include "preload/socket/stream_parts.h"

namespace sdp::preload {

class StreamSocket final : public StreamParts {
 public:
  explicit StreamSocket(int domain) : StreamParts(this, domain) {}
  // An accepted SDP connection.
  StreamSocket(int domain, int fd, std::unique_ptr<Session> session, const Address& local,
               const Address& peer, const KeptOptions& options, bool nonblocking);
  // A connection from another program. TakeUp() comes next.
  StreamSocket(int domain, const std::vector<int>& descriptors, std::unique_ptr<SharedConnection> shared);
  // A socket from another program that is not connected. TakeUpListening() comes next if it listened there.
  StreamSocket(int domain, const std::vector<int>& descriptors, const KeptOptions& options);

  // The calls (socket.h).
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
  int AnyDescriptor() override;
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

  // What other rooms do with a socket.
  class Watch;      // what poll and epoll ask
  class Departure;  // how a connection ends
  class Connector;
  class Holders;  // among processes
  class Forking;
  class Giving;     // to another program
  class Confining;  // by a seccomp filter

 private:
  // What the helper thread does for the socket, and how calls leave work to it. The helper moves what calls
  // have left behind, and looks at a connection that the program leaves alone. Calls and the helper lead a
  // move to another link.
  class Upkeep final : public Background::Task, public QuietLinks::Link {
   public:
    explicit Upkeep(StreamSocket& socket) : s_(socket) {}
    Socket* owner() override { return &s_; }
    Background::Wait Run(Time now) override;
    void LookIfUnread(Time since) override;
    void TakeUnread() override;

    // Has the helper go on with what is unsent, unheard or to be trimmed.
    void LeaveToBackground();
    // Returns a wait for the link at `fd`, if any event of it is of interest.
    [[nodiscard]] Background::Wait LinkWait(int fd, Time deadline) const;
    // After progress: follows the connection as it leaves its link, or has another one.
    void FollowMove();
    // Moves the connection on, also where no thread waits for it any more.
    void LeadMove();
    // Returns true if the peer's bytes are read though no call waits: for an owner's signals, or to be
    // refused.
    bool ListensForPeer();
    // Returns true if the helper looks at the link, and publishes what calls leave unpublished.
    [[nodiscard]] bool publishes() const {
      return looked_at() && Background::Runs() && !QuietLinks::stopped();
    }

   private:
    Background::Wait IdleWait();
    Background::Wait RunMove(Time look_again);
    Background::Wait TrimmedWait(Time now);
    // Returns true if the helper is to read what the program does not.
    [[nodiscard]] bool HasQuietLink() const;

    StreamSocket& s_;
  };
  using Lock = std::unique_lock<SocketMutex>;

  // For the socket's own use.
  class Call;
  class Sending;
  class Receiving;
  class Lender;
  class Limits;
  class Waiting;
  class Looks;  // at the link
  class ExpressWay;
  class OptionCalls;
  class Server;
  enum class Step : uint8_t;  // call.h
  // What signal handlers do to a sleep. kRestart heeds SA_RESTART, as TCP does without a time-out.
  enum class Signals : uint8_t { kInterrupt, kRestart };
  // kSolicited: of the peer's messages only a solicited one has to end the sleep (SDP 14.2).
  // kData: only more to be read, or the end, is of use.
  // kMessage: as kData, for a caller that takes a message off the link itself (Session::Direct::Receive).
  enum class Awaited : uint8_t { kAll, kData, kMessage, kSolicited };
  // A shared connection's unread bytes go from process to process. At so many, no more is read ahead.
  static constexpr size_t kReadAheadOfShared = 64 << 10;

  ~StreamSocket() override;

  // The socket's life, and what follows from progress (stream_socket_progress.cc).
  void EnterSdp(std::unique_ptr<Session> session, const Address& local, const Address& peer,
                stats::Role role);
  void BecomePlain(int fd, stats::FallbackReason reason, const std::string& text);
  // `publish` false: the caller publishes the statistics before it returns.
  void AfterProgress(bool publish = true);
  ssize_t SendZeroCopy(int fd, const iovec* iov, size_t count, int flags);

  Upkeep upkeep_{*this};
};

// Every Socket of this library is a StreamSocket.
inline StreamSocket& Stream(Socket& socket) { return static_cast<StreamSocket&>(socket); }
inline StreamSocket& Stream(const SocketRef& socket) { return Stream(*socket.get()); }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STREAM_SOCKET_H_
