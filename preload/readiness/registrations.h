// The SDP sockets that are registered with one epoll set: what the application has asked for, which of them
// may have something to report, and what of them stands in the set's inner epoll. The set's lock is held in
// every method but HasShared() and HasDevices(); sockets are called by EpollSet, without the lock.
#ifndef SDP_PRELOAD_READINESS_REGISTRATIONS_H_
#define SDP_PRELOAD_READINESS_REGISTRATIONS_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/base/types.h"
#include "preload/readiness/device_spin.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class Registrations {
 public:
  // What the application has asked for, and what of it a wait has reported.
  struct Asked {
    static constexpr uint64_t kUnseen = ~uint64_t{0};  // no edge count gets there
    uint32_t events = 0;                               // as the application gave them
    epoll_data_t data{};
    bool armed = true;  // EPOLLONESHOT: false once reported
    uint64_t seen_read_edge = kUnseen;
    uint64_t seen_write_edge = kUnseen;

    // Returns what a wait would report now; 0: nothing.
    [[nodiscard]] uint32_t Holding(const StreamSocket::Readiness& readiness) const;
  };

  // One registration. Its key: the descriptor number it was made with; a number below -1 if that is closed
  // and a duplicate keeps the registration alive, as the kernel's lives as long as the open file description.
  struct Entry {
    SocketRef socket;  // empty: not registered by the application
    Asked asked;
    bool candidate = false;  // in candidates_
    bool shared = false;     // several processes hold the connection, or did when it was last looked at
    // In the inner epoll, as poll events; 0: not. Outlives the application's EPOLL_CTL_DEL until the link has
    // something to say: programs that take out and put back a socket for each message then cost no system
    // call.
    short registered = 0;
    int link_fd = -1;  // what is in the inner epoll for it
    int device = -1;   // its place in devices_, if that is a kernel RNIC's
    // A hidden duplicate of link_fd that stands there in its place: an RNIC's link is there already for
    // another registration.
    int twin = -1;
    int link = -1;  // without a number of the application's: a hidden duplicate, by which the inner epoll
                    // knows the link
  };

  // Keys of registrations without a number of the application's go down from here.
  static constexpr int kFirstOrphan = -2;
  // What a wait works with lies on its stack, up to the usual sizes: a signal handler may wait, too, while
  // its thread is inside malloc.
  using Work = absl::InlinedVector<std::pair<int, SocketRef>, 64>;
  using Sockets = std::vector<std::pair<int, SocketRef>>;

  // `inner`: the set's inner epoll.
  explicit Registrations(const std::atomic<int>& inner) : inner_(inner) {}

  // Returns the registration; null unless the application has it.
  Entry* Find(int key);
  [[nodiscard]] bool HasData(uint64_t data) const;
  // The number that the kernel knows the registration by.
  static int NumberOf(int key, const Entry& entry) { return key >= 0 ? key : entry.link; }

  // The application registers `socket`. False: it has done so before.
  bool Add(int key, Socket* socket, const Asked& asked);
  // Likewise under a key of its own, which is returned, for a socket whose number is closed. `link`: a hidden
  // duplicate, which the registration owns.
  int AddOrphan(SocketRef socket, const Asked& asked, int link);
  // The application asks for something else of a registration that is there.
  void Change(int key, Entry& entry, const epoll_event& event);
  // The number is closed. Returns what was registered; empty if nothing was. *asked: what was asked for.
  SocketRef TakeOut(int number, Asked* asked);
  // Ends the registration. *link: its hidden duplicate, which the caller closes, or -1.
  SocketRef Drop(int key, int* link);
  // Takes all out, and forgets what stands in the inner epoll.
  Sockets Clear();
  [[nodiscard]] Sockets Orphans() const;
  // In the child of a fork, where the inner epoll is the parent's.
  void Disown();

  // --- the inner epoll
  // The socket's link is to be watched for these events from here on. Keeps errno.
  void Watch(int key, Entry& entry, int link_fd, short events);
  void Unwatch(Entry& entry);
  // The link of a registration has something to say that the application has deleted: it is watched no more.
  void UnwatchDeleted(int key);
  [[nodiscard]] bool HasDevices() const { return device_count_.load(std::memory_order_relaxed) != 0; }
  // Adds those over a kernel RNIC that are armed, unless they are too many to be looked at.
  void AddDevices(DeviceSpin* out);

  // --- what may have something to report
  void MakeCandidate(int key, Entry& entry);
  [[nodiscard]] bool HasCandidates() const { return !candidates_.empty(); }
  void TakeCandidates(Work* out, bool keep);
  // Puts back those of `work` from `first` on, ahead of all others.
  void PutBack(const Work& work, size_t first);
  // Reports what the entry has; a level-triggered one stays a candidate. False: there is nothing.
  bool ReportOne(int key, const StreamSocket::Readiness& readiness, epoll_event* out);

  // --- connections that several processes hold
  // What another process took from a link and left unread no descriptor tells of: such connections become
  // candidates every so often. Returns when that is due again; kNever: there are none.
  Time LookAtShared(Time now);
  void NoteShared(int key, bool shared);
  [[nodiscard]] bool HasShared() const { return shared_count_.load(std::memory_order_relaxed) != 0; }

 private:
  Entry& At(int key);
  void NoteDevice(int key, Entry& entry, int link_fd);
  void ForgetDevice(Entry& entry);
  // `f(key, entry)` for each there ever was.
  template <typename F>
  void ForEach(F f) const;

  const std::atomic<int>& inner_;
  std::vector<std::unique_ptr<Entry>> entries_;  // by descriptor number
  std::vector<std::unique_ptr<Entry>> orphans_;  // keys -2, -3, ...
  std::vector<int> candidates_;                  // keys that may have something to report
  std::vector<int> devices_;  // keys of those in the inner epoll that are over a kernel RNIC
  std::atomic<size_t> device_count_{0};
  std::atomic<int> shared_count_{0};
  Time next_look_{};  // at those that are shared
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_REGISTRATIONS_H_
