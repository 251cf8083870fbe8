// The RNIC as SDP sees it: a Connector makes a connection, then a QueuePair sends, receives, writes and
// reads.
//
// One model serves every backend (the embedded soft-iWARP in verbs/softiwarp, kernel RNICs in verbs/ibv). The
// vocabulary is that of the RDMA verbs. The values are in rnic_types.h, and the abilities that only some
// RNICs have are in abilities.h. Three rules differ from libibverbs, so that a small message costs one system
// call:
//
//  * A receive completion lends memory. The pieces of a received Send stay readable until Release(). Posting
//    the Private Buffer again (PostReceives) is a separate decision: the embedded RNIC receives into a stream
//    of chunks, where a small message occupies only its own size.
//  * Sends borrow memory. PostSend() references the payload. Flush() hands everything posted to the link with
//    as few system calls as possible. DetachBorrowed() copies what the link has not taken, so that the caller
//    may return the memory.
//  * Nothing happens between calls: a backend has no thread, no timer and no signal. ReadLink() and Flush()
//    are the only calls that move bytes; event_fd() and interest() say when to call them.
//
// Threads: the objects are passive and unlocked. The caller serialises all calls on one QueuePair (or
// Connector) with a lock of its own. Different objects are independent.
//
// errno is not part of this interface; causes are typed (LinkCause) and carry a text for people.
#ifndef SDP_VERBS_RNIC_H_
#define SDP_VERBS_RNIC_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/types.h"
#include "verbs/abilities.h"
#include "verbs/rnic_types.h"

namespace sdp::verbs {

class QueuePair {
 public:
  virtual ~QueuePair() = default;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // --- Abilities that only some RNICs have; null where this one lacks it. Each lives as long as the queue
  // pair.
  [[nodiscard]] Portable* portable() { return abilities_.portable; }
  [[nodiscard]] const Portable* portable() const { return abilities_.portable; }
  [[nodiscard]] FileSource* file_source() { return abilities_.file_source; }
  [[nodiscard]] const FileSource* file_source() const { return abilities_.file_source; }
  [[nodiscard]] MovableRegions* movable_regions() { return abilities_.movable_regions; }
  [[nodiscard]] Pollable* pollable() { return abilities_.pollable; }
  [[nodiscard]] const Pollable* pollable() const { return abilities_.pollable; }
  [[nodiscard]] DirectSend* direct_send() { return abilities_.direct_send; }
  [[nodiscard]] Direct* direct() { return abilities_.direct; }
  [[nodiscard]] const Direct* direct() const { return abilities_.direct; }
  [[nodiscard]] DeviceLink* device() { return abilities_.device; }
  [[nodiscard]] const DeviceLink* device() const { return abilities_.device; }

  // --- Posting. All of these only queue; Flush() sends. Messages leave in the order posted.
  virtual PostResult PostSend(const SendWork& work) = 0;
  virtual PostResult PostRdmaWrite(const RdmaWriteWork& work) = 0;
  // The read waits in a queue while ORD reads are outstanding. An RDMA Read does not fence later Sends: the
  // caller waits for its completion.
  virtual PostResult PostRdmaRead(const RdmaReadWork& work) = 0;
  // Posts `count` more Private Buffers. The sum of posted buffers is what SDP's Bufs counts.
  virtual void PostReceives(uint32_t count) = 0;
  // Sets the size of the buffers posted from now on, about `count` of them (SDP 10.6). A message must fit the
  // largest size still posted. Returns false if memory for so many is lacking; then the size is unchanged.
  virtual bool SetReceiveBufferSize(uint32_t bytes, uint32_t count) = 0;
  // Gives back what a receive completion lent, in any order.
  virtual void Release(ReceiveToken token) = 0;
  // Returns what an unreleased message of `length` bytes occupies, for the owner's limit on receive memory.
  [[nodiscard]] virtual uint32_t ReceiveCost(uint32_t length) const = 0;

  // --- Memory. Register returns nullopt if no resource is left.
  virtual std::optional<MemoryRegion> Register(MutableBytes memory, Access access) = 0;
  virtual void Deregister(STag stag) = 0;
  [[nodiscard]] virtual bool IsRegistered(STag stag) const = 0;

