// A kernel RNIC's QueuePair, on libibverbs.
//
// What leaves is copied into a ring of registered memory: the application's own is neither registered nor
// referenced once Flush or DetachBorrowed returned. What does not fit the ring or the send queue waits here,
// and leaves when completions make room: event_fd() becomes readable then, so interest().write is never set.
// Receive completions lend the posted buffer itself; small messages are copied out of it when many are lent.
#ifndef SDP_VERBS_IBV_IBV_QP_H_
#define SDP_VERBS_IBV_IBV_QP_H_

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "verbs/ibv/ibv_resources.h"
#include "verbs/ibv/kept_sends.h"
#include "verbs/ibv/receive_pool.h"
#include "verbs/ibv/send_chain.h"
#include "verbs/ibv/send_ring.h"
#include "verbs/rnic.h"

namespace sdp::ibv {

class IbvQp final : public verbs::QueuePair, public verbs::Pollable, public verbs::DeviceLink {
 public:
  // `resources`: with a queue pair, not yet connected.
  IbvQp(std::unique_ptr<Resources> resources, const verbs::QpOptions& options);
  ~IbvQp() override;

  // Buffers for both directions; the receive buffers are posted. False: failure() of the resources.
  bool Prepare();
  // The connection stands, with what the peers agreed on.
  void Establish(uint16_t ird, uint16_t ord);
  // Connecting side, after Establish: an RDMA Write without content, since the peer may have to wait for our
  // first FPDU before it sends (RFC 5044, 7.1.2, 4).
  void OpenPeer();
  // And an RDMA Read without content, which the peer's RNIC answers by itself: the proof that it has taken
  // the connection over. False: ORD leaves no room for one. Its answer shows in has_answer() behind
  // ReadLink().
  [[nodiscard]] bool AskPeer();
  [[nodiscard]] bool has_answer() const { return answered_; }
  void SetRoundTrip(Duration duration);
  [[nodiscard]] Resources& resources() { return *resources_; }
  // A message has come in, or the end.
  [[nodiscard]] bool HasReceived();

  verbs::PostResult PostSend(const verbs::SendWork& work) override;
  verbs::PostResult PostRdmaWrite(const verbs::RdmaWriteWork& work) override;
  verbs::PostResult PostRdmaRead(const verbs::RdmaReadWork& work) override;
  void PostReceives(uint32_t count) override;
  bool SetReceiveBufferSize(uint32_t bytes, uint32_t count) override {
    return receives_.SetSize(bytes, count);
  }
  void Release(verbs::ReceiveToken token) override;
  [[nodiscard]] uint32_t ReceiveCost(uint32_t length) const override;

  std::optional<verbs::MemoryRegion> Register(MutableBytes memory, verbs::Access access) override;
  void Deregister(STag stag) override;
  [[nodiscard]] bool IsRegistered(STag stag) const override { return regions_.contains(stag); }

  bool Flush() override;
  void DetachBorrowed() override;
  void NotePeerHas(uint64_t missing) override;
  verbs::ReadStatus ReadLink() override;
  verbs::ReadStatus ReadForSolicited() override;
  verbs::ReadStatus PollLink() override;
  bool PollCompletion(verbs::Completion* out) override;
  [[nodiscard]] bool has_untold() const override {
    return !ready_.empty() || armed_for_solicited_ || (broken_ && !ended_);
  }
  [[nodiscard]] bool may_sleep() const override;

  [[nodiscard]] int event_fd() const override { return resources_->event_fd; }
  void SetEventFd(int) override {}
  void Names(sockaddr_storage* local, sockaddr_storage* peer) const override;
  [[nodiscard]] verbs::Interest interest() const override { return {.read = !ended_, .write = false}; }
  [[nodiscard]] uint64_t unsent_bytes() const override { return unsent_; }
  [[nodiscard]] bool AllTaken() override;
  void Disconnect() override;
  void Abort() override;
  [[nodiscard]] const verbs::LinkCause& cause() const override { return cause_; }
  [[nodiscard]] bool send_failed() const override { return broken_ || ended_; }
  [[nodiscard]] uint16_t ird() const override { return ird_; }
  [[nodiscard]] uint16_t ord() const override { return ord_; }
  void SetOrd(uint16_t ord) override;
  [[nodiscard]] Duration round_trip() const override { return round_trip_; }
  [[nodiscard]] const verbs::QpCounters& counters() const override { return counters_; }
  [[nodiscard]] std::unique_ptr<verbs::QueuePair> Leave() override;  // ibv_left_qp.cc
  [[nodiscard]] const char* rnic_name() const override { return name_.c_str(); }
  [[nodiscard]] const char* link_name() const override { return "rdma"; }

