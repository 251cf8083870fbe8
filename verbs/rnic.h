// The RNIC as SDP sees it: connections made by a Connector, then a QueuePair that sends, receives, writes and
// reads.
//
// One model for every backend (the embedded soft-iWARP in verbs/softiwarp, kernel RNICs in verbs/ibv). The
// vocabulary is that of the RDMA verbs; what differs from libibverbs is said here and is what makes a small
// message cost one system call:
//
//  * A receive completion lends memory. The pieces of a received Send stay readable until Release(). Whether
//    the Private Buffer it arrived in is posted again is a decision of its own (PostReceives): the embedded
//    RNIC receives into a stream of chunks, where a small message occupies only its own size.
//  * Sends borrow memory. PostSend() references the payload. Flush() hands everything posted to the link with
//    as few system calls as possible. DetachBorrowed() copies what the link has not taken, so that the caller
//    may return the memory.
//  * Nothing happens behind the caller's back: no thread, no timer, no signal. ReadLink() and Flush() are the
//    only calls that move bytes; event_fd() and interest() say when they are worth calling.
//
// Threads: the objects are passive and unlocked; the caller serialises all calls on one QueuePair (or
// Connector) with a lock of its own. The one exception is ReadLink() with a lock to drop, see there.
// Different objects are independent.
//
// errno is not part of this interface; causes are typed (LinkCause) and carry a text for people.
#ifndef SDP_VERBS_RNIC_H_
#define SDP_VERBS_RNIC_H_

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/archive.h"
#include "core/base/types.h"
#include "verbs/file_range.h"

