// What only some RNICs can do, with one interface for each ability.
//
// QueuePair::portable() and its like return an ability of that queue pair, or null where the RNIC lacks it.
// The embedded RNIC's queue pairs have Portable, MovableRegions, FileSource and DirectSend; those on a local
// link are Pollable and Direct besides. A kernel RNIC's have Pollable and DeviceLink. The caller holds the
// lock, and keeps the rules, that rnic.h names.
#ifndef SDP_VERBS_ABILITIES_H_
#define SDP_VERBS_ABILITIES_H_

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/archive.h"
#include "core/base/types.h"
#include "verbs/file_range.h"
#include "verbs/rnic_types.h"

namespace sdp::verbs {

class Connector;
class QueuePair;

// ----------------------------------------------------------------------------------------------------
// Moving to another process

// The ability to move a connection to another process (fork, exec, a passed descriptor) together with its
// link. Without it a device holds the state, and the connection stays with its process. A child of fork must
// not destroy such a queue pair, because that would end the parent's connection.
class Portable {
 public:
  // Returns true if Freeze() may be called: all completions were polled, no RDMA Read of ours is outstanding
  // and no memory is registered.
  [[nodiscard]] virtual bool freezable() const = 0;
  // Returns the whole state as bytes for the backend's own Thaw, including unsent payload and an incomplete
  // received message. Needs freezable(). The memory that received completions lend is not included: their
  // tokens mean nothing in the other process. Afterwards only one of the two may continue: this queue pair,
  // or the thawed one if this one is destroyed without another call.
  [[nodiscard]] std::vector<std::byte> Freeze() const {
    Writer ar;
    Freeze(ar);
    return ar.Take();
  }
  // Appends that state to `ar`, which refers to the payload until the next call.
  virtual void Freeze(Writer& ar) const = 0;
  // The queue pair will not move to another program: gives up what only that needs.
  virtual void StaysHere() {}

 protected:
  ~Portable() = default;
};

// ----------------------------------------------------------------------------------------------------
// Sending a file, moving a region

// The ability to send payload from a file's pages to the link without a copy in the program's memory.
class FileSource {
 public:
  // Until ReturnFile() the payload of Sends may lie in `file`. The bytes leave from the file's pages;
  // DetachBorrowed() copies them into the RNIC's own memory instead. As with sendfile(2), a write to the file
  // before the peer has read the bytes may change what the peer reads. A file shorter than the range ends the
  // connection (kFailed), because the messages' lengths were sent already. The link's descriptor must be in
  // non-blocking mode. Returns false where the RNIC must see this connection's payload (CRC, markers).
  [[nodiscard]] virtual bool BorrowFile(const FileRange& file) = 0;
  // Call it when no byte of the file is borrowed: Flush() has returned true, or DetachBorrowed() was called.
  virtual void ReturnFile() = 0;
  // Returns how many bytes the link takes now, framing included. Returns SIZE_MAX if the RNIC cannot tell.
  [[nodiscard]] virtual size_t room() const = 0;
  // For a sender that is to wait until room() has become much larger. A sleep on the link then ends, though
  // nothing is unsent. Returns false if room() is large by now.
  virtual bool AwaitRoom() = 0;
  // After AwaitRoom(): returns true while there is not so much room.
  [[nodiscard]] virtual bool full() const = 0;
  // Returns true, once, when there is so much room.
  virtual bool TakeRoom() = 0;

 protected:
  ~FileSource() = default;
};

// The ability to move a registered region to other memory while the peer uses it.
class MovableRegions {
 public:
  // Makes `memory` the region's memory; it has the same length and content. The region's owner needs the old
  // memory back. The Tagged Offsets stay, and the peer notices nothing. Returns false, with nothing changed,
  // if the region cannot be moved.
  [[nodiscard]] virtual bool MoveRegion(STag stag, MutableBytes memory) = 0;

