// What only some RNICs can do, an interface for each ability.
//
// A QueuePair says which of them it has: QueuePair::sleepable() and its like return null where the RNIC
// cannot. The embedded RNIC's queue pairs are Sleepable, Portable, a FileSource and have MovableRegions; a
// kernel RNIC's are Pollable and a DeviceLink. The caller's lock and its duties are those of rnic.h.
#ifndef SDP_VERBS_ABILITIES_H_
#define SDP_VERBS_ABILITIES_H_

#include <sys/socket.h>

#include <memory>
#include <vector>

#include "core/base/archive.h"
#include "core/base/types.h"
#include "verbs/file_range.h"
#include "verbs/rnic_types.h"

namespace sdp::verbs {

class Connector;
class QueuePair;

// ----------------------------------------------------------------------------------------------------
// Sleeping in the link's own read

// Who owns the registered memory that received data may be placed in while a thread sleeps in
// ReadLinkBlocking.
enum class SleeperMemory : uint8_t {
  kOthers,  // another thread may move it or take it back: nothing is placed during the sleep
  kOwn,     // the sleeping thread, which keeps it until it has left ReadLinkBlocking
};

// The lock that the owner of a QueuePair holds around its calls. ReadLinkBlocking drops it during the sleep.
class CallerLock {
 public:
  virtual void lock() = 0;
  virtual void unlock() = 0;

 protected:
  ~CallerLock() = default;
};
// For a lock object such as std::unique_lock.
template <typename Lock>
class DroppedLock final : public CallerLock {
 public:
  explicit DroppedLock(Lock& lock) : lock_(lock) {}
  void lock() override { lock_.lock(); }
  void unlock() override { lock_.unlock(); }

 private:
  Lock& lock_;
};

// A thread can sleep in the link's own read, so that a message costs one system call.
class Sleepable {
 public:
  // As QueuePair::ReadLink(), but sleeps when nothing is there, with `lock` dropped meanwhile: other threads
  // may then call everything on the queue pair but ReadLink. Call it only on a link whose descriptor is in
  // blocking mode, only when !interest().write, and only if can_block(). A signal, or a receive time-out of
  // the descriptor, ends the sleep.
  virtual ReadStatus ReadLinkBlocking(CallerLock& lock, SleeperMemory memory) = 0;
  [[nodiscard]] virtual bool can_block() const = 0;
  // A jump has torn the thread that slept in ReadLinkBlocking out of it, and that thread will not come back.
  // Nothing was read.
  virtual void AbandonReading() = 0;

 protected:
  ~Sleepable() = default;
};

// ----------------------------------------------------------------------------------------------------
// Moving to another process

// The connection can move to another process (fork, exec, a passed descriptor) together with its link. Where
// a queue pair is not Portable, a device holds the state: the connection stays with its process, and in a
// child of fork the queue pair must not be destroyed, because that would end the parent's connection.
class Portable {
 public:
  // Freeze() may be called: all completions were polled, no RDMA Read of ours is outstanding and no memory is
  // registered. A thread may sleep in ReadLinkBlocking() if it has read nothing yet.
  [[nodiscard]] virtual bool freezable() const = 0;
  // Returns the whole state as bytes for the backend's own Thaw, unsent payload and an incomplete received
  // message included. Needs freezable(). What received completions have lent is not part of it: their tokens
  // mean nothing there. From here on only one of the two goes on: this queue pair, or, if it is destroyed
  // without another call, the thawed one.
  [[nodiscard]] std::vector<std::byte> Freeze() const {
    Writer ar;
    Freeze(ar);
    return ar.Take();
  }
  // Appends that state to `ar`, which refers to the payload until the next call.
  virtual void Freeze(Writer& ar) const = 0;
  // While `little` is set, ReadLink takes about one message at a time, because what was read has to be moved
  // to another process before it is used.
  virtual void ReadLittle(bool little) = 0;

  // A thread sleeps in ReadLinkBlocking() here, and what was frozen during its sleep goes on elsewhere, but
  // reads nothing before that thread is back. ReadLinkBlocking() then returns kDiverted with what it has
  // read. Nothing else is called here any more.
  virtual void DivertReader() = 0;
  // For the queue pair whose reader sleeps: the reader has left the link's read, perhaps with data, and waits
  // for the lock.
  [[nodiscard]] virtual bool reader_is_back() const = 0;
  // For the queue pair that goes on: reads what the thread has brought to `diverted`, however the state has
  // changed meanwhile.
  virtual ReadStatus TakeBrought(Portable& diverted) = 0;

