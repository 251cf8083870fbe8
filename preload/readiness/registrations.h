// The SDP sockets that are registered with one epoll set. For each it holds what the application asked for,
// whether the socket may have something to report, and what is in the set's inner epoll for it. The caller
// holds the set's lock in every method except HasShared() and HasDevices(). This part calls no sockets,
// except in LookAtWarm(), where it waits for no lock. EpollSet does, without the lock.
#ifndef SDP_PRELOAD_READINESS_REGISTRATIONS_H_
#define SDP_PRELOAD_READINESS_REGISTRATIONS_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "core/base/types.h"
#include "preload/readiness/device_spin.h"
#include "preload/socket/watch.h"

namespace sdp::preload {

class Registrations {
 public:
  // What the application asked for, and which part of it a wait has reported.
  struct Asked {
    static constexpr uint64_t kUnseen = ~uint64_t{0};  // no edge count reaches this
    uint32_t events = 0;                               // as the application gave them
    epoll_data_t data{};
    bool armed = true;  // EPOLLONESHOT: false once reported
    uint64_t seen_read_edge = kUnseen;
    uint64_t seen_write_edge = kUnseen;

    [[nodiscard]] bool for_room() const { return (events & (EPOLLOUT | EPOLLWRNORM)) != 0; }
    // Returns the events that a wait would report now, or 0.
    [[nodiscard]] uint32_t Holding(const StreamSocket::Watch::Readiness& readiness) const;
    // These edges are not news any more.
    void Saw(const StreamSocket::Watch::Readiness& readiness) {
      seen_read_edge = readiness.read_edge;
      seen_write_edge = readiness.write_edge;
    }
  };

  // One registration. Its key is the descriptor number it was made with. The key is below -1 if that number
  // is closed and a duplicate keeps the registration alive; the kernel's registration, too, lives as long as
  // the open file description.
  struct Entry {
    SocketRef socket;  // empty: not registered by the application
    Asked asked;
    bool candidate = false;  // in candidates_
    bool told = false;       // reported, new or changed, and no candidate: LookAtWarm() asks it if need be
    uint32_t version = 0;    // grows when the application changes the registration, and with each report
    bool shared = false;     // whether several processes held the connection at the last look
    // The poll events watched in the inner epoll; 0: none. After the application's EPOLL_CTL_DEL they stay
    // until the link has something to say. So a program that removes and adds a socket for each message makes
    // no system call for it.
    short registered = 0;
    int link_fd = -1;  // the descriptor in the inner epoll
    int device = -1;   // its place in devices_ if the link is a kernel RNIC's, else -1
    // A hidden duplicate of link_fd, in the inner epoll in its place. Needed where an RNIC's link is there
    // already for another registration.
    int twin = -1;
    int link = -1;  // for a key below -1: a hidden duplicate, by which the inner epoll knows the link
    std::shared_ptr<const verbs::Peek> peek;  // of a local link
    bool warm = false;                        // `peek` is in warm_
    bool at_kernel = false;                   // counted in kernel_links_
    void SetPeek(std::shared_ptr<const verbs::Peek> other) {
      peek = std::move(other);
      warm = false;
    }
  };

  // Keys of registrations without an application's number go down from here.
  static constexpr int kFirstOrphan = -2;
  // What a wait works with. Usual sizes fit on the stack, because a signal handler may wait while its thread
  // is inside malloc.
  struct Job {
    int key;
    SocketRef socket;
    uint32_t version;  // of the registration
  };
  using Work = absl::InlinedVector<Job, 64>;
  using Sockets = std::vector<std::pair<int, SocketRef>>;

  // `inner` is the set's inner epoll.
  explicit Registrations(const std::atomic<int>& inner) : inner_(inner) {}

  // Returns the registration, or null unless the application has it registered.
  Entry* Find(int key);
  [[nodiscard]] bool HasData(uint64_t data) const;
  // Returns the number by which the kernel knows the registration.
  static int NumberOf(int key, const Entry& entry) { return key >= 0 ? key : entry.link; }

  // Registers `socket` for the application. Returns false if the key is registered already. `alone`: as with
  // LookAtWarm().
  bool Add(int key, Socket* socket, const Asked& asked, bool alone);
  // Registers a socket whose number is closed, and returns the new key. `link` is a hidden duplicate; the
  // registration owns it.
  int AddOrphan(SocketRef socket, const Asked& asked, int link);
  // The application changes what it asks for of an existing registration.
  void Change(int key, Entry& entry, const epoll_event& event, bool alone);
  // The number is closed. Returns the registered socket, or nothing; *asked receives what was asked for.
  SocketRef TakeOut(int number, Asked* asked);
  // Ends the registration and returns its socket. *link receives its hidden duplicate, which the caller
  // closes, or -1.
  SocketRef Drop(int key, int* link);
  // Removes and returns all sockets, and forgets what is in the inner epoll.
  Sockets Clear();
  [[nodiscard]] Sockets Orphans() const;
  // Call in the child of a fork, where the inner epoll is the parent's. The next wait asks all sockets: some
  // connections the child cannot use, and it is to hear of them.
  void Disown();

