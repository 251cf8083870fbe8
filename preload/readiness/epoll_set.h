// What the library adds to one of the application's epoll descriptors.
//
// The application's epoll descriptor stays a kernel epoll: whatever is not an SDP socket is registered there
// as ever, so it works shared, nested and inherited. SDP sockets are registered in an inner epoll descriptor,
// which is itself registered in the application's with a cookie no program can use. When the cookie comes up,
// the inner descriptor says which links have something; the sockets take it, and what the application asked
// to hear of is reported.
//
//   application's epoll ─┬─ its other descriptors
//                        ├─ conventional listeners and what tells of their SDP connections (ListenerTag)
//                        └─ inner epoll (cookie) ─┬─ links of SDP sockets
//                                                 ├─ SDP listeners: a connection, which may never say Hello
//                                                 └─ kick: an eventfd: readiness from another thread's call
//
// Locks: `mutex_` is the last in every order; sockets are called without it.
#ifndef SDP_PRELOAD_READINESS_EPOLL_SET_H_
#define SDP_PRELOAD_READINESS_EPOLL_SET_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "preload/critical.h"
#include "preload/readiness/look.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class EpollSet final : public ReadinessObserver {
 public:
  // Makes the set serve the epoll descriptor `epfd`; false with errno if it is none, or no descriptor is
  // left.
  bool Open(int epfd);
  // The epoll descriptor is closed for good: detaches from every socket, and may be opened again for another.
  void Close();

  // What an event of the inner descriptor carries: an address of this library's, which no data of the
  // application's is. Sets live for ever.
  [[nodiscard]] uint64_t Cookie() const { return reinterpret_cast<uint64_t>(this); }
  // Gives events of listeners in [first, end) the application's data, one event a listener, and takes out
  // those that are none; the new end.
  int MergeListeners(epoll_event* events, int first, int end);
  // Whether `epfd` is a duplicate, made behind our back, of the descriptor it serves.
  bool Serves(int epfd);
  // Of its descriptor: see plain_sleep.h.
  [[nodiscard]] uint32_t group() const { return group_; }
  // The number it was known by is closed; it is now to be known by `epfd`, a duplicate.
  void SetNumber(int epfd);

  // A managed socket is registered with this data.
  [[nodiscard]] bool HasData(uint64_t data);
  // EPOLL_CTL_* of a managed socket.
  int Control(int epfd, int operation, int fd, epoll_event* event);
  // The number `fd` is closed by the application.
  void Forget(int fd);
  int Wait(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask);
  // It is, or may be, in another epoll set: from now on it is readable to the kernel whenever there may be
  // something of ours to report.
  void SetNested();
  // While a thread sleeps in poll for the epoll descriptor itself.
  void AddSleeper() { sleepers_.fetch_add(1); }
  void RemoveSleeper() { sleepers_.fetch_sub(1); }
  // For poll on the epoll descriptor itself: whether a wait would report something of ours at once.
  bool ProgressAndCheck();
  // A connection in it is held by several processes: who sleeps in poll for the epoll descriptor looks again
  // soon.
  [[nodiscard]] bool HasShared() const { return shared_entries_.load(std::memory_order_relaxed) != 0; }

  // ReadinessObserver, with the socket's lock held.
  void OnChange(int fd) override;
  void OnWatch(int fd, int link_fd, short events) override;
  void OnPlain(int fd) override;

  // Threads that are in a call on the set; see EpollSetRef.
  std::atomic<int> users{0};

  void LockForFork() { mutex_.lock(); }
  // In the child, locked: the inner epoll is the parent's too, and its registrations are the parent's
  // business.
  void DisownAfterFork();
  void UnlockAfterFork() { mutex_.unlock(); }

 private:
  // What is known of one registration. Its key: the descriptor number it was made with; a number below -1 if
  // that is closed and a duplicate keeps the registration alive, as the kernel's lives as long as the open
  // file description.
  struct Entry {
    SocketRef socket;     // empty: not registered by the application
    uint32_t events = 0;  // as the application gave them
    epoll_data_t data{};
    bool armed = true;       // EPOLLONESHOT: false once reported
    bool candidate = false;  // in candidates_
    bool shared = false;     // several processes hold the connection, or did when it was last looked at
    // In the inner epoll, as poll events; 0: not. Outlives the application's EPOLL_CTL_DEL until the link has
    // something to say: programs that take out and put back a socket for each message then cost no system
    // call.
    short registered = 0;
    int link_fd = -1;  // what is in the inner epoll for it
    int device = -1;   // its place in devices_, if that is a kernel RNIC's
    int twin = -1;  // the same, if it is a hidden duplicate: an RNIC's link stands there already for another
                    // registration
    uint64_t seen_read_edge = 0;
    uint64_t seen_write_edge = 0;
    int link = -1;  // without a number of the application's: a hidden duplicate, by which the inner epoll
                    // knows the link
  };
  // What the descriptors of a listener are registered with in the application's epoll, in place of its data:
  // by its address an event tells whose it is, whatever data other registrations have. One a number; it lives
  // as long as the set, as the kernel's registration does as long as anybody, in another process perhaps, has
  // the listener.
  struct ListenerTag {
    int number;           // -1: closed, and a duplicate of it keeps the registration alive
    epoll_data_t data;    // the application's
    uint32_t events = 0;  // likewise
  };
  // A listener that is registered, and its SDP side in the inner epoll.
  struct Request {
    SocketRef socket;
    ListenerTag* tag;
    int fd;      // -1: closed, and a duplicate keeps it alive
    int sdp_fd;  // -1: none in this process
    epoll_event wanted;
    bool armed;
    bool refused;  // cannot be taken on: accept has to say why
  };

  // What events of the inner epoll are marked with, beside descriptor numbers.
  static constexpr uint64_t kKickTag = ~uint64_t{0};
  static constexpr uint64_t kRequestTag = uint64_t{1} << 62;  // and the number of an SDP listener
  // Keys of registrations without a number of the application's go down from here.
  static constexpr int kFirstOrphan = -2;

  bool TryToOpen(int epfd);
  // `number`: what the listener is registered by; `fd`: the application's number for it, or -1.
  int ControlListener(int epfd, int operation, int number, int fd, StreamSocket* socket, epoll_event* event,
                      const StreamSocket::Readiness& readiness);
  int ControlTagged(int epfd, int operation, int number, const epoll_event& event,
                    const StreamSocket::Readiness& readiness);
  int Add(int fd, StreamSocket* socket, epoll_event* event);
  int Modify(int fd, epoll_event* event);
  int Delete(int fd);
  void WatchRequests(int operation, int number, int fd, StreamSocket* socket, const epoll_event* event,
                     int sdp_fd);
  void ForgetRequests(int fd);
  void TakeOnRequests(int sdp_fd);
  void DropRequests(int sdp_fd);
  int ReportRequests(epoll_event* events, int max_events);
  // The registration `key` is over, whatever keeps its socket open.
  void Drop(int key);
  void KeepForDuplicate(int duplicate, SocketRef socket, const Entry& registration);
  // With mutex_ held:
  static int NumberOf(int key, const Entry& entry) { return key >= 0 ? key : entry.link; }
  Entry* Find(int fd);  // null unless the application has it registered
  Entry& At(int fd);
  void SetRequest(Entry& entry, const epoll_event& event);
  void Unregister(Entry& entry);
  void MakeCandidate(int fd, Entry& entry);
  void NoteDevice(int fd, Entry& entry, int link_fd);
  void ForgetDevice(Entry& entry);
  void Kick();
  void KickOthers();
  void TakeKick();
  void KeepKicked();
  bool HasCandidates();
  bool ProgressLinks(bool take_kick);
  bool AnyHolds();  // of the candidates, which they stay
  // epoll_set_look.cc: before a wait sleeps. What it looks at stays alive in a SleepingDevices.
  struct SleepingDevices;
  void FindDevices(SleepingDevices* out);
  // What a wait works with lies on its stack, up to the usual sizes: a signal handler may wait, too, while
  // its thread is inside malloc.
  using Work = absl::InlinedVector<std::pair<int, SocketRef>, 64>;
  void TakeCandidates(Work* out, bool keep);
  // What one wait has reported of our sockets: registration -> place in the caller's array. No registration
  // comes twice in one answer; a program that closes on the first event would meet its own freed data in the
  // second.
  using Reported = absl::InlinedVector<std::pair<int, int>, 64>;
  int Report(epoll_event* events, int count, int max_events, Reported* reported);
  // What another process took from a link and left unread no descriptor tells of: connections that several
  // hold become candidates every so often. When that is due again; kNever: there are none.
  Time LookAtShared();
  void NoteShared(int fd, bool shared);
  // What a wait would report of the entry now; 0: nothing.
  static uint32_t Holding(const Entry& entry, const StreamSocket::Readiness& readiness);
  void OnListen(int fd, const StreamSocket::Readiness& readiness);
  bool ReportOne(int fd, const StreamSocket::Readiness& readiness, epoll_event* out);
  // With mutex_ held:
  ListenerTag& TagOf(int number);
  ListenerTag* TagIn(const epoll_event& event) const;
  // An event of the kernel's for a listener's registration is worth a report; with EPOLLONESHOT the first is.
  bool TakeShot(const ListenerTag* tag);
  // It is about to be armed again.
  void ArmRequest(int fd);

  int epfd_ = -1;  // a number it is known by; for registrations made outside a call on it
  uint32_t group_ = 0;
  std::atomic<int> inner_{-1};
  std::atomic<int> kick_{-1};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> nested_{false};
  std::atomic<bool> kernel_turn_{false};
  std::atomic<int> shared_entries_{0};
  Mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;  // by descriptor number
  std::vector<std::unique_ptr<Entry>> orphans_;  // keys -2, -3, ...
  std::vector<int> candidates_;                  // keys that may have something to report
  std::vector<int> devices_;  // keys of those in the inner epoll that are over a kernel RNIC
  std::atomic<size_t> device_count_{0};
  LookTurn look_turn_;  // whose it is to look at them
  Time next_look_{};    // at those that are shared
  std::vector<Request> requests_;
  std::vector<std::unique_ptr<ListenerTag>> tags_;  // by address
  std::atomic<bool> has_tags_{false};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_EPOLL_SET_H_