namespace sdp::verbs {

// ----------------------------------------------------------------------------------------------------
// Memory

enum class Access : uint8_t {
  kLocal = 0,             // sink of our own RDMA Reads, source of our own RDMA Writes
  kRemoteRead = 1 << 0,   // the peer may RDMA Read it (SrcAvail)
  kRemoteWrite = 1 << 1,  // the peer may RDMA Write it (SinkAvail)
};

// A registered memory region. The memory belongs to the caller and stays valid until Deregister() or until
// the peer's Send with Invalidate has named the STag. Bound to one QueuePair: the STag means nothing on any
// other connection.
struct MemoryRegion {
  STag stag;
  uint64_t base_to = 0;  // the Tagged Offset of the region's first byte (SDP's VA)
  uint32_t length = 0;
};

// ----------------------------------------------------------------------------------------------------
// Work requests

enum class PostResult : uint8_t {
  kOk,
  kNoResource,  // the send queue is full: retry after completions were polled
  kBroken,      // the stream is gone; see cause()
};

// The longest header PostSend copies.
inline constexpr size_t kMaxSendHeader = 64;

struct SendWork {
  WorkId id;
  bool signaled = false;             // produce a completion on success; errors always produce one
  bool solicited = false;            // Send with Solicited Event
  std::optional<STag> invalidate{};  // Send with (SE and) Invalidate: this STag of the peer's
  Bytes header{};                    // at most kMaxSendHeader bytes; copied
  std::span<const Bytes> payload{};  // gathered behind the header; borrowed, see DetachBorrowed()
};

struct RdmaWriteWork {
  WorkId id;
  bool signaled = false;
  std::span<const Bytes> local{};  // gathered; borrowed, see DetachBorrowed(), unless it lies in a region:
  std::optional<STag>
      local_stag{};  // all of `local` is in this region, and stays valid until it is sent or Deregister()
  STag remote_stag{};
  uint64_t remote_to = 0;
};

struct RdmaReadWork {
  WorkId id;          // always signaled
  STag local_stag{};  // a region registered on this QueuePair
  uint64_t local_to = 0;
  uint32_t length = 0;
  STag remote_stag{};
  uint64_t remote_to = 0;
};

// ----------------------------------------------------------------------------------------------------
// Completions

enum class Opcode : uint8_t { kSend, kRdmaWrite, kRdmaRead, kReceive };

enum class Status : uint8_t {
  kSuccess,
  kFlushed,      // the stream ended before the work was done
  kLocalError,   // our own request was wrong (unknown local STag, bounds)
  kRemoteError,  // the peer answered with Terminate
};

using ReceiveToken = StrongInt<struct ReceiveTokenTag, uint64_t>;

// The most pieces a received message comes in. A message that the link delivered in more is gathered into
// one.
inline constexpr size_t kMaxPieces = 8;

struct Completion {
  Opcode opcode = Opcode::kSend;
  Status status = Status::kSuccess;
  WorkId id{};
  // kReceive only:
  uint32_t length = 0;  // of the message, bytes
  bool solicited = false;
  std::optional<STag> invalidated{};  // the STag that the peer's Send with Invalidate named (already invalid)
  ReceiveToken token{};               // what Release() takes
  uint8_t piece_count = 0;            // the message, in order; readable until Release(token)
  Bytes pieces[kMaxPieces]{};
};

// ----------------------------------------------------------------------------------------------------
// Causes

enum class LinkEnd : uint8_t {
  kOpen,
  kClosedByPeer,  // orderly: FIN on a message boundary, nothing lost
  kReset,         // the LLP connection was reset or timed out
  kTerminated,    // we or the peer sent a Terminate
  kFailed,        // a local failure (no memory, device gone)
};

struct LinkCause {
  LinkEnd end = LinkEnd::kOpen;
  bool local = false;  // kTerminated: we sent it (the peer was wrong) rather than received it. kReset: we
                       // ended it, in the set-up because the peer was wrong
  uint8_t layer = 0, etype = 0, ecode = 0;  // kTerminated: RFC 5040, section 4.8
  int os_error = 0;                         // kReset, kFailed: the errno of the link, 0 if none
  std::string text;                         // one line for the log and for sdpstat
};

// ----------------------------------------------------------------------------------------------------
// Queue pair

struct QpOptions {
  uint32_t receive_buffer_size =
      0;                          // bytes of one receive Private Buffer: a longer message is the peer's error
  uint32_t initial_receives = 0;  // Private Buffers posted from the start
  uint16_t ird = 16;              // RDMA Reads of the peer's that may be outstanding
  uint16_t ord = 16;              // RDMA Reads of ours that may be outstanding
  // Accepting side, of an RNIC that does not show when the peer is ready for our first message: how long the
  // peer's own first message is waited for at most. What is sent before the peer is ready ends the
  // connection.
  Duration accept_silence = std::chrono::milliseconds(10);
};

// What a wait should watch event_fd() for.
struct Interest {
  bool read = true;
  bool write = false;
};

enum class ReadStatus : uint8_t {
  kProgress,     // bytes came in; poll completions
  kWouldBlock,   // nothing there (or, blocking, the link's receive time-out passed)
  kInterrupted,  // blocking only: a signal handler ran
  kEnded,        // the stream has ended; poll the remaining completions, then see cause()
  kDiverted,     // blocking only: what came is for another QueuePair's TakeBrought()
};

struct QpCounters {
  uint64_t bytes_in = 0, bytes_out = 0;  // on the link, all framing included
  uint64_t fpdus_in = 0, fpdus_out = 0;
  uint64_t read_calls = 0, write_calls = 0;  // system calls on the link
  uint64_t copied_out = 0;                   // bytes that DetachBorrowed() copied
  uint64_t placed_in = 0;                    // bytes read from the link straight into their final place
};

// Whose the registered memory is that received data may be placed in while a thread sleeps in
// ReadLinkBlocking.
enum class SleeperMemory : uint8_t {
  kOthers,  // it may be moved or taken back meanwhile: nothing is placed in the sleep
  kOwn,     // the sleeping thread's: it stays until that thread has left ReadLinkBlocking
};

// The lock that the owner of a QueuePair holds around its calls, for ReadLinkBlocking to drop in its sleep.
class CallerLock {
 public:
  virtual void lock() = 0;
  virtual void unlock() = 0;

 protected:
  ~CallerLock() = default;
};
// Of a lock object such as std::unique_lock.
template <typename Lock>
class DroppedLock final : public CallerLock {
 public:
  explicit DroppedLock(Lock& lock) : lock_(lock) {}
  void lock() override { lock_.lock(); }
  void unlock() override { lock_.unlock(); }

