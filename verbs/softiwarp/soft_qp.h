// The embedded RNIC's QueuePair. It joins the send queue and the receive stream to a TCP socket, and turns
// their events into completions. The protocol itself is in proto/. The owner's lock guards it (verbs/rnic.h).
#ifndef SDP_VERBS_SOFTIWARP_SOFT_QP_H_
#define SDP_VERBS_SOFTIWARP_SOFT_QP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "verbs/rnic.h"
#include "verbs/softiwarp/direct_send_ability.h"
#include "verbs/softiwarp/file_ability.h"
#include "verbs/softiwarp/local_abilities.h"
#include "verbs/softiwarp/portable_ability.h"
#include "verbs/softiwarp/proto/mpa_negotiation.h"
#include "verbs/softiwarp/proto/read_queue.h"
#include "verbs/softiwarp/proto/receive_buffers.h"
#include "verbs/softiwarp/proto/receive_stream.h"
#include "verbs/softiwarp/proto/send_queue.h"
#include "verbs/softiwarp/proto/stag_table.h"
#include "verbs/softiwarp/ready_queue.h"
#include "verbs/softiwarp/tcp_link.h"

namespace sdp::iwarp {

class SoftQp final : public verbs::QueuePair, public verbs::MovableRegions {
 public:
  // The initiator of a peer-to-peer set-up posts its RTR here, in the constructor. With `memory` the link is
  // a local one, and the queue pair is Pollable and Direct. With `memory` and no RTR agreed on, both ends
  // know the memory, and either may send first. `why_not_local`: see verbs::LinkFacts.
  SoftQp(int fd, const MpaAgreement& agreement, const verbs::QpOptions& options, uint32_t max_ulpdu,
         std::shared_ptr<LocalMemory> memory = nullptr, std::string why_not_local = {});
  // Returns a queue pair in the frozen state, or nullptr if these bytes are no frozen queue pair. `memory`:
  // what MemoryOf() has returned for the frozen one.
  static std::unique_ptr<SoftQp> Thaw(int fd, Bytes frozen, std::shared_ptr<LocalMemory> memory);
  [[nodiscard]] std::shared_ptr<LocalMemory> memory() const {
    return local_ ? local_->link().memory() : nullptr;
  }

  verbs::PostResult PostSend(const verbs::SendWork& work) override;
  verbs::PostResult PostRdmaWrite(const verbs::RdmaWriteWork& work) override;
  verbs::PostResult PostRdmaRead(const verbs::RdmaReadWork& work) override;
  void PostReceives(uint32_t count) override { buffers_.Post(count); }
  bool SetReceiveBufferSize(uint32_t bytes, uint32_t /*count*/) override {
    buffers_.SetSize(bytes);  // buffers take no memory before they have content
    return true;
  }
  void Release(verbs::ReceiveToken token) override { ready_.Release(token, stream_); }
  [[nodiscard]] uint32_t ReceiveCost(uint32_t length) const override;

  std::optional<verbs::MemoryRegion> Register(MutableBytes memory, verbs::Access access) override;
  void Deregister(STag stag) override;
  bool MoveRegion(STag stag, MutableBytes memory) override;
  [[nodiscard]] bool IsRegistered(STag stag) const override { return stags_.Contains(stag); }

  bool Flush() override;
  void DetachBorrowed() override;
  verbs::ReadStatus ReadLink() override;
  verbs::ReadStatus ReadSome() override;
  void NoteSleep() const override;
  bool PollCompletion(verbs::Completion* out) override { return ready_.Poll(out); }

  [[nodiscard]] int event_fd() const override { return link_.fd(); }
  void SetEventFd(int fd) override { link_.set_fd(fd); }
  [[nodiscard]] verbs::Interest interest() const override;
  [[nodiscard]] uint64_t unsent_bytes() const override {
    const uint64_t of_messages = send_queue_.unsent_bytes();
    return of_messages == 0 && interest().write ? 1 : of_messages;
  }
  void Disconnect() override;
  void Abort() override;
  void SetOrd(uint16_t ord) override;
  [[nodiscard]] const verbs::QpCounters& counters() const override;

  // Posts a zero-length message of that kind, which opens the connection (kSend and kNone: no message). The
  // caller flushes it, and may repeat it.
  void PostRtr(Rtr kind);
  // Takes what has come behind the MPA Reply (RtrWay::kNone). Without markers.
  void HandleEarly(Bytes bytes);
  // Ends a set-up that failed in a way that a Terminate reports to the peer (RFC 6581, section 8).
  void TerminateStream(const TerminateCause& cause, std::string text);

 private:
  friend struct FrozenQp;
  friend class LocalAbilities;
  friend class DirectSendAbility;
  friend class FileAbility;
  friend class PortableAbility;
  class Incoming;  // what a read brings (soft_qp_read.cc)

  enum class Ending : uint8_t { kNo, kFinWanted, kFinSent };

  void DetachSource(STag stag);
  // Writes to the link without waiting.
  LinkResult Write(std::span<const iovec> parts);
  void CollectSends();
  void StartReads();
  void EndReading(verbs::LinkEnd end, std::string text, int os_error = 0);
  void StopSending();
  void FailLocally(std::string text);
  // What FailLocally() says of a local link's peer that is wrong.
  static constexpr char kBadMemory[] = "the peer has written impossible indices into the shared memory";
  // Resets the link: nothing more can be sent or read.
  void ResetLink();
  // Returns true if this end may post more.
  [[nodiscard]] bool may_post() const { return !facts_.send_failed && ending_ == Ending::kNo; }
  // Returns true if what is posted may leave.
  [[nodiscard]] bool may_send() const { return send_open_ || stream_.fpdus() > 0; }

  verbs::LinkFacts facts_;
  TcpLink link_;
  std::unique_ptr<LocalAbilities> local_;  // the bytes' way, in place of link_
  FileAbility files_{*this};
  PortableAbility portable_{*this};
  DirectSendAbility direct_send_{*this};
  // Responder: false until the initiator's first FPDU (RFC 5044, 7.1.2, 4), unless both ends have kept the
  // memory.
  bool send_open_;
  uint64_t placed_then_ = 0;  // bytes, when the last message or RDMA Read was complete
  bool read_ended_ = false;
  bool link_full_ = false;  // the link did not take all of the last Flush; or AwaitRoom()
  bool crc_;
  Ending ending_ = Ending::kNo;
  StagTable stags_;
  ReceiveBuffers buffers_;
  ReadQueue reads_;
  ReceiveStream stream_;
  SendQueue send_queue_;
  ReadyQueue ready_;
  mutable verbs::QpCounters counters_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_SOFT_QP_H_