 protected:
  ~Portable() = default;
};

// ----------------------------------------------------------------------------------------------------
// Sending a file, moving a region

// The payload of Sends can go from a file's pages to the link without a copy.
class FileSource {
 public:
  // From here to ReturnFile() the payload of Sends may lie in `file`. It goes from the file's pages to the
  // link, or, in DetachBorrowed(), into memory of the RNIC's own. As with sendfile(2), what is written to the
  // file before the peer has read it may change what the peer reads. A file that turns out to be shorter than
  // the range ends the connection (kFailed), because the messages' lengths have been sent already. The link's
  // descriptor must be in non-blocking mode. Returns false where the RNIC has to see the payload of this
  // connection (CRC, markers).
  [[nodiscard]] virtual bool BorrowFile(const FileRange& file) = 0;
  // Call it when nothing of the file is borrowed: Flush() has returned true, or DetachBorrowed() was called.
  virtual void ReturnFile() = 0;

 protected:
  ~FileSource() = default;
};

// A registered region can change its place in memory while the peer uses it.
class MovableRegions {
 public:
  // From now on the region's memory is `memory`, of the same length and with the same content: its owner
  // needs the old place back, and the peer goes on as if nothing had happened. The Tagged Offsets stay.
  // Returns false if the region cannot be moved; then nothing has changed.
  [[nodiscard]] virtual bool MoveRegion(STag stag, MutableBytes memory) = 0;

 protected:
  ~MovableRegions() = default;
};

// ----------------------------------------------------------------------------------------------------
// Devices

// Completion queues that a thread can look at without a system call, and arm before it sleeps.
class Pollable {
 public:
  // As QueuePair::ReadLink(), for a caller that comes again at once: does not ask to be woken by event_fd()
  // for what comes later, and mostly makes no system call. Before a sleep see may_sleep().
  virtual ReadStatus PollLink() = 0;
  // event_fd() tells of whatever comes from now on, and of nothing that PollLink() has taken already. False:
  // ReadLink() comes before a sleep.
  [[nodiscard]] virtual bool may_sleep() const = 0;
  // In place of ReadLink() before a sleep that only a Send with Solicited Event has to end (SDP 14.2): where
  // the device can, event_fd() tells of no other Send of the peer's from here to the next ReadLink(). It does
  // tell of our own work and of the end. kProgress: do not sleep yet.
  virtual ReadStatus ReadForSolicited() = 0;
  // event_fd() does not tell of everything: something came before a wait could begin, or a thread waits for
  // solicited Sends only. A caller that waits for more calls ReadLink().
  [[nodiscard]] virtual bool has_untold() const = 0;

 protected:
  ~Pollable() = default;
};

// The connection is one of a device, not the TCP connection of the descriptor that it was made on. event_fd()
// is a descriptor of the RNIC's own, and SetEventFd does nothing; Disconnect() ends both directions; the
// device moves data and answers RDMA Reads without a call of this process.
class DeviceLink {
 public:
  // Both ends' names.
  virtual void Names(sockaddr_storage* local, sockaddr_storage* peer) const = 0;
  // From here to the peer's RNIC and back, as the set-up has measured it, or an upper bound. Zero: unknown.
  [[nodiscard]] virtual Duration round_trip() const { return Duration::zero(); }
  // Returns true when the device has sent all that was posted, so that it arrives although this process ends
  // now. False: event_fd() tells when to ask again, after a ReadLink().
  [[nodiscard]] virtual bool AllTaken() { return true; }
  // The peer has said itself that it has received all posted Sends but the last `missing` (SDP's MSeqAck): a
  // device may have kept their bytes, of which no completion tells. Calling it is never necessary.
  virtual void NotePeerHas(uint64_t missing) { (void)missing; }

  // --- Going on as another connection
  // For a stream that has ended: returns what takes its place, or nullptr if the RNIC has nothing to leave.
  // That queue pair keeps event_fd(), which waiting threads know, with Names(), counters() and cause().
  // Everything else, the port too, is free once this queue pair is destroyed.
  [[nodiscard]] virtual std::unique_ptr<QueuePair> Leave();
  // For what Leave() has returned: begins the next connection, with the same event_fd(). Returns nullptr if
  // the RNIC makes none. It may be called again when a connection has failed and is destroyed.
  [[nodiscard]] virtual std::unique_ptr<Connector> ConnectAgain(const sockaddr* local, const sockaddr* target,
                                                                Bytes private_data, const QpOptions& options,
                                                                Duration timeout, Time now);

 protected:
  ~DeviceLink() = default;
};

// The abilities of one queue pair; null for each that it lacks.
struct Abilities {
  Sleepable* sleepable = nullptr;
  Portable* portable = nullptr;
  FileSource* file_source = nullptr;
  MovableRegions* movable_regions = nullptr;
  Pollable* pollable = nullptr;
  DeviceLink* device = nullptr;
};

}  // namespace sdp::verbs

#endif  // SDP_VERBS_ABILITIES_H_
