// One direction of a local link: a ring of bytes in memory that two processes share. One process writes, the
// other reads. Neither makes a system call.
//
// The memory belongs to the peer as much as to this process, and the peer may write anything into it at any
// time. So each index is read once, checked, and used from private memory. An index that cannot be ends the
// connection. Payload that changes while it is read is the peer's loss alone.
//
//   data    |........xxxxxxxxxxx........|                         |
//           0        tail       head    window                    capacity
//
// `head` and `tail` count bytes since the beginning and never wrap; their place is modulo `window`, a power
// of two. The writer uses few pages while its traffic is small: the smallest window has a place of its own,
// beside the control. The writer changes `window` only while the ring is empty, so all bytes to be read lie
// in one window.
//
// A side that is going to sleep arms its doorbell, and looks again before it sleeps. The other side takes the
// arm after it has written (or read), and then wakes the sleeper by other means (LocalLink).
#ifndef SDP_VERBS_SOFTIWARP_LOCAL_RING_H_
#define SDP_VERBS_SOFTIWARP_LOCAL_RING_H_

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/types.h"
#include "verbs/abilities.h"
#include "verbs/softiwarp/proto/unread_payload.h"

namespace sdp::iwarp {

// What a writer with an armed doorbell waits for.
enum class RoomWanted : uint32_t { kNone, kHalf, kAll };

enum class ReaderState : uint32_t {
  kAwake,
  kArmed,    // wants to be woken, by a doorbell
  kGone,     // has reset the connection, and reads no more
  kAtBell,   // wants to be woken, by its bell
  kAtFutex,  // sleeps by a futex until this is another state
};

// In shared memory. Each line is written by one side, except that the other side takes an arm.
struct RingControl {
  alignas(64) std::atomic<uint64_t> head;    // the writer's
  std::atomic<uint32_t> window;              // the writer's, bytes
  alignas(64) std::atomic<uint64_t> tail;    // the reader's
  alignas(64) std::atomic<uint32_t> reader;  // a ReaderState: the reader's, except that the writer disarms it
  std::array<std::atomic<uint64_t>, 2> bell;  // the reader's, while it is kAtBell: a verbs::BellName
  std::atomic<uint64_t> cookie;               // likewise: what to ring it with
  alignas(64) std::atomic<uint32_t> writer;   // a RoomWanted: armed by the writer
  std::atomic<uint32_t> wakes_futex;          // the writer's: 1 if it knows kAtFutex
};
static_assert(sizeof(RingControl) == 256 && std::atomic<uint64_t>::is_always_lock_free);

inline constexpr uint32_t kSmallestWindow = 1024;

// A ring, in shared memory that outlives its writer and its reader.
struct RingMemory {
  RingControl* control = nullptr;
  MutableBytes first;  // the smallest window: kSmallestWindow bytes
  MutableBytes data;   // all others; its size is a power of two, larger than that
  bool used = false;   // the data's pages may be in use, of an earlier connection
  // Returns where a window of that size begins.
  [[nodiscard]] std::byte* Window(uint64_t size) const {
    return size == kSmallestWindow ? first.data() : data.data();
  }
};

// Makes the control of a new ring: empty, with both doorbells' arms as a sleeping reader's. What an earlier
// connection of the same two processes has said of itself stays.
void InitializeRing(RingControl* control);

class RingWriter {
 public:
  explicit RingWriter(const RingMemory& memory);

  // Copies as many bytes of `parts` as there is room for, in order, and shows them to the reader. Returns
  // their number. Returns nothing if the peer has written indices that cannot be. `unread`: parts that it
  // holds are read into the ring; nothing is shown, and nothing returned, if one is unreadable().
  std::optional<size_t> Write(std::span<const iovec> parts, const UnreadPayload* unread = nullptr);
  [[nodiscard]] bool unreadable() const { return unreadable_; }
  // Write() of one whole in steps. Reserve() returns false, and nothing follows, if there is no room for
  // `bytes` bytes. Put() copies the next of them, Show() shows them to the reader.
  [[nodiscard]] bool Reserve(size_t bytes);
  void Put(Bytes bytes);
  // Returns how many bytes.
  size_t Show();
  // Call after Write. kArmed, kAtBell, kAtFutex: the reader has to be woken, by the caller, once.
  [[nodiscard]] ReaderState TakeReader();
  // After kAtBell: returns what to ring. The reader may write both at any time.
  [[nodiscard]] verbs::BellName bell() const;
  [[nodiscard]] uint64_t cookie() const { return ring_.control->cookie.load(std::memory_order_relaxed); }
  // After kAtFutex: wakes the reader. Keeps errno.
  void WakeFutex() const;