  // --- the inner epoll
  // From here on the inner epoll watches the socket's link for these events. Keeps errno.
  void Watch(int key, Entry& entry, int link_fd, short events, std::shared_ptr<const verbs::Peek> peek);
  void Unwatch(Entry& entry);
  // A link has something to say whose registration the application has deleted. Stops watching it.
  void UnwatchDeleted(int key);
  [[nodiscard]] bool HasDevices() const { return device_count_.load(std::memory_order_relaxed) != 0; }
  // Returns whether the inner epoll watches links of which only the kernel tells: TCP links.
  [[nodiscard]] bool HasKernelLinks() const { return kernel_links_.load(std::memory_order_relaxed) != 0; }
  // Adds the armed registrations over kernel RNICs, unless there are too many to look at.
  void AddDevices(DeviceSpin* out);

  // --- local links
  // A link that has had something to report lately is warm: a wait looks at it in memory, and its peer rings
  // no doorbell. There are 256 at most: each costs each wait a look. Before a wait sleeps, it takes all warm
  // ones and has their sockets take the doorbells.
  [[nodiscard]] size_t warm() const { return warm_.size(); }
  void Warm(int key, Entry& entry);
  // The kernel is to hear of each doorbell from here on: no link gets warm. Appends the sockets that have
  // local links, whose doorbells are to be taken now.
  void StayCold(Work* out);
  // Reports what a registration has at once if the link has room to write, or no more than usual Data. Calls
  // `report(key, events, data)`, which returns whether there was room for the report. Makes the others that
  // may have something candidates. One that has had nothing for 20 ms is not warm any more, and appended to
  // `cold`; its socket takes its doorbell, too. `now` may be some milliseconds old. `alone`: no thread sleeps
  // for the set. A sleeping thread hears of candidates alone, so nothing is reported at once.
  using Report = absl::FunctionRef<bool(int key, uint32_t events, epoll_data_t data)>;
  void LookAtWarm(Time now, bool alone, Work* cold, Report report);
  void TakeWarm(Work* out);

  // --- what may have something to report
  void MakeCandidate(int key, Entry& entry);
  // Returns whether a thread that is about to sleep might miss something. A registration that another thread
  // has reported counts, too.
  [[nodiscard]] bool HasCandidates() const;
  void TakeCandidates(Work* out, bool keep);
  // Puts back the entries of `work` from `first` on, ahead of all other candidates.
  void PutBack(const Work& work, size_t first);
  // Reports what the entry has. The next wait looks at a level-triggered entry again.
  // Returns false if there is nothing, or `job` is out of date: another thread has reported the entry, or
  // changed it. Then it stays a candidate, as the answer may be older than that. `alone`: as above.
  bool ReportOne(const Job& job, const StreamSocket::Watch::Readiness& readiness, bool alone,
                 epoll_event* out);

  // --- connections that several processes hold
  // No descriptor tells of bytes that another process took from a link and left unread. So such connections
  // become candidates at intervals. Returns when the next look is due, or kNever if there are none.
  Time LookAtShared(Time now);
  void NoteShared(int key, bool shared);
  [[nodiscard]] bool HasShared() const { return shared_count_.load(std::memory_order_relaxed) != 0; }

 private:
  Entry& At(int key);
  static Job JobOf(int key, const Entry& entry);
  // The next wait asks the entry: in LookAtWarm() if it may.
  void AskNext(int key, Entry& entry, bool alone);
  // Notes that the events which hold in `readiness` are reported.
  void NoteReported(int key, Entry& entry, const StreamSocket::Watch::Readiness& readiness, bool alone);
  void NoteDevice(int key, Entry& entry, int link_fd);
  // What the inner epoll watches for the entry may have changed.
  void CountKernelLink(Entry& entry);
  void ForgetDevice(Entry& entry);
  // Calls `f(key, entry)` for every entry there ever was.
  template <typename F>
  void ForEach(F f) const;

  const std::atomic<int>& inner_;
  std::vector<std::unique_ptr<Entry>> entries_;  // by descriptor number
  std::vector<std::unique_ptr<Entry>> orphans_;  // keys -2, -3, ...
  std::vector<int> candidates_;                  // keys that may have something to report
  bool stays_cold_ = false;
  // A warm local link, at hand for a look that reads nothing but this and the ring.
  struct WarmLink {
    std::shared_ptr<const verbs::Peek> peek;  // entry->peek, unless that has ended
    Time heard{};                             // when it had something last; zero until the first look
    int key;
    Entry* entry;
    [[nodiscard]] bool IsWatched() const { return entry->socket && entry->peek == peek; }
  };
  // Takes a link from the warm ones, and its socket to `out` if it is still watched.
  void Cool(const WarmLink& link, Work* out);
  bool ReportAtOnce(const WarmLink& link, Report report);
  // The link no longer tells whether the registration has something.
  void AskAgain(int key, Entry& entry) {
    if (std::exchange(entry.told, false)) MakeCandidate(key, entry);
  }
  std::vector<WarmLink> warm_;
  // The last wait had no room for all. In the next one each is a candidate, and has its turn. Else the first
  // of the warm links would take the room again.
  bool no_room_ = false;
  std::vector<int> devices_;  // keys of entries in the inner epoll that are over a kernel RNIC
  std::atomic<size_t> device_count_{0};
  std::atomic<int> kernel_links_{0};
  std::atomic<int> shared_count_{0};
  Time next_look_{};  // when to look at shared connections again
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_REGISTRATIONS_H_