  // --- Moving bytes
  // Hands what is posted to the link, without blocking. Returns false when the link did not take everything
  // (interest().write is set).
  virtual bool Flush() = 0;
  // Copies every byte still borrowed from the caller into memory of the RNIC's own. Afterwards the caller may
  // reuse or free what SendWork and RdmaWriteWork referenced. Nothing is copied after a Flush() that returned
  // true.
  virtual void DetachBorrowed() = 0;
  // Reads what the link has, without blocking, until the link is drained or a bounded amount was taken.
  virtual ReadStatus ReadLink() = 0;
  // Like ReadLink(), but takes about one message of the usual largest size. The caller uses it at once, while
  // the core's own cache has it.
  virtual ReadStatus ReadSome() { return ReadLink(); }
  // A thread sleeps next, until the link has more.
  virtual void NoteSleep() const {}
  // Takes the next completion; returns false if there is none.
  virtual bool PollCompletion(Completion* out) = 0;

  // Returns the descriptor to wait on. Unless the connection belongs to a device, the owner keeps the
  // descriptor, and the queue pair never closes it.
  [[nodiscard]] virtual int event_fd() const = 0;
  // Call it when the descriptor has another number (dup2 of the same open file).
  virtual void SetEventFd(int fd) = 0;
  [[nodiscard]] virtual Interest interest() const = 0;
  // Returns the bytes posted that the link has not taken; 1 while that is the end of a frame alone. A link in
  // memory counts no such end: each read sends it.
  [[nodiscard]] virtual uint64_t unsent_bytes() const = 0;
  // Ends our direction in order once everything posted is sent (TCP: FIN). Reading continues.
  virtual void Disconnect() = 0;
  // Ends both directions at once: unsent bytes are lost and the peer sees a reset. Outstanding work completes
  // with kFlushed.
  virtual void Abort() = 0;
  virtual void SetOrd(uint16_t ord) = 0;  // lowers ORD (SDP 8.1.1, 4e and 7d)

  [[nodiscard]] const LinkFacts& facts() const { return known_; }
  [[nodiscard]] const LinkCause& cause() const { return known_.cause; }
  [[nodiscard]] virtual const QpCounters& counters() const = 0;

 protected:
  // `facts` is the RNIC's, and lives as long as this.
  explicit QueuePair(const LinkFacts& facts, const Abilities& abilities = {})
      : abilities_(abilities), known_(facts) {}
  // For a constructor whose own members are the abilities.
  void SetAbilities(const Abilities& abilities) { abilities_ = abilities; }

 private:
  Abilities abilities_;
  const LinkFacts& known_;
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

// Sets up one connection: a handshake over a connected link (MPA Request and Reply for the embedded RNIC), or
// a set-up by a device. The Connector is passive like the QueuePair: the owner calls Step() when the
// descriptor is ready or the deadline has passed.
class Connector {
 public:
  virtual ~Connector() = default;

  virtual ConnectState Step(Time now) = 0;
  [[nodiscard]] virtual int event_fd() const = 0;
  // Call it when the descriptor has another number (dup2 of the same open file).
  virtual void SetEventFd(int fd) = 0;
  [[nodiscard]] virtual Interest interest() const = 0;
  [[nodiscard]] virtual Time deadline() const = 0;

  // Returns the peer's private data, at most 512 bytes; valid in kRequested, kEstablished and kRejected.
  [[nodiscard]] virtual Bytes peer_private_data() const = 0;

  // Accepting side, in kRequested. Returns true if the peer will send a ready-to-receive message, so that our
  // first SDP message may travel as an iWARP Send (SDP 8.1.1, 5). If false, it travels in the reply's private
  // data.
  [[nodiscard]] virtual bool may_send_first() const = 0;
  // Accepting side, in kRequested. Returns true if this end may do without a ready-to-receive message, should
  // the peer agree.
  [[nodiscard]] virtual bool may_open() const { return false; }
  // In kEstablished. Returns true if both ends do without one.
  [[nodiscard]] virtual bool is_open() const { return false; }
  virtual void Accept(Bytes private_data, const QpOptions& options) = 0;
  virtual void Reject(Bytes private_data) = 0;

  [[nodiscard]] virtual const LinkCause& cause() const = 0;
  // Call it in kEstablished, once. The owner keeps the descriptor.
  virtual std::unique_ptr<QueuePair> TakeQueuePair() = 0;
};

inline std::unique_ptr<QueuePair> DeviceLink::Leave() { return nullptr; }
inline std::unique_ptr<Connector> DeviceLink::ConnectAgain(const sockaddr*, const sockaddr*, Bytes,
                                                           const QpOptions&, Duration, Time) {
  return nullptr;
}

}  // namespace sdp::verbs

#endif  // SDP_VERBS_RNIC_H_
