// SDP messages as a process notes them for sdpstat. Each connection's last ones are in its slot of the stats
// file (stats_layout.h). While a reader traces, all of them are in a file of their own. libsdp.so writes,
// sdpstat reads. Only headers are noted, never payload.
//
// The trace file, "<pid>-<start time>.trace", beside the stats file:
//
//   offset 0                          TraceHeader
//   offset kTraceHeaderSize + i * 64  MessageEntry i < kTraceEntries; message n is in entry n % kTraceEntries
//
// An entry is complete when its tag is that of the wanted message. Any number of threads write. A reader that
// is overtaken loses messages, and can tell how many. Numbers are host-endian; the messages' headers are as
// on the wire.
#ifndef SDP_PRELOAD_STATS_MESSAGES_H_
#define SDP_PRELOAD_STATS_MESSAGES_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sdp::stats {

// Fits the BSDH and the longest extended header, and also RdmaNote and NamesNote below.
inline constexpr size_t kNotedBytes = 36;

enum class NoteKind : uint8_t {
  kNone = 0,
  kPrivateData,   // Hello or HelloAck, as private data of the RNIC's connection request or reply
  kSend,          // an SDP message, as iWARP Send
  kRdmaRead,      // RDMA Read posted: RdmaNote
  kRdmaReadDone,  // an RDMA Read completed; reads complete in the order posted
  kRdmaWrite,     // RDMA Write posted: RdmaNote
  kOpened,        // conventional names: NamesNote. `length` is the descriptor
  kOpenedSdp,     // the names of the RNIC's link, right after kOpened
  kClosed,        // the connection is gone
};
enum class NoteDirection : uint8_t { kIn = 0, kOut = 1 };
enum NoteFlags : uint8_t {
  kNoteSolicited = 1,    // Send with SE
  kNoteInvalidates = 2,  // Send with Invalidate: MessageNote::invalidated
  kNoteIpv6 = 4,         // kOpened, kOpenedSdp
  kNoteConnecting = 8,   // kOpened: this process connected; if not set, it accepted
};

struct MessageNote {
  uint64_t time_ns = 0;  // CLOCK_REALTIME; in steps of a few milliseconds without a trace
  NoteKind kind = NoteKind::kNone;
  NoteDirection direction = NoteDirection::kIn;
  uint8_t size = 0;  // of `bytes` in use
  uint8_t flags = 0;
  uint32_t length = 0;  // bytes of the message or of the RDMA operation
  uint32_t invalidated = 0;
  std::byte bytes[kNotedBytes] = {};
};
struct RdmaNote {
  uint32_t local_stag = 0;
  uint32_t remote_stag = 0;
  uint64_t local_to = 0;
  uint64_t remote_to = 0;
};
struct NamesNote {
  uint8_t local_ip[16] = {};  // network byte order; IPv4 uses the first four bytes
  uint8_t peer_ip[16] = {};
  uint16_t local_port = 0;  // host byte order
  uint16_t peer_port = 0;
};

inline constexpr size_t kNoteWords = sizeof(MessageNote) / sizeof(uint64_t);
static_assert(kNoteWords == 7);

// A note with a tag and its connection's number. Tag 0: empty, or being written. In a slot the tags count the
// connection's messages from 1. In the trace file they are TraceTag(n).
struct alignas(64) MessageEntry {
  std::atomic<uint64_t> tag_and_connection;  // tag in the upper half
  std::atomic<uint64_t> words[kNoteWords];
};

inline constexpr size_t kRecentMessages = 16;                // of each connection
inline constexpr uint64_t kTraceMagic = 0x3143415254504453;  // "SDPTRAC1" in memory on a little-endian host
inline constexpr uint32_t kTraceVersion = 1;
inline constexpr size_t kTraceHeaderSize = 4096;
inline constexpr size_t kTraceEntries = 16384;
inline constexpr size_t kTraceFileSize = kTraceHeaderSize + kTraceEntries * sizeof(MessageEntry);
// A reader asks for the trace for this long, again and again. So a reader that dies leaves no trace running.
inline constexpr uint64_t kTraceLeaseNs = 3'000'000'000;

struct TraceHeader {
  std::atomic<uint64_t> magic;  // written last
  uint32_t version;
  uint32_t pid;
  std::atomic<uint64_t> next;  // the number of the next message, from 0
};

// Returns the round through the ring in which a message is; never 0 in the first 2^46 messages.
constexpr uint32_t TraceTag(uint64_t number) { return static_cast<uint32_t>(number / kTraceEntries + 1); }

inline void StoreNote(MessageEntry* entry, uint32_t tag, uint32_t connection, const MessageNote& note) {
  entry->tag_and_connection.store(0, std::memory_order_relaxed);
  uint64_t words[kNoteWords];
  std::memcpy(words, &note, sizeof note);
  // Release: a reader that sees a word of this note no longer sees the previous note's tag.
  for (size_t i = 0; i < kNoteWords; ++i) entry->words[i].store(words[i], std::memory_order_release);
  entry->tag_and_connection.store(static_cast<uint64_t>(tag) << 32 | connection, std::memory_order_release);
}

constexpr uint32_t InMemoryOrder(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  if constexpr (std::endian::native == std::endian::little) return a | b << 8 | c << 16 | uint32_t{d} << 24;
  return uint32_t{a} << 24 | b << 16 | c << 8 | d;
}
constexpr uint64_t InMemoryOrder(uint32_t a, uint32_t b) {
  if constexpr (std::endian::native == std::endian::little) return a | uint64_t{b} << 32;
  return uint64_t{a} << 32 | b;
}

// StoreNote for a Data message, by far the most frequent: kSend, nothing invalidated. `bsdh` is its header of
// sixteen bytes. Its words stay in registers.
inline void StoreDataNote(MessageEntry* entry, uint32_t tag, uint32_t connection, uint64_t time_ns,
                          NoteDirection direction, uint8_t flags, uint32_t length, const std::byte* bsdh) {
  uint32_t first, last;
  uint64_t middle;
  std::memcpy(&first, bsdh, sizeof first);
  std::memcpy(&middle, bsdh + 4, sizeof middle);
  std::memcpy(&last, bsdh + 12, sizeof last);
  const uint32_t head =
      InMemoryOrder(static_cast<uint8_t>(NoteKind::kSend), static_cast<uint8_t>(direction), 16, flags);
  const auto store = [entry](size_t i, uint64_t word) {
    entry->words[i].store(word, std::memory_order_release);
  };
  entry->tag_and_connection.store(0, std::memory_order_relaxed);
  store(0, time_ns);
  store(1, InMemoryOrder(head, length));
  store(2, InMemoryOrder(0, first));
  store(3, middle);
  store(4, InMemoryOrder(last, 0));
  store(5, 0);
  store(6, 0);
  entry->tag_and_connection.store(static_cast<uint64_t>(tag) << 32 | connection, std::memory_order_release);
}

static_assert(std::is_trivially_copyable_v<MessageNote> &&
              sizeof(MessageNote) == kNoteWords * sizeof(uint64_t));
static_assert(sizeof(MessageEntry) == 64 && sizeof(RdmaNote) <= kNotedBytes &&
              sizeof(NamesNote) == kNotedBytes);
static_assert(sizeof(TraceHeader) <= kTraceHeaderSize);

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_MESSAGES_H_
