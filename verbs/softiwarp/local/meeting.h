// How the two ends of a TCP connection within one host come to share memory, without a round trip more than
// the MPA start-up has.
//
//   connecting end                                         accepting end
//   binds a Unix socket to an abstract name of its own
//   ── MPA Request{Hello, LocalOffer} ─────────────────>   makes the memory
//   <──────────────── datagram to that name{secret, memory}
//   <────────────────────────────────── MPA Reply ───────
//   takes the datagram, maps the memory
//   ── a doorbell; the RTR is in the memory ───────────>   the link is local
//   or: ── the RTR, on TCP ────────────────────────────>   the link is TCP
//
// Abstract names belong to a network namespace, which is what "one host" means here. /proc/net/unix shows
// them, so a stranger may write to the name; only a reader of this very TCP connection knows the secret. Both
// ends compare the connection's addresses as each sees them: behind a relay they differ.
//
// Two processes that have had a connection before may have its memory again (kept_memories.h). The secret
// then begins with the memory's id, which a third process may know, and goes on with random bytes. If the
// accepting end has kept that memory, its Reply says so, and the link is local: no datagram and no RTR
// follow.
//
// The accepting end may refuse, or be a library that does not know the offer: then there is no datagram, and
// the link stays TCP. It stays TCP as well if the connecting end cannot map the memory.
#ifndef SDP_VERBS_SOFTIWARP_LOCAL_MEETING_H_
#define SDP_VERBS_SOFTIWARP_LOCAL_MEETING_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/types.h"
#include "verbs/softiwarp/local/memory.h"

namespace sdp::iwarp {

// The names of a TCP connection: IPv6 addresses, IPv4 ones as mapped; ports in host order.
struct LinkNames {
  std::array<std::byte, 16> local{};
  std::array<std::byte, 16> peer{};
  uint16_t local_port = 0;
  uint16_t peer_port = 0;

  // Returns the names of the connection of `fd`, or nothing if it has none.
  static std::optional<LinkNames> Of(int fd);
  // Returns true if the connection does not leave this host, as far as its addresses tell: one of them is a
  // loopback address, or both are the same.
  [[nodiscard]] bool within_host() const;
  // Returns the names as the other end sees them.
  [[nodiscard]] LinkNames Swapped() const;
  friend bool operator==(const LinkNames&, const LinkNames&) = default;
};

// What the connecting end offers. It is the last part of the MPA Request's private data.
struct LocalOffer {
  static constexpr size_t kSize = 8 + 16 + 16 + 36;
  std::array<std::byte, 16> name{};  // the Unix socket's
  // Shows that a datagram comes from the reader of the offer. The first eight bytes are random, or the id of
  // memory that the connecting end has kept; the others are random.
  std::array<std::byte, 16> secret{};
  LinkNames names;  // as the connecting end sees them

  // Returns the offer at the end of `private_data`, or nothing.
  static std::optional<LocalOffer> Parse(Bytes private_data);
  [[nodiscard]] std::array<std::byte, kSize> Serialize() const;
  friend bool operator==(const LocalOffer&, const LocalOffer&) = default;
};

// The last part of the MPA Reply's private data, if the accepting end has kept the offered memory.
inline constexpr std::array<char, 8> kSameMemory = {'S', 'D', 'P', 'a', 'g', 'a', 'i', 'n'};

// The connecting end's part. Owns the Unix socket, unless the memory that it offers has one.
class LocalMeeting {
 public:
  // Returns nullptr if the connection of `fd` leaves the host, or if there is no socket or name to be had.
  static std::unique_ptr<LocalMeeting> Open(int fd);
  ~LocalMeeting();
  LocalMeeting(const LocalMeeting&) = delete;
  LocalMeeting& operator=(const LocalMeeting&) = delete;

  [[nodiscard]] const LocalOffer& offer() const { return offer_; }
  enum class Outcome : uint8_t {
    kRefused,  // the peer has sent no memory: the link is TCP
    kShared,
    kFailed,  // the peer has sent memory that this process cannot take
  };
  // Call it once the MPA Reply is here, without kSameMemory. Never blocks.
  Outcome Take(std::shared_ptr<LocalMemory>* memory, std::string* why);
  // With kSameMemory. Returns the memory that was offered; nullptr if none was, and the peer is wrong.
  std::shared_ptr<LocalMemory> TakeOffered();

 private:
  LocalMeeting(int socket, const LocalOffer& offer, std::shared_ptr<LocalMemory> kept)
      : own_socket_(socket), offer_(offer), kept_(std::move(kept)) {}

  int own_socket_;  // -1: kept_ has one
  const LocalOffer offer_;
  std::shared_ptr<LocalMemory> kept_;  // whose id was offered
};

// The accepting end's part: makes memory and sends it to the connecting end, which has sent `offer` over the
// connection of `fd`. Sets *same if the connecting end has it already, and is to be told by kSameMemory.
// Returns nullptr and the reason if the link stays TCP. Never blocks.
std::shared_ptr<LocalMemory> AnswerOffer(const LocalOffer& offer, int fd, bool* same, std::string* why);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LOCAL_MEETING_H_
