// The sending half of one IbvQp: the work requests that its owner posts, on their way to the device.
//
// Bytes are copied into registered memory as soon as there is room for them (send_places.h); what has no room
// waits here, borrowed, in the order posted. Requests go to the device in chains, at the latest with Flush().
// RDMA Reads wait for ORD and for the Sends before them.
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
  // All of them outlive this. `resources` has a queue pair. `received` is emptied when the device refuses
  // work, to find out whether the connection has ended.
  Sends(Resources& resources, Arming& arming, Ending& ending, Regions& regions, Completed& completed,
        Received& received, verbs::QpCounters& counters);

  // Returns false if there is no memory, and sets errno.
  bool Make(size_t ring_size) { return places_.Make(ring_size); }

  // As QueuePair's functions of these names.
  verbs::PostResult PostSend(const verbs::SendWork& work);
  verbs::PostResult PostRdmaWrite(const verbs::RdmaWriteWork& work);
  verbs::PostResult PostRdmaRead(const verbs::RdmaReadWork& work);
  bool Flush();
  void DetachBorrowed();
  [[nodiscard]] uint64_t unsent_bytes() const { return unsent_; }
  // As DeviceLink's.
  [[nodiscard]] bool AllTaken();
  void NotePeerHas(uint64_t missing) { places_.NotePeerHas(missing, waiting_sends_); }

  [[nodiscard]] uint16_t ord() const { return ord_; }
  void SetOrd(uint16_t ord) { ord_ = ord; }

  // Set-up, see IbvQp.
  void OpenPeer();
  [[nodiscard]] bool AskPeer();
  [[nodiscard]] bool has_answer() const { return answered_; }

  // Takes all completions from the sends' queue; returns whether there were any.
  bool Poll();
  // The owner, or work that waits here, needs a completion of the device's.
  [[nodiscard]] bool awaits_completion() const;
  // Something waits for room, for an RDMA Read to end, or for the device to be done.
  [[nodiscard]] bool has_waiting() const { return !waiting_.empty() || !reads_waiting_.empty(); }

  // End the connection (ending.h), and complete all outstanding work with kFlushed.
  void Abort();
  void EndByFailure();
  void FlushWork();

 private:
  // These bits of a work request's id mark RDMA Reads, whose completions come in an order of their own, and
  // the one of AskPeer.
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
    std::vector<std::byte> kept;  // what parts[0] points to: the header, or all once detached
    uint64_t size;                // of all parts
  };
  // A Send or RDMA Write that the device has. A long RDMA Write is several, of which only the last may be
  // wanted.
  struct Posted {
    WorkId id;
    verbs::Opcode opcode;
    bool wanted;  // the owner wants its completion
    uint64_t ring_mark;
    bool kept = false;                             // its bytes are not in the ring
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

  // Hands on whatever has room now.
  void Advance();
  void TakeWaiting();
  void AskForRoom();
  void AskForLast();
  void MaybeDisconnect();
  void HandleCompletion(const ibv_wc& wc);
  void HandleReadCompletion(const ibv_wc& wc);
  // Places of the send queue that are taken.
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
  uint64_t waiting_sends_ = 0;  // of these
  uint64_t unsent_ = 0;
  std::deque<Posted> posted_;
  uint64_t posted_base_ = 0;  // the sequence number of posted_.front()
  uint32_t wanted_ = 0;       // of posted_, those whose completion the owner wants
  uint32_t unsignaled_ = 0;   // works since the last that asks for a completion
  uint64_t unsignaled_bytes_ = 0;
  std::deque<verbs::RdmaReadWork> reads_waiting_;
  std::deque<verbs::RdmaReadWork> reads_posted_;
  bool asked_ = false;  // AskPeer
  bool answered_ = false;
  bool last_awaited_ = false;  // AllTaken
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_SENDS_H_