 private:
  Lock& lock_;
};

class Connector;

class QueuePair {
 public:
  virtual ~QueuePair() = default;

  // --- posting. All of these only queue; Flush() sends. Messages leave in the order posted.
  virtual PostResult PostSend(const SendWork& work) = 0;
  virtual PostResult PostRdmaWrite(const RdmaWriteWork& work) = 0;
  // Queued inside while ORD reads are outstanding. Does not fence later Sends: wait for its completion.
  virtual PostResult PostRdmaRead(const RdmaReadWork& work) = 0;
  // `count` more Private Buffers are posted. The sum of posted buffers is what SDP's Bufs counts.
  virtual void PostReceives(uint32_t count) = 0;
  // A different size for the buffers posted from now on (SDP 10.6), about `count` of them. A message must fit
  // the largest size still posted. False: there is no memory for so many; the size is what it was.
  virtual bool SetReceiveBufferSize(uint32_t bytes, uint32_t count) = 0;
  // Gives back what a receive completion lent. Any order.
  virtual void Release(ReceiveToken token) = 0;
  // What an unreleased message of `length` bytes occupies, for the owner's limit on receive memory.
  [[nodiscard]] virtual uint32_t ReceiveCost(uint32_t length) const = 0;

  // --- memory. kNoResource is nullopt.
  virtual std::optional<MemoryRegion> Register(MutableBytes memory, Access access) = 0;
  virtual void Deregister(STag stag) = 0;
  // The region's memory is `memory` from now on, of the same length and with the same content: its owner
  // needs the old place back, and the peer may go on as if nothing had happened. The Tagged Offsets stay.
  // False: this RNIC cannot, nothing has changed.
  [[nodiscard]] virtual bool MoveRegion(STag stag, MutableBytes memory) = 0;
  [[nodiscard]] virtual bool IsRegistered(STag stag) const = 0;

  // --- moving bytes.
  // Hands what is posted to the link, without blocking. False when the link would not take all
  // (interest().write is set).
  virtual bool Flush() = 0;
  // Copies every byte still borrowed from the caller into memory of the RNIC's own: after it the caller may
  // reuse or free what SendWork and RdmaWriteWork referenced. Nothing is copied when Flush() returned true.
  virtual void DetachBorrowed() = 0;
  // The peer itself has said that it has received all Sends but the last `missing` of those posted (SDP's
  // MSeqAck): a device may have kept their bytes, of which no completion tells. Never necessary.
  virtual void NotePeerHas(uint64_t missing) { (void)missing; }
  // From here to ReturnFile() the payload of Sends may lie in `file`, and goes from the file's pages to the
  // link without a copy in between, or, in DetachBorrowed(), into memory of the RNIC's own. As with
  // sendfile(2), what is written to the file before the peer has read it may change what the peer reads. A
  // file that turns out to be shorter than the range ends the connection (kFailed): the messages' lengths
  // were said already. The link's descriptor must be in non-blocking mode. False: this connection has to see
  // its payload (CRC, markers), or the RNIC cannot.
  [[nodiscard]] virtual bool BorrowFile(const FileRange& /*file*/) { return false; }
  // Nothing of the file's may be borrowed any more: Flush() returned true, or DetachBorrowed() was called.
  virtual void ReturnFile() {}
  // Reads what the link has, without blocking. Reads until the link is drained or a bounded amount was taken.
  virtual ReadStatus ReadLink() = 0;
  // What has been read is to be moved elsewhere before it is used: from here on ReadLink takes about one
  // message at a time. Of no effect where the RNIC is not freezable().
  virtual void ReadLittle(bool /*little*/) {}
  // The same for a caller that comes again at once: where the RNIC can, without asking to be woken by
  // event_fd() for what comes later, and most times without a system call. Before a sleep see may_sleep().
  virtual ReadStatus PollLink() { return ReadLink(); }
  // The same, but sleeps in the link's own read when nothing is there, with `lock` dropped meanwhile: other
  // threads may then call everything on this object but ReadLink. Only on a link whose descriptor is in
  // blocking mode, only when !interest().write, and only if can_block(). A signal or a time-out of the
  // descriptor ends the sleep.
  virtual ReadStatus ReadLinkBlocking(CallerLock& lock, SleeperMemory memory) = 0;
  [[nodiscard]] virtual bool can_block() const = 0;
  // The thread that slept in ReadLinkBlocking was torn out of it by a jump, and will not come back: nothing
  // was read.
  virtual void AbandonReading() {}
  // Takes the next completion; false if there is none.
  virtual bool PollCompletion(Completion* out) = 0;
  // event_fd() tells of whatever comes from now on, and of nothing that PollLink() has taken already. False:
  // ReadLink() comes before a sleep.
  [[nodiscard]] virtual bool may_sleep() const { return false; }
  // In place of ReadLink() before a sleep that no message has to end but a Send with Solicited Event
  // (SDP 14.2): where the RNIC can, event_fd() tells of no other Send of the peer's from here to the next
  // ReadLink(). Of work of our own, and of the end, it does. kProgress: not yet.
  virtual ReadStatus ReadForSolicited() { return ReadLink(); }
  // event_fd() does not tell of all: something came before anybody could wait for it, or somebody waits for
  // solicited Sends alone. Who waits for more calls ReadLink().
  [[nodiscard]] virtual bool has_untold() const { return false; }