 private:
  // Mark the work of RDMA Reads, whose completions come in an order of their own, and that of AskPeer.
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
  // One that waits for room.
  struct Waiting {
    Outgoing work;
    std::vector<Bytes> parts;     // still to be taken, borrowed
    std::vector<std::byte> kept;  // what parts[0] points to: the header, or all once detached
    uint64_t size;                // of all parts
  };
  // A Send or RDMA Write that the device has. A long RDMA Write is several, of which the last may be wanted.
  struct Posted {
    WorkId id;
    verbs::Opcode opcode;
    bool wanted;  // the owner wants its completion
    uint64_t ring_mark;
    bool kept = false;                             // its bytes are not in the ring
    std::unique_ptr<RegisteredMemory> own_memory;  // of a message too long for the ring
  };
  // Registered memory for the bytes of one work request.
  struct Place {
    std::byte* data = nullptr;
    uint32_t key = 0;
    uint64_t ring_mark = 0;
    bool kept = false;
    std::unique_ptr<RegisteredMemory> own_memory;
  };
  // A received message of at most kCopyLimit bytes, copied out of its buffer.
  static constexpr uint32_t kCopyLimit = 2048;
  using Copy = std::array<std::byte, kCopyLimit>;

  // ibv_qp.cc
  void Advance();
  void TakeWaiting();
  void AskForRoom();
  [[nodiscard]] bool WaitsForSends() const;
  void AskForLast();
  void MaybeDisconnect();
  void PushWork(WorkId id, verbs::Opcode opcode, verbs::Status status, uint32_t length = 0);
  // ibv_qp_post.cc
  verbs::PostResult Wait(Waiting waiting);
  bool PostPiece(Waiting& waiting, bool* done);
  bool TakePlace(const Outgoing& work, size_t size, Place* place);
  bool TryPlace(const Outgoing& work, size_t size, Place* place);
  bool TryKeep(const Outgoing& work, size_t size, Place* place);
  static void GiveUpKept();
  void PostPlaced(const Outgoing& work, Place place, size_t size);
  void PostEmptyWrite(bool signaled);
  void SubmitWork(ibv_send_wr& request, const ibv_sge& piece, Posted posted);
  void Chain(const ibv_send_wr& request, const ibv_sge& piece);
  void PostChain();
  void HandleRefusal(int error);
  // Places of the send queue that are taken.
  [[nodiscard]] size_t InDevice() const {
    return posted_.size() + reads_posted_.size() + (asked_ && !answered_ ? 1 : 0);
  }
  void StartReads();
  // ibv_qp_read.cc
  bool PollSends();
  bool PollReceives();
  void HandleSendCompletion(const ibv_wc& wc);
  void HandleReceiveCompletion(const ibv_wc& wc);
  void HandleFailure(const ibv_wc& wc, const char* what);
  // All that event_fd() may be readable for. True: one concerned the connection itself, not its completions.
  bool TakeEvents();
  void TakeQueueEvents();
  // Of them those of the connection manager and the device, whose descriptors are readable until then.
  bool TakeConnectionEvents(const Resources::Woken& woken);
  bool TakeCompleted();
  verbs::ReadStatus GoOn(bool progress);
  void TakeAll();
  void FailByDevice();
  void StopDevice();
  void EndBroken();
  enum class Awaited : uint8_t { kAll, kSolicited };
  verbs::ReadStatus Read(Awaited awaited);
  void ArmReceives(Awaited awaited);
  void ArmSends();
  void HandleCmEvent(const rdma_cm_event& event);
  void End(verbs::LinkEnd end, std::string text);
  void FlushWork();

  std::unique_ptr<Resources> resources_;
  const Api& api_;
  const verbs::QpOptions options_;
  const std::string name_;
  ReceivePool receives_;
  SendRing ring_;
  // Not before there were some long Sends.
  std::unique_ptr<RegisteredMemory> kept_memory_;
  std::optional<KeptSends> kept_;
  uint32_t long_sends_ = 0;
  SendChain chain_;
  uint16_t ird_ = 0;
  uint16_t ord_ = 0;

  std::deque<Waiting> waiting_;
  uint64_t waiting_sends_ = 0;  // of these
  uint64_t unsent_ = 0;
  std::deque<Posted> posted_;
  uint64_t posted_base_ = 0;  // the sequence number of posted_.front()
  uint32_t wanted_ = 0;       // of these, those whose completion the owner wants
  uint32_t unsignaled_ = 0;   // works since the last that asks for a completion
  uint64_t unsignaled_bytes_ = 0;
  std::deque<verbs::RdmaReadWork> reads_waiting_;
  std::deque<verbs::RdmaReadWork> reads_posted_;

  std::unordered_map<STag, ibv_mr*> regions_;
  std::deque<verbs::Completion> ready_;
  std::deque<Copy> copies_;
  std::vector<uint32_t> free_copies_;  // indices of copies_
  uint32_t idle_polls_ = 0;
  // Armed, or its event has come and was not taken yet.
  bool sends_armed_ = false;
  bool receives_armed_ = false;
  bool armed_for_solicited_ = false;  // receives are, for no more than that; or for all by an earlier wish
  bool event_due_ = false;  // one of them was armed when its completions were taken: its event is there, or
                            // will be in a moment
  bool asked_ = false;      // AskPeer
  bool answered_ = false;
  Duration round_trip_ = Duration::zero();
  bool last_awaited_ = false;  // AllTaken
  bool disconnect_wanted_ = false;
  bool disconnected_ = false;  // we have said so
  bool flushed_ = false;       // the device has given work back undone: the queue pair is in error
  bool broken_ = false;        // the device has refused work: the next read ends it
  bool ended_ = false;
  verbs::LinkCause cause_;
  verbs::LinkCause failure_;  // of a work request: what the end will be put down to
  verbs::QpCounters counters_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_QP_H_
