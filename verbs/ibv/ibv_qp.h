// A kernel RNIC's QueuePair, on libibverbs. It joins the parts that send (sends.h), receive (received.h),
// read (link_reader.h) and end (ending.h) to one queue pair of the device's.
//
// Outgoing bytes are copied into registered memory. The application's memory is neither registered nor
// referenced once Flush or DetachBorrowed has returned. Work without room waits in Sends, and leaves when
// completions make room. event_fd() becomes readable then, so interest().write is never set. Receive
// completions lend the posted buffer itself.
#ifndef SDP_VERBS_IBV_IBV_QP_H_
#define SDP_VERBS_IBV_IBV_QP_H_

#include <memory>
#include <optional>
#include <string>

#include "verbs/ibv/arming.h"
#include "verbs/ibv/completed.h"
#include "verbs/ibv/ending.h"
#include "verbs/ibv/ibv_link.h"
#include "verbs/ibv/ibv_resources.h"
#include "verbs/ibv/link_reader.h"
#include "verbs/ibv/received.h"
#include "verbs/ibv/regions.h"
#include "verbs/ibv/sends.h"
#include "verbs/rnic.h"

namespace sdp::ibv {

// The parts of one IbvQp, in an order in which each part uses those before it.
struct IbvParts {
  IbvParts(std::unique_ptr<Resources> the_resources, const verbs::QpOptions& the_options);

  std::unique_ptr<Resources> resources_;
  const verbs::QpOptions options_;
  const std::string name_;  // the device's
  verbs::LinkFacts facts_;
  verbs::QpCounters counters_;
  Arming arming_;
  Ending ending_;
  Regions regions_;
  Completed completed_;
  Received received_;
  Sends sends_;
  LinkReader reader_;
  IbvLink link_;
};

class IbvQp final : private IbvParts, public verbs::QueuePair {
 public:
  // `resources` has a queue pair that is not yet connected.
  IbvQp(std::unique_ptr<Resources> resources, const verbs::QpOptions& options);
  ~IbvQp() override;

  // --- Set-up, for IbvConnector
  // Makes the buffers of both directions and posts the receive buffers. Returns false if memory is lacking;
  // then resources().failure() has the reason.
  bool Prepare();
  // Call it when the connection is established, with the limits that the peers agreed on.
  void Establish(uint16_t ird, uint16_t ord);
  // Connecting side, after Establish: sends an RDMA Write without content, because the peer may have to wait
  // for our first FPDU before it sends (RFC 5044, 7.1.2, 4).
  void OpenPeer() { sends_.OpenPeer(); }
  // Connecting side: sends an RDMA Read without content. The peer's RNIC answers it by itself, which proves
  // that it has taken the connection over. After a ReadLink() has_answer() reports the answer. Returns false
  // if ORD leaves no room for the read.
  [[nodiscard]] bool AskPeer() { return sends_.AskPeer(); }
  [[nodiscard]] bool has_answer() const { return sends_.has_answer(); }
  // Polls the receives' queue. Returns true if a completion is waiting for the owner.
  [[nodiscard]] bool HasReceived();
  [[nodiscard]] Resources& resources() { return *resources_; }
  [[nodiscard]] IbvLink& link() { return link_; }

  verbs::PostResult PostSend(const verbs::SendWork& work) override { return sends_.PostSend(work); }
  verbs::PostResult PostRdmaWrite(const verbs::RdmaWriteWork& work) override {
    return sends_.PostRdmaWrite(work);
  }
  verbs::PostResult PostRdmaRead(const verbs::RdmaReadWork& work) override {
    return sends_.PostRdmaRead(work);
  }
  void PostReceives(uint32_t count) override;
  bool SetReceiveBufferSize(uint32_t bytes, uint32_t count) override {
    return received_.SetBufferSize(bytes, count);
  }
  void Release(verbs::ReceiveToken token) override {
    if (!received_.Release(token)) PostReceives(0);
  }
  [[nodiscard]] uint32_t ReceiveCost(uint32_t length) const override { return received_.Cost(length); }

  std::optional<verbs::MemoryRegion> Register(MutableBytes memory, verbs::Access access) override {
    return regions_.Register(memory, access);
  }
  void Deregister(STag stag) override { regions_.Deregister(stag); }
  [[nodiscard]] bool IsRegistered(STag stag) const override { return regions_.Find(stag) != nullptr; }

  bool Flush() override { return sends_.Flush(); }
  void DetachBorrowed() override { sends_.DetachBorrowed(); }
  verbs::ReadStatus ReadLink() override { return reader_.ReadLink(); }
  bool PollCompletion(verbs::Completion* out) override { return completed_.Poll(out); }

  [[nodiscard]] int event_fd() const override { return resources_->event_fd; }
  void SetEventFd(int) override {}
  [[nodiscard]] verbs::Interest interest() const override {
    return {.read = !ending_.ended(), .write = false};
  }
  [[nodiscard]] uint64_t unsent_bytes() const override { return sends_.unsent_bytes(); }
  void Disconnect() override;
  void Abort() override { sends_.Abort(); }
  void SetOrd(uint16_t ord) override;
  [[nodiscard]] const verbs::QpCounters& counters() const override { return counters_; }
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_QP_H_