  // --- the connection.
  [[nodiscard]] virtual int event_fd() const = 0;
  // The descriptor moved to another number (dup2 under the same open file). The QueuePair never closes it.
  virtual void SetEventFd(int fd) = 0;
  // True: event_fd() is a descriptor of the RNIC's own, not the one the connection was made on; SetEventFd
  // does nothing.
  [[nodiscard]] virtual bool owns_event_fd() const { return false; }
  // Both ends' names, of a connection that has another descriptor than the one it was made on; false: that
  // descriptor knows.
  virtual bool Names(sockaddr_storage*, sockaddr_storage*) const { return false; }
  [[nodiscard]] virtual Interest interest() const = 0;
  // Bytes posted that the link has not taken.
  [[nodiscard]] virtual uint64_t unsent_bytes() const = 0;
  // All that was posted is the link's, and leaves although the process ends now. False: event_fd() tells when
  // to ask again, behind ReadLink().
  [[nodiscard]] virtual bool AllTaken() { return unsent_bytes() == 0; }
  // Orderly end of our direction once everything posted is sent (TCP: FIN). Reading goes on.
  virtual void Disconnect() = 0;
  // At once, both directions; what is unsent is lost and the peer sees a reset. Outstanding work completes
  // with kFlushed.
  virtual void Abort() = 0;
  [[nodiscard]] virtual const LinkCause& cause() const = 0;
  // A write found the link gone. What the peer said before is still to be read; ReadLink() then ends, and
  // cause() says why.
  [[nodiscard]] virtual bool send_failed() const { return false; }
  // And the Flush that found it so had sent some before.
  [[nodiscard]] virtual bool failed_midway() const { return false; }
  [[nodiscard]] virtual uint16_t ird() const = 0;
  [[nodiscard]] virtual uint16_t ord() const = 0;
  virtual void SetOrd(uint16_t ord) = 0;  // lowers it (SDP 8.1.1, 4e and 7d)
  // To the peer's RNIC and back, as the set-up has measured it, or an upper bound. Zero: unknown; the link's
  // descriptor may know.
  [[nodiscard]] virtual Duration round_trip() const { return Duration::zero(); }
  [[nodiscard]] virtual const QpCounters& counters() const = 0;

