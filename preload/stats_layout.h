// The layout of a process's stats file, by which it publishes the state of its sockets. libsdp.so writes the
// file, sdpstat reads it.
//
// One file per process, "<pid>-<start time>.stats"; the process maps it and others read it:
//
//   offset 0                        Header
//   offset SlotOffset(i)            Slot i, i < Header::slot_count
//
// Slots 0 to kFallbackSlots - 1 are a ring of the last fall-backs to TCP, without room for messages. Each
// other slot holds one live connection or listener. The file grows in chunks of kChunkSize bytes, never
// shrinks, and lives as long as the process. All numbers are host-endian, since the file never leaves the
// host. A reader of a version other than kVersion must not guess.
//
// Consistency: a slot is a seqlock; its sequence is odd during a write. Its words are atomics, so that a
// reader that maps the file is well-defined. Release stores and acquire loads order them without a fence.
#ifndef SDP_PRELOAD_STATS_LAYOUT_H_
#define SDP_PRELOAD_STATS_LAYOUT_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "preload/stats_messages.h"

namespace sdp::stats {

inline constexpr uint64_t kMagic = 0x3154415453504453;  // "SDPSTAT1" in memory on a little-endian host
inline constexpr uint32_t kVersion = 7;
inline constexpr size_t kHeaderSize = 4096;
inline constexpr size_t kSlotSize = 1728;
inline constexpr size_t kChunkSize = 64 * 1024;  // a multiple of every page size in use
inline constexpr size_t kMaxChunks = 1024;       // 37,899 slots
inline constexpr uint32_t kFallbackSlots = 32;
inline constexpr size_t kFallbackSlotSize = 1024;
inline constexpr size_t kMaxReasons = 32;

enum class Kind : uint8_t { kFree = 0, kConnection = 1, kListener = 2, kFallback = 3 };
enum class Role : uint8_t { kNone = 0, kConnecting = 1, kAccepting = 2 };
enum class State : uint8_t {
  kNone = 0,
  kListening,
  kConnecting,  // port mapper, TCP connect or MPA start-up under way
  kHandshake,   // Hello sent or received
  kEstablished,
  kSendClosed,     // this process's DisConn is sent, the peer's has not come
  kReceiveClosed,  // the peer's DisConn has come, this process's is not sent
  kClosing,        // both, or the application closed with data still to leave
  kAborted,
  kTcp,           // a fall-back: the socket is plain TCP
  kFailed,        // neither: SDP failed, and a rule or SDP_MODE=sdp forbids TCP
  kUnregistered,  // a listener that no port mapper knows: its clients come by TCP
};
enum class FlowMode : uint8_t {
  kBuffered = 0,
  kCombined = 1,
  kPipelined = 2
};  // numbered as in the ModeChange message
enum Mechanism : uint8_t { kBcopy = 0, kReadZcopy = 1, kWriteZcopy = 2, kTransaction = 3, kMechanisms = 4 };

// What carries a connection, as ConnectionRecord::link names it.
enum LinkKind : uint8_t { kTcpLink = 0, kRdmaLink, kLocalLink, kLinkKinds };

// Why a socket that could have been SDP is plain TCP. The codes are stable: sdpstat prints and counts them.
enum class FallbackReason : uint8_t {
  kModeTcp = 0,    // SDP_MODE=tcp
  kNoRnic,         // no RNIC could be opened
  kPmUnreachable,  // no process listens on the target's port-mapper port
  kPmTimeout,      // the target's port mapper does not answer
  kPmDenied,       // the target's port mapper knows no SDP listener for the address
  kPmCached,       // asked and failed a moment ago (negative cache)
  kPmUnusable,     // the port mapper answered with an address that cannot be used
  kSdpRefused,     // the SDP address refused the connection
  kMpaRejected,    // the peer's RNIC rejected the connection
  kMpaFailed,      // MPA start-up failed (bad reply, time-out)
  kHelloFailed,    // the SDP handshake failed (8.1.1)
  kNotRegistered,  // a listener without a local port mapper: conventional clients only
  kPlainClient,    // accepted on the conventional port: the client does not speak SDP
  kAddressFamily,  // an address that SDP does not carry
  kSocketOption,   // the program used an option or call that only TCP can give
  kResources,      // memory, descriptors or slots ran out
  kOther,
  kRule,         // a rule of libsdp.conf says tcp
  kSdpSilent,    // the SDP address does not answer, or did not when it was tried last
  kPmUntrusted,  // the port mapper's answer leads where the asked host's administrator does not vouch for
  kCount,
};

// An IPv4 or IPv6 address and port; family 0: none.
struct Address {
  uint8_t family = 0;  // 0, 4 or 6
  uint8_t reserved = 0;
  uint16_t port = 0;      // host byte order
  uint32_t scope_id = 0;  // IPv6 only
  uint8_t ip[16] = {};    // network byte order; IPv4 uses the first four bytes
};

// What changes while data moves. Bytes and messages count from the connection's start.
struct Counters {
  State state = State::kNone;
  FlowMode source_mode = FlowMode::kCombined;  // the half-connection in which this process is the Data Source
  FlowMode sink_mode = FlowMode::kCombined;
  uint8_t ever_established = 0;  // 1 once the SDP handshake is done: the connection then counts in the totals
  uint8_t reserved[4] = {};
  uint64_t send_credits = 0;
  uint64_t posted_receives = 0;
  uint64_t receive_queue = 0;  // bytes received and unread; a listener: connections waiting for accept
  uint64_t send_queue = 0;     // bytes accepted and not handed to the RNIC; a listener: the backlog
  uint64_t bytes_in[kMechanisms] = {};
  uint64_t bytes_out[kMechanisms] = {};
  // Bcopy, Transaction: messages with payload. Read Zcopy: RDMA Reads of this process, RdmaRdCompls of the
  // peer. Write Zcopy: RDMA Writes of this process, RdmaWrCompls of the peer.
  uint64_t transfers_in[kMechanisms] = {};
  uint64_t transfers_out[kMechanisms] = {};
  uint64_t messages_in = 0;  // SDP messages of every kind
  uint64_t messages_out = 0;
  uint64_t gratuitous_updates = 0;
  uint64_t send_stalls = 0;      // a send found no credit
  uint64_t buffered_copies = 0;  // bytes copied into the send buffer
  uint64_t link_bytes_in = 0;    // on the RNIC's link, framing included
  uint64_t link_bytes_out = 0;
  uint64_t link_fpdus_in = 0;
  uint64_t link_fpdus_out = 0;
  uint64_t link_reads = 0;  // system calls
  uint64_t link_writes = 0;
  uint64_t accepted_sdp = 0;    // a listener: connections taken over SDP
  uint64_t accepted_tcp = 0;    // a listener: connections taken on the conventional port
  uint64_t advertised_out = 0;  // SrcAvail and SinkAvail that the peer has not answered yet
  uint64_t advertised_in = 0;   // the peer's that are not answered yet
  uint64_t mode_changes = 0;    // of both half-connections
  // Waits for the peer over a kernel RNIC or a local link, ended by a look at the completion queue or the
  // memory, or by sleep.
  uint64_t waits_polled = 0;
  uint64_t waits_slept = 0;
  uint64_t doorbells = 0;         // a local link: how often this end has woken the peer
  uint64_t registered_at_ns = 0;  // a listener: since when a port mapper knows it (CLOCK_REALTIME); 0: none
};

// One connection, listener or fall-back. Texts end in a NUL.
struct ConnectionRecord {
  Counters counters;
  Kind kind = Kind::kFree;
  Role role = Role::kNone;
  FallbackReason fallback = FallbackReason::kOther;  // kFallback only; `role` says which call decided
  uint8_t reserved = 0;
  int32_t fd = -1;
  Address local;      // conventional: what getsockname gives
  Address peer;       // conventional: what getpeername gives
  Address sdp_local;  // SDP address and port of this end; a listener: what the port mapper returns
  Address sdp_peer;
  uint32_t local_buffer_size = 0;  // receive Private Buffers, bytes with headers
  uint32_t remote_buffer_size = 0;
  uint32_t bcopy_threshold = 0;  // sends of more bytes than this use Zcopy; 0: none do
  uint32_t connection = 0;       // its number in this process, for MessageEntry; 0: none
  uint64_t opened_at_ns = 0;     // CLOCK_REALTIME
  char rnic[16] = {};            // "soft", "siw0"
  char link[16] = {};            // "tcp", "rdma"
  char reason[32] = {};          // stable code: fall-back, abort
  // One line for people. A connection without a reason: why a link within the host is TCP. A listener that is
  // registered: the path of the port mapper's socket.
  char reason_text[128] = {};
};

// The value of `link` for a kernel RNIC.
inline constexpr char kKernelLink[] = "rdma";
inline constexpr const char* kLinkNames[kLinkKinds] = {"tcp", kKernelLink, "local"};
// A connection that has no link yet has no bytes either, and counts as TCP's.
inline LinkKind LinkKindOf(const ConnectionRecord& record) {
  for (const LinkKind kind : {kRdmaLink, kLocalLink}) {
    if (std::strcmp(record.link, kLinkNames[kind]) == 0) return kind;
  }
  return kTcpLink;
}
// Returns whether the record is a listener's row for one of its kernel RNICs. The listener's embedded RNIC
// has a row of its own. A kernel RNIC's row belongs to one process alone.
inline bool IsKernelListener(const ConnectionRecord& record) {
  return record.kind == Kind::kListener && std::strcmp(record.link, kKernelLink) == 0;
}

// Returns whether the record is a listener's that no port mapper knows, not yet or no longer.
inline bool IsUnregisteredListener(const ConnectionRecord& record) {
  return record.kind == Kind::kListener && record.counters.state == State::kUnregistered;
}

inline constexpr size_t kRecordWords = sizeof(ConnectionRecord) / sizeof(uint64_t);
inline constexpr size_t kCounterWords = sizeof(Counters) / sizeof(uint64_t);

struct Slot {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> words[kRecordWords];  // a ConnectionRecord
  uint8_t pad[kSlotSize - kRecentMessages * sizeof(MessageEntry) - (1 + kRecordWords) * sizeof(uint64_t)];
  MessageEntry recent[kRecentMessages];  // message number n, from 1, is at n % kRecentMessages
};

// Sums over everything that the process has finished. For totals a reader adds the live slots.
struct Totals {
  std::atomic<uint64_t> connections_closed;     // SDP connections that were once established
  std::atomic<uint64_t> connections_aborted;    // among them, those that ended with a reason
  std::atomic<uint64_t> bytes_in[kMechanisms];  // of closed connections
  std::atomic<uint64_t> bytes_out[kMechanisms];
  std::atomic<uint64_t> fallbacks[kMaxReasons];  // by FallbackReason
  std::atomic<uint64_t> slots_refused;           // sockets without a slot: the file could not grow
  // Payload bytes of closed connections, by the link that each had at its end.
  std::atomic<uint64_t> link_in[kLinkKinds][kMechanisms];
  std::atomic<uint64_t> link_out[kLinkKinds][kMechanisms];
  std::atomic<uint64_t> send_stalls;  // of closed connections
  // Odd while a slot's counters move to these sums, and changed afterwards: a reader that finds the same even
  // number before and after its look has each connection once.
  std::atomic<uint64_t> moves;
};

struct Header {
  std::atomic<uint64_t> magic;  // written last
  uint32_t version;
  uint32_t header_size;  // kHeaderSize
  uint32_t slot_size;    // kSlotSize
  uint32_t pid;
  uint64_t start_time;    // of the process, clock ticks since boot (/proc/PID/stat, field 22)
  uint64_t opened_at_ns;  // CLOCK_REALTIME
  std::atomic<uint64_t> slot_count;
  char program[64];
  // Message traces. sdpstat writes until when it wants one (CLOCK_MONOTONIC, ns); 0: no reader wants one. The
  // process answers with the trace file, or with the errno that kept it from making the file.
  std::atomic<uint64_t> trace_until;
  std::atomic<uint64_t> trace_errno;
  Totals totals;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
static_assert(std::is_trivially_copyable_v<ConnectionRecord> && std::is_standard_layout_v<ConnectionRecord>);
static_assert(offsetof(ConnectionRecord, counters) == 0,
              "Publish of the counters alone writes the record's first words");
static_assert(sizeof(ConnectionRecord) % sizeof(uint64_t) == 0 && sizeof(Counters) % sizeof(uint64_t) == 0);
static_assert(sizeof(Slot) == kSlotSize && sizeof(Header) <= kHeaderSize);
static_assert(static_cast<size_t>(FallbackReason::kCount) <= kMaxReasons);
static_assert(offsetof(Slot, pad) <= kFallbackSlotSize);

// No slot lies across two chunks: a chunk ends with what is too little for one.
inline constexpr size_t kFirstSlotAt = kHeaderSize + kFallbackSlots * kFallbackSlotSize;
inline constexpr size_t kSlotsOfFirstChunk = (kChunkSize - kFirstSlotAt) / kSlotSize;
inline constexpr size_t kSlotsOfChunk = kChunkSize / kSlotSize;
static_assert(kFirstSlotAt % alignof(Slot) == 0 && kSlotSize % alignof(Slot) == 0);

constexpr size_t SlotOffset(size_t index) {
  if (index < kFallbackSlots) return kHeaderSize + index * kFallbackSlotSize;
  index -= kFallbackSlots;
  if (index < kSlotsOfFirstChunk) return kFirstSlotAt + index * kSlotSize;
  index -= kSlotsOfFirstChunk;
  return (1 + index / kSlotsOfChunk) * kChunkSize + index % kSlotsOfChunk * kSlotSize;
}
// Returns the number of slots in a file of `size` bytes.
constexpr size_t SlotsIn(size_t size) {
  if (size < kFirstSlotAt) return 0;
  if (size < kChunkSize)
    return kFallbackSlots + std::min((size - kFirstSlotAt) / kSlotSize, kSlotsOfFirstChunk);
  return kFallbackSlots + kSlotsOfFirstChunk + (size / kChunkSize - 1) * kSlotsOfChunk +
         std::min(size % kChunkSize / kSlotSize, kSlotsOfChunk);
}

// `names` has one for each value of `E`, from 0 on. Another program's file may hold any other value.
template <size_t N, typename E>
constexpr const char* NameIn(const char* const (&names)[N], E value, const char* otherwise = "unknown") {
  return static_cast<size_t>(value) < N ? names[static_cast<size_t>(value)] : otherwise;
}

constexpr const char* ToString(Kind kind) {
  constexpr const char* kNames[] = {"free", "connection", "listener", "tcp-fallback"};
  static_assert(std::size(kNames) == static_cast<size_t>(Kind::kFallback) + 1);
  return NameIn(kNames, kind);
}

constexpr const char* ToString(Role role) {
  constexpr const char* kNames[] = {"none", "connecting", "accepting"};
  static_assert(std::size(kNames) == static_cast<size_t>(Role::kAccepting) + 1);
  return NameIn(kNames, role);
}

constexpr const char* ToString(State state) {
  constexpr const char* kNames[] = {"none",        "listen",      "connecting",     "handshake",
                                    "established", "send-closed", "receive-closed", "closing",
                                    "aborted",     "tcp",         "failed",         "unregistered"};
  static_assert(std::size(kNames) == static_cast<size_t>(State::kUnregistered) + 1);
  return NameIn(kNames, state);
}

constexpr const char* ToString(FlowMode mode) {
  constexpr const char* kNames[] = {"buffered", "combined", "pipelined"};
  static_assert(std::size(kNames) == static_cast<size_t>(FlowMode::kPipelined) + 1);
  return NameIn(kNames, mode);
}

constexpr const char* ToString(FallbackReason reason) {
  constexpr const char* kNames[] = {"mode-tcp",     "no-rnic",        "pm-unreachable", "pm-timeout",
                                    "pm-denied",    "pm-cached",      "pm-unusable",    "sdp-refused",
                                    "mpa-rejected", "mpa-failed",     "hello-failed",   "not-registered",
                                    "plain-client", "address-family", "socket-option",  "resources",
                                    "other",        "rule",           "sdp-silent",     "pm-untrusted"};
  static_assert(std::size(kNames) == static_cast<size_t>(FallbackReason::kCount));
  return NameIn(kNames, reason, "other");
}

// The names stand in the order of the values.
static_assert(std::string_view(ToString(FallbackReason::kOther)) == "other");
static_assert(std::string_view(ToString(FallbackReason::kSdpRefused)) == "sdp-refused");
static_assert(std::string_view(ToString(FallbackReason::kPmUntrusted)) == "pm-untrusted");
static_assert(std::string_view(ToString(State::kEstablished)) == "established");
static_assert(std::string_view(ToString(State::kUnregistered)) == "unregistered");

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_LAYOUT_H_