  // A write found too little room. Arms the doorbell; afterwards has_room() tells whether to sleep.
  void Arm();
  [[nodiscard]] bool armed() const;
  // Returns true if a write is worth while: half of the window is free, or what the window's growth needs.
  // Also true if the peer has written indices that cannot be.
  [[nodiscard]] bool has_room() const;
  // Returns how many bytes a write takes now. Returns SIZE_MAX while the ring has bytes and its window has
  // not grown to the whole ring: the window may grow before the write.
  [[nodiscard]] size_t room() const;
  [[nodiscard]] bool empty() const;
  // Returns the bytes written since the beginning, and those of them that the reader has read.
  [[nodiscard]] uint64_t written() const { return ring_.control->head.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t read() const { return ring_.control->tail.load(std::memory_order_acquire); }
  // Makes the window small again if the ring is empty. Returns the data, which is not in use any more, and
  // whose pages the caller may give back before the next Write; else nothing.
  MutableBytes Shrink();

 private:
  // Returns the bytes in the ring, and grows the window for `wanted` more where the ring is empty.
  std::optional<uint64_t> Used(size_t wanted);
  // Begins a write of up to `wanted` bytes. Returns how many there is room for, or nothing if the peer has
  // written indices that cannot be.
  std::optional<uint64_t> Begin(size_t wanted);
  // Puts what `unread` holds. Returns false if that is unreadable.
  bool PutUnread(const UnreadPayload& unread, Bytes bytes);
  // Returns where the next `bytes` bytes go: to the window's end, and from its beginning on.
  std::array<MutableBytes, 2> NextPlaces(size_t bytes);

  RingMemory ring_;
  uint64_t tail_ = 0;  // the reader's when last looked at; it only grows
  // From Begin() to Show(): where the first and the next bytes go, and in which window. Private, whatever
  // the peer writes.
  uint64_t put_from_ = 0;
  uint64_t put_at_ = 0;
  uint64_t put_window_ = kSmallestWindow;
  std::byte* put_base_ = nullptr;  // the window's
  bool unreadable_ = false;
  bool short_ = false;  // the window was full: it grows when the ring is empty next
  bool grown_;          // more than the smallest window was used since the last Shrink
};

class RingReader {
 public:
  explicit RingReader(const RingMemory& memory)
      : ring_(memory), tail_(memory.control->tail.load(std::memory_order_acquire)), seen_(tail_) {}

  // Copies what is there into `parts`, in order, and frees its room. Returns the number of bytes, 0 if the
  // ring is empty. Returns nothing if the peer has written indices that cannot be.
  std::optional<size_t> Read(std::span<const MutableBytes> parts);
  // What is there to be read, as it was once looked at and checked.
  struct Unread {
    uint64_t at = 0;
    uint64_t size = 0;
    uint64_t window = kSmallestWindow;
    const std::byte* base = nullptr;  // the window's
  };
  // Read() in two steps. Returns nothing if the peer has written indices that cannot be: for example, if it
  // takes back what an earlier look has found.
  [[nodiscard]] std::optional<Unread> Look() const;
  // Returns where `size` of these bytes lie, from the `from`-th on: to the window's end, and from its
  // beginning on. The peer may change them at any time.
  [[nodiscard]] std::array<Bytes, 2> Find(const Unread& unread, uint64_t from, uint64_t size) const {
    size = std::min(size, unread.size - from);
    const uint64_t place = (unread.at + from) & (unread.window - 1);
    const uint64_t first = std::min(size, unread.window - place);
    return {Bytes(unread.base + place, first), Bytes(unread.base, size - first)};
  }
  // Copies bytes, from the `from`-th on, as many as `to` takes of them. Returns their number.
  size_t Copy(const Unread& unread, uint64_t from, MutableBytes to) const;
  // Frees the room of the first `bytes`.
  void Take(const Unread& unread, uint64_t bytes);
  // Call after Read or Take. Returns true if the writer has to be woken.
  [[nodiscard]] bool TakeWriter();

  // Arms the doorbell, or asks for `bell`; afterwards empty() tells whether to sleep.
  void Arm();
  void ArmBell(const verbs::BellName& bell, uint64_t cookie);
  // Asks to be woken by the futex, which counts as a bell below. Returns nothing if the writer cannot do
  // that. If the ring is not empty, the bell is rung already.
  std::optional<verbs::FutexBell> ArmFutex();
  // Arms the doorbell in place of the bell. Returns false if the bell is not asked for, or was rung.
  bool TakeBellBack();
  [[nodiscard]] bool armed() const { return state() == ReaderState::kArmed || at_bell(); }
  [[nodiscard]] bool at_bell() const {
    return state() == ReaderState::kAtBell || state() == ReaderState::kAtFutex;
  }
  [[nodiscard]] bool empty() const;
  // Tells the writer with its next write that nothing is read any more.
  void Leave();
  [[nodiscard]] bool left() const { return state() == ReaderState::kGone; }

 private:
  [[nodiscard]] ReaderState state() const {
    return static_cast<ReaderState>(ring_.control->reader.load(std::memory_order_relaxed));
  }

  RingMemory ring_;
  // Private, whatever the peer writes. No other process reads as long as this object does.
  uint64_t tail_;
  mutable uint64_t seen_;  // the head, as of the last look
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LOCAL_RING_H_
