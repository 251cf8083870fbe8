// The sending half of one IbvQp: the work requests that its owner posts, on their way to the device.
//
// Bytes are copied into registered memory as soon as it has room (send_places.h). Work without room waits
// here, borrowed, in the order posted. Requests go to the device in chains; Flush() posts the last chain.
// RDMA Reads wait for ORD and for the Sends before them. The lock of the connection's owner guards this
// object.
#ifndef SDP_VERBS_IBV_SENDS_H_
#define SDP_VERBS_IBV_SENDS_H_

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "verbs/ibv/arming.h"
#include "verbs/ibv/completed.h"
#include "verbs/ibv/ending.h"
#include "verbs/ibv/received.h"
#include "verbs/ibv/regions.h"
#include "verbs/ibv/send_chain.h"
#include "verbs/ibv/send_places.h"

namespace sdp::ibv {

class Sends {
 public:
  // All references outlive this. `resources` has a queue pair. When the device refuses work, Sends polls all
  // of `received` to find out whether the connection has ended.
  Sends(Resources& resources, Arming& arming, Ending& ending, Regions& regions, Completed& completed,
        Received& received, verbs::QpCounters& counters);

  // Returns false if memory is lacking, and sets errno.
  bool Make(size_t ring_size) { return places_.Make(ring_size); }

  // Like QueuePair's functions of these names.
  verbs::PostResult PostSend(const verbs::SendWork& work);
  verbs::PostResult PostRdmaWrite(const verbs::RdmaWriteWork& work);
  verbs::PostResult PostRdmaRead(const verbs::RdmaReadWork& work);
  bool Flush();
  void DetachBorrowed();
  [[nodiscard]] uint64_t unsent_bytes() const { return unsent_; }
  // Like DeviceLink's functions of these names.
  [[nodiscard]] bool AllTaken();
  void NotePeerHas(uint64_t missing) { places_.NotePeerHas(missing, waiting_sends_); }

  void SetOrd(uint16_t ord) { ord_ = ord; }

  // For set-up, see IbvQp.
  void OpenPeer();
  [[nodiscard]] bool AskPeer();
  [[nodiscard]] bool has_answer() const { return answered_; }

  // Takes all completions from the sends' queue; returns whether there were any.
  bool Poll();
  // Returns true if the owner, or work that waits here, needs a completion of the device's.
  [[nodiscard]] bool awaits_completion() const;
  // Returns true if work waits for room, for an RDMA Read to end, or for the device.
  [[nodiscard]] bool has_waiting() const { return !waiting_.empty() || !reads_waiting_.empty(); }

  // End the connection (ending.h), and complete all outstanding work with kFlushed.
  void Abort();
  void EndByFailure();
  void FlushWork();

 private:
  // Bits of a work request's id. They mark RDMA Reads, whose completions come in an order of their own, and
  // the request of AskPeer.
  static constexpr uint64_t kReadBit = uint64_t{1} << 63;
  static constexpr uint64_t kAskBit = uint64_t{1} << 62;

  // A Send or RDMA Write without its bytes.
  struct Outgoing {
    WorkId id;
    verbs::Opcode opcode;
    bool signaled;
    bool solicited;
    std::optional<STag> invalidate;
    STag remote_stag;
    uint64_t remote_to;
  };
  // A Send or RDMA Write that waits for room.
  struct Waiting {
    Outgoing work;
    std::vector<Bytes> parts;     // still to be taken, borrowed
    std::vector<std::byte> kept;  // what parts[0] refers to: the header, or all bytes once detached
    uint64_t size;                // of all parts
  };
  // A Send or RDMA Write that the device has. A long RDMA Write is several requests; the owner may want the
  // completion of the last one only.
  struct Posted {
    WorkId id;
    verbs::Opcode opcode;
    bool wanted;  // the owner wants its completion
    uint64_t ring_mark;
    bool kept = false;                             // its bytes are in the second ring (send_places.h)
    std::unique_ptr<RegisteredMemory> own_memory;  // of a message too long for the ring
  };

  verbs::PostResult Wait(Waiting waiting);
  bool PostPiece(Waiting& waiting, bool* done);
  bool TakePlace(const Outgoing& work, size_t size, SendPlace* place);
  bool TryPlace(const Outgoing& work, size_t size, SendPlace* place);
  void PostPlaced(const Outgoing& work, SendPlace place, size_t size);
  void PostEmptyWrite(bool signaled);
  void SubmitWork(ibv_send_wr& request, const ibv_sge& piece, Posted posted);
  void Chain(const ibv_send_wr& request, const ibv_sge& piece);
  void PostChain();
  void HandleRefusal(int error);
  void StartReads();

  // Posts all work that has room now.
  void Advance();
  void TakeWaiting();
  void AskForRoom();
  void AskForLast();
  void MaybeDisconnect();
  void HandleCompletion(const ibv_wc& wc);
  void HandleReadCompletion(const ibv_wc& wc);
  // Returns how many places of the send queue are taken.
  [[nodiscard]] size_t InDevice() const {
    return posted_.size() + reads_posted_.size() + (asked_ && !answered_ ? 1 : 0);
  }

  Resources& resources_;
  Arming& arming_;
  Ending& ending_;
  Regions& regions_;
  Completed& completed_;
  Received& received_;
  verbs::QpCounters& counters_;
  SendPlaces places_;
  SendChain chain_;
  uint16_t ord_ = 0;

  std::deque<Waiting> waiting_;
  uint64_t waiting_sends_ = 0;  // Sends among waiting_
  uint64_t unsent_ = 0;
  std::deque<Posted> posted_;
  uint64_t posted_base_ = 0;  // the sequence number of posted_.front()
  uint32_t wanted_ = 0;       // entries of posted_ whose completion the owner wants
  uint32_t unsignaled_ = 0;   // requests since the last one that asks for a completion
  uint64_t unsignaled_bytes_ = 0;
  std::deque<verbs::RdmaReadWork> reads_waiting_;
  std::deque<verbs::RdmaReadWork> reads_posted_;
  bool asked_ = false;  // AskPeer
  bool answered_ = false;
  bool last_awaited_ = false;  // AllTaken
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_SENDS_H_