  // --- moving to another process (fork, exec, a passed descriptor) together with the link.
  // Freeze() may be called: all completions were polled, no RDMA Read of ours is outstanding and no memory is
  // registered. A sleeping reader has read nothing yet. Never where a device holds the state.
  [[nodiscard]] virtual bool freezable() const { return false; }
  // The whole state as bytes, unsent payload and an incomplete received message included; for the backend's
  // own Thaw. Needs freezable(). What received completions have lent is not part of it: their tokens mean
  // nothing there. From here on one of the two goes on: this one, or, when this one is destroyed without
  // another call, what is thawed.
  [[nodiscard]] std::vector<std::byte> Freeze() const {
    Writer ar;
    Freeze(ar);
    return ar.Take();
  }
  // The same behind what `ar` has, which refers to the payload until the next call.
  virtual void Freeze(Writer& /*ar*/) const {}
  // A thread sleeps in ReadLinkBlocking(), and what was frozen during that sleep goes on elsewhere, but reads
  // nothing before the thread is back. That returns kDiverted with what it brings. Nothing else is called
  // here any more.
  virtual void DivertReader() {}
  // Of the one whose reader sleeps: it has left the link's read, perhaps with something, and waits for the
  // lock.
  [[nodiscard]] virtual bool reader_is_back() const { return false; }
  // Of the one that goes on: reads what the thread has brought to `diverted`, however the state has changed
  // meanwhile.
  virtual ReadStatus TakeBrought(QueuePair& /*diverted*/) { return ReadStatus::kWouldBlock; }

  // --- going on as another connection, where the RNIC has the descriptor (owns_event_fd()).
  // Of a stream that has ended: what takes its place. It keeps event_fd(), which those who wait know, with
  // Names(), counters() and cause(); all else goes when this one is destroyed, and its port is free then.
  // nullptr: this RNIC has nothing to leave.
  [[nodiscard]] virtual std::unique_ptr<QueuePair> Leave() { return nullptr; }
  // Of what Leave() has returned: the next connection, whose event_fd() will be that one. As often as it
  // comes to nothing; the one before is destroyed by then.
  [[nodiscard]] virtual std::unique_ptr<Connector> ConnectAgain(const sockaddr* local, const sockaddr* target,
                                                                Bytes private_data, const QpOptions& options,
                                                                Duration timeout, Time now);

  // "soft" and "tcp", or the device's name and "rdma": for people.
  [[nodiscard]] virtual const char* rnic_name() const = 0;
  [[nodiscard]] virtual const char* link_name() const = 0;
};

// ----------------------------------------------------------------------------------------------------
// Connection set-up

enum class ConnectState : uint8_t {
  kInProgress,   // wait for interest() on event_fd(), or for deadline()
  kRequested,    // accepting side: the peer's request is here; see peer_private_data(), then Accept() or
                 // Reject()
  kEstablished,  // TakeQueuePair()
  kRejected,     // connecting side: the peer's connection manager said no; its private data is there
  kFailed,       // cause()
};

// One handshake over a connected link (MPA Request and Reply for the embedded RNIC). Passive like the
// QueuePair: the owner calls Step() when the descriptor is ready or the deadline has passed.
class Connector {
 public:
  virtual ~Connector() = default;

  virtual ConnectState Step(Time now) = 0;
  [[nodiscard]] virtual int event_fd() const = 0;
  // The descriptor has another number now (a dup of the same open file).
  virtual void SetEventFd(int fd) = 0;
  [[nodiscard]] virtual Interest interest() const = 0;
  [[nodiscard]] virtual Time deadline() const = 0;

  // The peer's private data, at most 512 bytes; valid in kRequested, kEstablished and kRejected.
  [[nodiscard]] virtual Bytes peer_private_data() const = 0;

  // Accepting side, in kRequested. True when the peer will send a ready-to-receive message, so that ours may
  // be the first SDP message as an iWARP Send (SDP 8.1.1, 5); false: it has to travel in the private data of
  // the reply.
  [[nodiscard]] virtual bool may_send_first() const = 0;
  virtual void Accept(Bytes private_data, const QpOptions& options) = 0;
  virtual void Reject(Bytes private_data) = 0;

  [[nodiscard]] virtual const LinkCause& cause() const = 0;
  // In kEstablished, once. The descriptor stays the owner's.
  virtual std::unique_ptr<QueuePair> TakeQueuePair() = 0;
};

inline std::unique_ptr<Connector> QueuePair::ConnectAgain(const sockaddr*, const sockaddr*, Bytes,
                                                          const QpOptions&, Duration, Time) {
  return nullptr;
}

}  // namespace sdp::verbs

#endif  // SDP_VERBS_RNIC_H_
