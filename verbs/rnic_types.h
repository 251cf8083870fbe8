// Plain values that an RNIC and its owner hand to each other: memory regions, work requests, completions, and
// why a connection has ended. rnic.h has the interface that uses them.
#ifndef SDP_VERBS_RNIC_TYPES_H_
#define SDP_VERBS_RNIC_TYPES_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/base/types.h"

namespace sdp::verbs {

// ----------------------------------------------------------------------------------------------------
// Memory

enum class Access : uint8_t {
  kLocal = 0,             // sink of our own RDMA Reads, source of our own RDMA Writes
  kRemoteRead = 1 << 0,   // the peer may RDMA Read it (SrcAvail)
  kRemoteWrite = 1 << 1,  // the peer may RDMA Write it (SinkAvail)
};

// A registered memory region. The caller owns the memory, and it stays valid until Deregister(), or until the
// peer's Send with Invalidate has named the STag. A region belongs to one QueuePair: on any other connection
// its STag means nothing.
struct MemoryRegion {
  STag stag;
  uint64_t base_to = 0;  // the Tagged Offset of the region's first byte (SDP's VA)
  uint32_t length = 0;
};

// ----------------------------------------------------------------------------------------------------
// Work requests

enum class PostResult : uint8_t {
  kOk,
  kNoResource,  // the send queue is full: try again after polling completions
  kBroken,      // the stream is gone; see cause()
};

// The longest header that PostSend copies.
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
  std::span<const Bytes> local{};  // gathered; borrowed, see DetachBorrowed(), unless `local_stag` is set
  // All of `local` lies in this region, and stays valid until it has been sent or until Deregister().
  std::optional<STag> local_stag{};
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

// The most pieces that a received message comes in. The RNIC joins pieces when the link delivered more.
inline constexpr size_t kMaxPieces = 8;

struct Completion {
  Opcode opcode = Opcode::kSend;
  Status status = Status::kSuccess;
  WorkId id{};
  // kReceive only:
  uint32_t length = 0;  // of the message, bytes
  bool solicited = false;
  std::optional<STag> invalidated{};  // the STag that the peer's Send with Invalidate named (now invalid)
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
  // kTerminated: this end sent the Terminate, because the peer was wrong. kReset: this end reset the
  // connection (in the set-up because the peer was wrong).
  bool local = false;
  uint8_t layer = 0, etype = 0, ecode = 0;  // kTerminated: RFC 5040, section 4.8
  int os_error = 0;                         // kReset, kFailed: the errno of the link, 0 if none
  std::string text;                         // one line for the log and for sdpstat
};

// ----------------------------------------------------------------------------------------------------
// A queue pair's options, answers, facts and counters

struct QpOptions {
  // Bytes of one receive Private Buffer. A longer message is the peer's error.
  uint32_t receive_buffer_size = 0;
  uint32_t initial_receives = 0;  // Private Buffers posted from the start
  uint16_t ird = 16;              // RDMA Reads of the peer's that may be outstanding
  uint16_t ord = 16;              // RDMA Reads of ours that may be outstanding
  // Accepting side, for an RNIC that does not show when the peer is ready for our first message: the longest
  // wait for the peer's own first message. A message sent before the peer is ready ends the connection.
  Duration accept_silence = std::chrono::milliseconds(10);
};

// What a wait should watch event_fd() for.
struct Interest {
  bool read = true;
  bool write = false;
};

enum class ReadStatus : uint8_t {
  kProgress,    // bytes came in; poll completions
  kWouldBlock,  // nothing is there
  kEnded,       // the stream has ended; poll the remaining completions, then see cause()
};

// What is known of a connection. The RNIC keeps it up to date.
struct LinkFacts {
  // For people. `rnic`: "soft", or the device's name. `link`: "tcp", "local" or "rdma".
  const char* rnic = "";
  const char* link = "";
  // What would keep a connection within this host from a local link, for people. Empty if it has one, or
  // nothing is known.
  std::string why_not_local{};
  LinkCause cause{};
  // A write found the link gone. What the peer sent before is still to be read; then ReadLink() ends, and
  // `cause` says why.
  bool send_failed = false;
  bool failed_midway = false;  // send_failed, and the Flush that found the link gone had sent some bytes
  uint16_t ird = 0;
  uint16_t ord = 0;
};

struct QpCounters {
  uint64_t bytes_in = 0, bytes_out = 0;  // on the link, all framing included
  uint64_t fpdus_in = 0, fpdus_out = 0;
  uint64_t read_calls = 0, write_calls = 0;  // system calls on the link
  uint64_t copied_out = 0;                   // bytes that DetachBorrowed() copied
  uint64_t placed_in = 0;                    // bytes read from the link straight into their final place
  uint64_t doorbells = 0;                    // rung for the peer of a local link, each a system call
};

}  // namespace sdp::verbs

#endif  // SDP_VERBS_RNIC_TYPES_H_
