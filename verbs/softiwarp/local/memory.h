// The memory of one local link: a sealed memfd with two rings, mapped by a process of each end.
//
// The file never changes its size, so a peer cannot make an access to it fail (SIGBUS). Only pages that were
// used take memory. The file's descriptor is kept, hidden from the program, because another program of this
// end gets the memory by it (exec, a message).
#ifndef SDP_VERBS_SOFTIWARP_LOCAL_MEMORY_H_
#define SDP_VERBS_SOFTIWARP_LOCAL_MEMORY_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/base/types.h"
#include "verbs/descriptor_calls.h"
#include "verbs/softiwarp/local/ring.h"

namespace sdp::iwarp {

// Which end of the TCP connection this process is.
enum class LocalEnd : uint8_t { kConnecting, kAccepting };

// Returns true if `fd`, the lowest free number just now, is in the last quarter of what RLIMIT_NOFILE allows.
// The program needs the rest for itself.
bool NearLimit(int fd);

class LocalMemory {
 public:
  // Bytes of each ring.
  static constexpr uint32_t kRingSize = 512 * 1024;
  // The file: the controls and the smallest windows in the first page, then the ring of the connecting end,
  // then the other. So an idle connection takes one page.
  static constexpr size_t kSize = 4096 + 2 * size_t{kRingSize};

  // What tells one memory from all others: random bytes in the memory itself. All zero: the accepting end is
  // a library that writes none.
  using Id = std::array<std::byte, 8>;
  // The accepting end's address and port, as the connecting end sees them.
  using Peer = std::array<std::byte, 18>;

  // Returns new memory, or nullptr and the reason in *why: no descriptor, no memory, or a limit of file size
  // (RLIMIT_FSIZE), which would end the process.
  static std::shared_ptr<LocalMemory> Make(std::string* why);
  // Returns memory whose descriptor came from another process, perhaps an enemy's; takes `fd` over. Returns
  // nullptr and the reason unless `fd` is a memfd of kSize bytes with the seals of Make.
  static std::shared_ptr<LocalMemory> Take(int fd, std::string* why);
  // Like Take, for the memory of a connection that another process of this end had: the connection is lost
  // without it, so the last free descriptor will do.
  static std::shared_ptr<LocalMemory> TakeOver(int fd, std::string* why) {
    return Take(fd, Need::kLast, why);
  }
  ~LocalMemory();
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;

  // --- for the next connection of the same two processes (kept_memories.h)
  [[nodiscard]] const Id& id() const { return id_; }
  // Returns all zero if this is the accepting end.
  [[nodiscard]] const Peer& peer() const { return peer_; }
  void set_peer(const Peer& peer) { peer_ = peer; }
  // Notes that the memory may be kept: this process alone has this end of it. Reads the id.
  void MayBeKept();
  // The memory is not kept: another process of this end may have it, or the peer has it no more.
  void LetGo() {
    kept_since_fork_ = 0;
    CloseDescriptor(&socket_);
  }
  // The peer was offered the memory. It may not be done with it yet, so a refusal counts from the second on.
  void NoteOffer(bool taken) {
    if (std::exchange(refused_, !taken) && !taken) LetGo();
  }
  // Connecting end: the Unix socket of the offer that was accepted, and its name, for the next offer.
  // KeepSocket() takes `fd` over.
  using Name = std::array<std::byte, 16>;
  void KeepSocket(int fd, const Name& name);
  [[nodiscard]] int socket() const { return socket_.load(std::memory_order_relaxed); }
  [[nodiscard]] const Name& socket_name() const { return socket_name_; }
  // Returns true if the memory may be kept: no fork has come since MayBeKept().
  [[nodiscard]] bool may_be_kept() const { return kept_since_fork_ == forks.load(std::memory_order_relaxed); }
  static constinit inline std::atomic<uint32_t> forks{1};
  // What becomes of memory at its end.
  static std::atomic<void (*)(LocalMemory*)> at_end;
  static std::shared_ptr<LocalMemory> Own(LocalMemory* memory) {
    if (memory == nullptr) return nullptr;
    return {memory, [](LocalMemory* ended) { at_end.load(std::memory_order_relaxed)(ended); }};
  }
  // Returns how many bytes the rings have carried, as the peer would have it.
  [[nodiscard]] uint64_t carried() const;
  // Makes both rings new. Neither end may be using them.
  void Renew();
  // An earlier connection has used the memory.
  void NoteUsed() { used_ = true; }

  // Return what this end writes to, and what it reads from.
  [[nodiscard]] RingWriter Writer(LocalEnd end);
  [[nodiscard]] RingReader Reader(LocalEnd end);
  // Gives the pages of `unused` back to the system. They lie in this memory, and nothing in them is needed.
  void GiveBack(MutableBytes unused);

  // No other program will want the memory, nor will the next connection: gives up its descriptors.
  void CloseDescriptors();
  // Returns the memory's descriptor, or -1, for another program of this end. The memory owns it.
  [[nodiscard]] int fd() const { return fd_.load(std::memory_order_relaxed); }

 private:
  using Need = verbs::DescriptorCalls::Need;

  explicit LocalMemory(std::byte* base) : base_(base) {}
  static std::shared_ptr<LocalMemory> Take(int fd, Need need, std::string* why);
  static std::shared_ptr<LocalMemory> Map(int fd, Need need, std::string* why);
  static void CloseDescriptor(std::atomic<int>* slot);
  [[nodiscard]] RingControl* control(LocalEnd writer) const;
  [[nodiscard]] RingMemory ring(LocalEnd writer) const;
  // Returns where the id is in the memory.
  [[nodiscard]] std::byte* id_at() { return base_ + 2 * sizeof(RingControl); }

  std::byte* const base_;
  Id id_{};
  Peer peer_{};
  uint32_t kept_since_fork_ = 0;  // `forks` then; 0: may not be kept
  bool refused_ = false;
  bool used_ = false;
  std::atomic<int> fd_{-1};
  std::atomic<int> socket_{-1};
  Name socket_name_{};
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LOCAL_MEMORY_H_