 protected:
  ~MovableRegions() = default;
};

// ----------------------------------------------------------------------------------------------------
// Past the queues

// The ability to send one message without the queues.
class DirectSend {
 public:
  // Returns true if nothing is posted, and a message of `size` bytes may go to the link at once. A link that
  // is memory takes it whole. What a TCP link does not take is queued.
  [[nodiscard]] virtual bool MaySendDirect(size_t size) = 0;
  // Sends a message of `header`, at most kMostHeader bytes, and `payload`, at most kMostDirectPieces pieces,
  // as PostSend(), Flush() and DetachBorrowed() do for unsignaled work. Needs MaySendDirect().
  static constexpr size_t kMostHeader = 16;
  static constexpr size_t kMostDirectPieces = 8;
  virtual void SendDirect(Bytes header, std::span<const Bytes> payload) = 0;

 protected:
  ~DirectSend() = default;
};

// The ability to receive one message so, too, because the link is memory. Each message is one copy.
class Direct : public DirectSend {
 public:
  // A message that is the next completion, and is in the link as a whole.
  struct Arrived {
    uint32_t length = 0;
    bool solicited = false;
    uint64_t end = 0;      // bytes of the link up to its end
    uint32_t untaken = 0;  // messages up to its end that were not taken
  };
  // Returns the next message, and copies its first bytes to `header`, at most kMostHeader. Returns nothing if
  // there is none, or ReadLink() has to take it. `before`: likewise of the message behind that one.
  [[nodiscard]] virtual std::optional<Arrived> LookDirect(MutableBytes header,
                                                          const Arrived* before = nullptr) = 0;
  // Returns how many bytes are in the link, framing included; UINT64_MAX if ReadLink() finds an error there.
  [[nodiscard]] virtual uint64_t InLink() const = 0;
  // Takes the message that LookDirect() has just returned. Copies what follows `header` bytes to `payload`,
  // as much as there is room for.
  virtual void TakeDirect(size_t header, std::span<const MutableBytes> payload) = 0;
  // Like TakeDirect(), but returns where the payload lies in the link, in one piece or two. It stays there
  // until ReturnLent(). Nothing else may read the link before. The peer may change the bytes.
  [[nodiscard]] virtual std::array<Bytes, 2> LendDirect(size_t header) = 0;
  virtual void ReturnLent() = 0;

 protected:
  ~Direct() = default;
};

// ----------------------------------------------------------------------------------------------------
// Devices

// Says, without the queue pair's lock and a system call, whether the link has something to read, or room that
// a sender waits for (FileSource::AwaitRoom).
class Peek {
 public:
  virtual ~Peek() = default;
  // Any thread may call it.
  [[nodiscard]] virtual bool unread() const = 0;
};

// Names what a sleeping thread, or an epoll set, can be woken by (softiwarp/bell.h).
struct BellName {
  std::array<uint64_t, 2> words{};
  friend bool operator==(const BellName&, const BellName&) = default;
};

// A bell of another kind: who sleeps by a futex on `word` is woken when that is no longer `unrung`. The peer
// may write it, too.
struct FutexBell {
  const std::atomic<uint32_t>* word = nullptr;
  uint32_t unrung = 0;
};

// Completion queues, or memory shared with the peer, that a thread can look at without a system call before
// it sleeps.
class Pollable {
 public:
  // Returns true if event_fd() reports what comes even if nothing but PollLink() reads. If false, a caller
  // that waits for event_fd() calls ReadLink() first.
  [[nodiscard]] virtual bool always_told() const { return false; }
  // Returns a look at the link that may outlive the queue pair, or nullptr.
  [[nodiscard]] virtual std::shared_ptr<const Peek> peek() { return nullptr; }
  // Like QueuePair::ReadSome(), for a caller that calls again at once. Does not arm event_fd() for later
  // completions, and mostly makes no system call. Before a sleep the caller checks may_sleep().
  // kSleep: the caller asks may_sleep() before it waits, or looks again soon, and leaves it to the wait to
  // tell of the link's end. After a bell was rung, event_fd() tells of nothing until then.
  enum class PollFor : uint8_t { kNow, kSleep };
  virtual ReadStatus PollLink(PollFor wanted) = 0;
  ReadStatus PollLink() { return PollLink(PollFor::kNow); }
  // Returns true if event_fd() reports everything that comes from now on, and nothing that PollLink() has
  // taken. If false, the caller calls ReadLink() before it sleeps.
  [[nodiscard]] virtual bool may_sleep() = 0;
  // Replaces ReadLink() before a sleep that only a Send with Solicited Event must end (SDP 14.2). Where the
  // device can, event_fd() reports no other Send of the peer's until the next ReadLink(). Our own work's
  // completions and the end are still reported. On kProgress the caller must not sleep yet.
  virtual ReadStatus ReadForSolicited() = 0;
  // For a caller that sleeps next, on its own bell as well as on event_fd(): one of the two tells what comes,
  // the bell with `cookie`. Needs may_sleep(). Returns false if something has come already. Ends with
  // HearByLink(), and with each other read that may be followed by a sleep.
  virtual bool HearByBell(const BellName& bell, uint64_t cookie) {
    (void)bell, (void)cookie;
    return true;
  }
  // As HearByBell(), for a caller that sleeps by a futex and on nothing else. If something has come already,
  // the bell is rung. Returns nothing if the peer cannot wake that way.
  virtual std::optional<FutexBell> HearByFutex() { return std::nullopt; }
  // From here on event_fd() tells what comes. Returns false if the bell was rung, or something has come that
  // nothing tells of: the caller calls ReadLink(), and event_fd() tells of all that comes later.
  [[nodiscard]] virtual bool HearByLink() { return true; }
  // Gives memory back that traffic has used and idling does not need. For connections that are quiet.
  virtual void GiveBack() {}
  // Returns true if something is there that event_fd() does not report, or need not be asked for. Something
  // came before a wait could begin, the link has something unread, or a thread waits for solicited Sends
  // only. A caller that waits reads first.
  [[nodiscard]] virtual bool has_untold() const = 0;

