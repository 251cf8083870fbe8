// What poll, select and epoll sets ask of a StreamSocket, and tell it. Made for one call; keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_WATCH_H_
#define SDP_PRELOAD_SOCKET_WATCH_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Watch {
 public:
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
  // What a looking thread waits for: poll events or, if it is edge-triggered, an edge that it has not seen.
  struct Wanted {
    short events = 0;
    bool edges = false;
    uint64_t read_edge = 0;
    uint64_t write_edge = 0;
  };
  enum class QueueLook : uint8_t { kNothing, kCame, kFound };
  // kUseless: something came, but not what the thread waits for.
  enum class LookResult : uint8_t { kFound, kInVain, kUseless, kCrowded };
  // What ended a sleep: an event of this socket, one of another socket that was looked at, or neither.
  enum class WokenBy : uint8_t { kThis, kAnother, kNeither };

  explicit Watch(StreamSocket& socket) : s_(socket) {}

  Readiness GetReadiness();
  // Returns the events and edges if usual Data and room to write are all there is to report. Returns nothing
  // if only GetReadiness() knows. Does not wait for the socket's lock: the caller may hold a lock that comes
  // later in the lock order.
  [[nodiscard]] std::optional<Readiness> ReadyExpress();
  // The program begins to wait: small writes that wait for each other leave.
  void PushWrites();
  // Handles a listener's SDP side that has become readable: see Listener::TakeOn.
  bool TakeOnConnections();
  // Takes what has come after the descriptor became ready. `polled`: as in TakeRung(); then data may stay in
  // the link.
  void Progress(bool polled = false);
  // Looks once at the completion queue before a thread sleeps (Readiness::device), mostly without a system
  // call. Returns kFound if what the thread waits for has come, kCame if something else has.
  QueueLook LookAtQueue(const Wanted& wanted);
  // Ends a thread's looks. Returns true if the thread must not sleep yet, because something has come. `bell`:
  // of the epoll set that is going to sleep; null if it has none.
  bool EndLook(LookResult result, const verbs::BellName* bell = nullptr, uint64_t cookie = 0);
  // The peer has rung an epoll set's bell for this link. `polled`: the set looks at the link until EndLook(),
  // and no other thread waits for the link.
  void TakeRung(bool polled);
  // Notes a sleep that has lasted so long. `lasted`: nothing for a thread that had not looked, because
  // another thread did.
  void NoteSlept(std::optional<Duration> lasted, WokenBy by);
  // `bell`: the waiter's bell, which the peer may ring as well; or null.
  void AddWaiter(Waiter* waiter, iwarp::Bell* bell);
  void RemoveWaiter(Waiter* waiter);
  // Returns kPlain, and adds nothing, if the kernel answers for the descriptor.
  State AddObserver(ReadinessObserver* observer, int fd);
  void RemoveObserver(ReadinessObserver* observer, int fd);

 private:
  // Returns the poll events that hold now.
  [[nodiscard]] short ReadyNow() const;
  // Fills in what a connection has that is this process's; `shared` is set already. May take from the link,
  // and opens the express way.
  void AskConnection(Readiness* readiness);
  std::optional<Readiness> ReadinessExpress();
  [[nodiscard]] std::optional<Readiness> LookExpress() const;
  bool ObserveExpress(ReadinessObserver* observer, int fd);
  bool ForgetExpress(ReadinessObserver* observer, int fd);
  void LeaveBellExpress(ExpressLock& lock);

  StreamSocket& s_;
};

using Watch = StreamSocket::Watch;  // outside StreamSocket

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_WATCH_H_
