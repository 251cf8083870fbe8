// The link of a connection whose two ends share memory (local/memory.h). The byte stream of MPA's full
// operation goes through two rings. The TCP connection stays open beside them, and carries nothing but
// doorbells: single bytes. They wake an end that sleeps on its descriptor, whether in poll, in an epoll set
// or in another process. The TCP connection's end is the link's end.
//
// A thread or an epoll set that sleeps for a busy link may ask for its bell instead (bell.h), which is
// cheaper. It waits for the TCP connection as well: for its end, and for a peer that cannot ring.
//
// So whatever waits for links waits for this one, too, and a fork inherits it. At any time the reader's
// doorbell is armed, or its ring is on the TCP connection: the thread that takes it there arms again. So
// while both ends are busy, one doorbell lies there unread, and no system call is made. After a bell was
// rung, nothing is armed and nothing lies there, until the owner reads in another way than by Look::kRing, or
// may sleep.
#ifndef SDP_VERBS_SOFTIWARP_LOCAL_LINK_H_
#define SDP_VERBS_SOFTIWARP_LOCAL_LINK_H_

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "verbs/abilities.h"
#include "verbs/softiwarp/local/memory.h"
#include "verbs/softiwarp/tcp_link.h"

namespace sdp::iwarp {

// What a doorbell is on the TCP connection. No FPDU of a start-up begins with it.
inline constexpr std::byte kDoorbell{0xff};

class LocalLink {
 public:
  LocalLink(std::shared_ptr<LocalMemory> memory, LocalEnd end);
  ~LocalLink();

  enum class Look : uint8_t {
    kRing,   // the caller sleeps next, or looks again
    kPoll,   // the caller comes again soon: leaves doorbells where they are
    kDrain,  // the caller may sleep next: takes doorbells, which would end the sleep
    kGoOn,   // kDrain, and the caller has just read something
  };
  // Like TcpLink::Read without waiting. What was written before the connection ended is read before the end.
  LinkResult Read(const TcpLink& tcp, std::span<const MutableBytes> parts, Look look);
  // For kRing or kPoll: returns false if Read() would find nothing.
  [[nodiscard]] bool WorthRead(const TcpLink& tcp, Look look) {
    return InRing() != 0 || ended_ || (look == Look::kPoll && SeesEnd(tcp));
  }
  // Like TcpLink::Write. If it takes less than all, the peer rings a doorbell when there is room, unless
  // there is some now: the caller looks (has_room()) before it sleeps. Parts that `file` holds are read into
  // the ring; kEof: the file is shorter, or cannot be read.
  LinkResult Write(const TcpLink& tcp, std::span<const iovec> parts, const UnreadPayload* file);
  [[nodiscard]] bool has_room() const { return writer_.has_room(); }
  [[nodiscard]] size_t room() const { return writer_.room(); }
  // Has the peer ring a doorbell when there is room, unless there is some now. peek() tells of it, too.
  void AwaitRoom();
  void ForgetRoom();
  // Write() of one whole in steps: RingWriter's, and SendPut(), which shows the bytes, and wakes the peer.
  [[nodiscard]] bool Reserve(size_t bytes) { return writer_.Reserve(bytes); }
  void Put(Bytes bytes) { writer_.Put(bytes); }
  LinkResult SendPut(const TcpLink& tcp);
  // Read(Look::kRing) in two steps: what is there, and the reading of it. An error is left to Read().
  [[nodiscard]] RingReader::Unread LookAtRing() const {
    return reader_.Look().value_or(RingReader::Unread{});
  }
  void CopyFromRing(const RingReader::Unread& unread, uint64_t from, MutableBytes to) const {
    reader_.Copy(unread, from, to);
  }
  // Returns the number of bytes there; UINT64_MAX after an error.
  [[nodiscard]] uint64_t InRing() const {
    const auto unread = reader_.Look();
    return unread ? unread->size : UINT64_MAX;
  }
  [[nodiscard]] std::array<Bytes, 2> FindInRing(const RingReader::Unread& unread, uint64_t from,
                                                uint64_t size) const {
    return reader_.Find(unread, from, size);
  }
  void TakeFromRing(const TcpLink& tcp, const RingReader::Unread& unread, uint64_t bytes);

  [[nodiscard]] bool unread() const { return !reader_.empty(); }
  // Returns true if no doorbell tells of bytes in the ring: they came just before the doorbell was armed. A
  // call that takes doorbells reads these bytes, too.
  [[nodiscard]] bool untold() const { return reader_.armed() && !reader_.empty(); }
  [[nodiscard]] std::shared_ptr<const verbs::Peek> peek();
  // Returns true if nothing is there that a caller should take before a sleep, of which a doorbell tells.
  [[nodiscard]] bool MaySleep();
  // See verbs::Pollable. HearByBell() and HearByFutex() need MaySleep().
  [[nodiscard]] bool HearByBell(const verbs::BellName& bell, uint64_t cookie);
  [[nodiscard]] std::optional<verbs::FutexBell> HearByFutex();
  [[nodiscard]] bool HearByLink();
  // For another process of this end: as HearByLink(), and what has come is untold().
  void LeaveBell();
  // The connection is being reset: the peer is told when it writes next.
  void Leave() { reader_.Leave(); }
  // Gives memory back that a burst of sends has used, if the ring is empty.
  void GiveBack();
  // No other program of this end will want the memory.
  void StaysHere() { memory_->CloseDescriptors(); }

  // Returns how often this end has rung for the peer.
  [[nodiscard]] uint64_t doorbells() const { return doorbells_; }
  [[nodiscard]] LocalEnd end() const { return end_; }
  [[nodiscard]] const std::shared_ptr<LocalMemory>& memory() const { return memory_; }

 private:
  class RingPeek;
  using Clock = std::chrono::steady_clock;
  // A reader that polls looks at the TCP connection so often: its end may have come without a doorbell.
  static constexpr Clock::duration kEndLook = std::chrono::milliseconds(2);

  // Reads the ring alone. Returns nothing if the ring is empty.
  std::optional<LinkResult> ReadRing(const TcpLink& tcp, std::span<const MutableBytes> parts);
  // For a reader that polls and finds nothing: returns true if the connection has ended, by a look now and
  // then.
  bool SeesEnd(const TcpLink& tcp);
  // Takes the doorbells that have come, or the end, and arms the doorbell.
  LinkResult ReadTcp(const TcpLink& tcp, Look look);
  // After a read: wakes a peer that waits for room.
  void WakeWriter(const TcpLink& tcp);
  // After a write of `bytes` bytes behind the first `before`: wakes a peer that sleeps. Returns false if no
  // peer will ever read them.
  bool Reaches(const TcpLink& tcp, uint64_t before, size_t bytes);
  // Wakes the peer, which has asked for it in that way. Returns false if the connection is gone.
  bool WakePeer(const TcpLink& tcp, ReaderState asked);
  // Returns false if the connection is gone.
  bool RingPeer(const TcpLink& tcp);

  std::shared_ptr<LocalMemory> memory_;
  std::shared_ptr<RingPeek> peek_;  // made when first needed
  const LocalEnd end_;
  RingWriter writer_;
  RingReader reader_;
  uint64_t doorbells_ = 0;
  Clock::time_point tcp_read_at_{};
  bool end_seen_ = false;  // and it is yet to be read
  // The reader has asked for a bell of either kind. If it is awake, the bell was rung, and nothing is armed:
  // while the owner looks at the ring it needs no doorbell.
  bool at_bell_ = false;
  std::optional<LinkResult> ended_;  // what the TCP connection has said at its end
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LOCAL_LINK_H_