 protected:
  ~Pollable() = default;
};

// The ability of a connection that belongs to a device rather than to a TCP connection on the owner's
// descriptor. event_fd() is the RNIC's own descriptor, and SetEventFd does nothing. Disconnect() ends both
// directions. The device moves data and answers RDMA Reads without a call of this process.
class DeviceLink {
 public:
  // Stores the addresses of both ends.
  virtual void Names(sockaddr_storage* local, sockaddr_storage* peer) const = 0;
  // Returns the round-trip time to the peer's RNIC as measured at set-up, or an upper bound; zero if unknown.
  [[nodiscard]] virtual Duration round_trip() const { return Duration::zero(); }
  // Returns true when the device has sent everything posted, so that it arrives even if this process ends
  // now. If false, event_fd() becomes readable when the caller should call ReadLink() and ask again.
  [[nodiscard]] virtual bool AllTaken() { return true; }
  // Reports the peer's own statement (SDP's MSeqAck) that it has received all posted Sends except the last
  // `missing`. The RNIC may have kept the bytes of these Sends, since no completion covers them. The call is
  // optional.
  virtual void NotePeerHas(uint64_t missing) { (void)missing; }

  // --- Continuing as another connection
  // For a stream that has ended: returns the queue pair that takes its place, or nullptr if the RNIC offers
  // none. The new queue pair keeps event_fd(), which waiting threads use, and Names(), counters() and
  // cause(). Everything else, including the port, is free once this queue pair is destroyed.
  [[nodiscard]] virtual std::unique_ptr<QueuePair> Leave();
  // Called on what Leave() returned: begins the next connection, with the same event_fd(). Returns nullptr if
  // the RNIC cannot. It may be called again once a failed connection was destroyed.
  [[nodiscard]] virtual std::unique_ptr<Connector> ConnectAgain(const sockaddr* local, const sockaddr* target,
                                                                Bytes private_data, const QpOptions& options,
                                                                Duration timeout, Time now);

 protected:
  ~DeviceLink() = default;
};

// The abilities of one queue pair; each is null where the queue pair lacks it.
struct Abilities {
  Portable* portable = nullptr;
  FileSource* file_source = nullptr;
  MovableRegions* movable_regions = nullptr;
  Pollable* pollable = nullptr;
  DirectSend* direct_send = nullptr;
  Direct* direct = nullptr;
  DeviceLink* device = nullptr;
};

}  // namespace sdp::verbs

#endif  // SDP_VERBS_ABILITIES_H_
