// The embedded RNIC's QueuePair. It joins the send queue and the receive stream to a TCP socket, and turns
// their events into completions. The protocol itself is in proto/. The owner's lock guards it (verbs/rnic.h).
#ifndef SDP_VERBS_SOFTIWARP_SOFT_QP_H_
#define SDP_VERBS_SOFTIWARP_SOFT_QP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "verbs/rnic.h"
#include "verbs/softiwarp/file_payload.h"
#include "verbs/softiwarp/local_link.h"
#include "verbs/softiwarp/proto/mpa_negotiation.h"
#include "verbs/softiwarp/proto/read_queue.h"
#include "verbs/softiwarp/proto/receive_buffers.h"
#include "verbs/softiwarp/proto/receive_stream.h"
#include "verbs/softiwarp/proto/send_queue.h"
#include "verbs/softiwarp/proto/stag_table.h"
#include "verbs/softiwarp/ready_queue.h"
#include "verbs/softiwarp/tcp_link.h"

namespace sdp::iwarp {

class SoftQp final : public verbs::QueuePair,
                     public verbs::Portable,
                     public verbs::FileSource,
                     public verbs::MovableRegions,
                     public verbs::Pollable,
                     public verbs::Direct {
 public:
  // The initiator of a peer-to-peer set-up posts its RTR here, in the constructor. With `memory` the link is
  // a local one, and the queue pair is Pollable and Direct. With `memory` and no RTR agreed on, both ends
  // know the memory, and either may send first.
  SoftQp(int fd, const MpaAgreement& agreement, const verbs::QpOptions& options, uint32_t max_ulpdu,
         std::shared_ptr<LocalMemory> memory = nullptr);
  // Returns a queue pair in the frozen state, or nullptr if these bytes are no frozen queue pair. `memory`:
  // what MemoryOf() has returned for the frozen one.
  static std::unique_ptr<SoftQp> Thaw(int fd, Bytes frozen, std::shared_ptr<LocalMemory> memory);
  [[nodiscard]] std::shared_ptr<LocalMemory> memory() const { return local_ ? local_->memory() : nullptr; }

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
  [[nodiscard]] bool BorrowFile(const verbs::FileRange& file) override;
  void ReturnFile() override;
  [[nodiscard]] size_t room() const override;
  bool AwaitRoom() override;
  [[nodiscard]] bool full() const override;
  bool TakeRoom() override;
  verbs::ReadStatus ReadLink() override;
  verbs::ReadStatus ReadSome() override;
  using Pollable::PollLink;
  verbs::ReadStatus PollLink(PollFor wanted) override;
  [[nodiscard]] bool may_sleep() override;
  verbs::ReadStatus ReadForSolicited() override { return ReadLink(); }
  [[nodiscard]] bool has_untold() const override { return !read_ended_ && local_->unread(); }
  [[nodiscard]] bool always_told() const override { return true; }
  [[nodiscard]] std::shared_ptr<const verbs::Peek> peek() override { return local_->peek(); }
  [[nodiscard]] bool HearByBell(const verbs::BellName& bell, uint64_t cookie) override {
    return may_sleep() && local_->HearByBell(bell, cookie);
  }
  [[nodiscard]] bool HearByLink() override { return local_->HearByLink(); }
  void GiveBack() override { local_->GiveBack(); }
  [[nodiscard]] bool MaySendDirect(size_t size) override;
  void SendDirect(Bytes header, std::span<const Bytes> payload) override;
  [[nodiscard]] std::optional<Arrived> LookDirect(MutableBytes header, const Arrived* before) override;
  [[nodiscard]] uint64_t InLink() const override { return local_->InRing(); }
  void TakeDirect(size_t header, std::span<const MutableBytes> payload) override;
  [[nodiscard]] std::array<Bytes, 2> LendDirect(size_t header) override;
  void ReturnLent() override;
  void StaysHere() override {
    if (local_) local_->StaysHere();
  }
  void NoteSleep() const override;
  bool PollCompletion(verbs::Completion* out) override { return ready_.Poll(out); }

  [[nodiscard]] int event_fd() const override { return link_.fd(); }
  void SetEventFd(int fd) override { link_.set_fd(fd); }
  [[nodiscard]] verbs::Interest interest() const override;
  [[nodiscard]] uint64_t unsent_bytes() const override { return send_queue_.unsent_bytes(); }
  void Disconnect() override;
  void Abort() override;
  [[nodiscard]] const verbs::LinkCause& cause() const override { return cause_; }
  [[nodiscard]] bool send_failed() const override { return send_broken_; }
  [[nodiscard]] bool failed_midway() const override { return failed_midway_; }
  [[nodiscard]] uint16_t ird() const override { return ird_; }
  [[nodiscard]] uint16_t ord() const override { return ord_; }
  void SetOrd(uint16_t ord) override;
  [[nodiscard]] const verbs::QpCounters& counters() const override;
  [[nodiscard]] bool freezable() const override;
  using Portable::Freeze;
  void Freeze(Writer& ar) const override;
  [[nodiscard]] const char* rnic_name() const override { return "soft"; }
  [[nodiscard]] const char* link_name() const override { return local_ ? "local" : "tcp"; }
  [[nodiscard]] std::string why_not_local() const override { return why_not_local_; }
  void set_why_not_local(std::string why) { why_not_local_ = std::move(why); }

  // Posts a zero-length message of that kind, which opens the connection (kSend and kNone: no message). The
  // caller flushes it, and may repeat it.
  void PostRtr(Rtr kind);
  // Takes what has come behind the MPA Reply (RtrWay::kNone). Without markers.
  void HandleEarly(Bytes bytes);
  // Ends a set-up that failed in a way that a Terminate reports to the peer (RFC 6581, section 8).
  void TerminateStream(const TerminateCause& cause, std::string text);

 private:
  void DetachSource(STag stag);
  friend struct FrozenQp;

  // The link's read and write, without waiting.
  LinkResult Read(std::span<const MutableBytes> parts, bool came);
  LinkResult Write(std::span<const iovec> parts);

  enum class Ending : uint8_t { kNo, kFinWanted, kFinSent };

  // Reads what is there, until `enough` bytes have come.
  verbs::ReadStatus ReadUpTo(size_t enough);
  // Reads the link once and handles what came. Returns true if there may be more to read.
  bool ReadOnce(size_t* total, verbs::ReadStatus* status);
  // Returns true if part of a message has come, or if the peer has written by RDMA and the message that
  // reports the write has not come.
  [[nodiscard]] bool midway() const { return !stream_.at_boundary() || stream_.placed() != placed_then_; }
  void HandleEvents();
  void Handle(ReceivedMessage& message);
  void Handle(const segment::ReadWanted& wanted);
  void Handle(const segment::ReadDone& done);
  void Handle(const segment::Terminated& terminated);
  void Handle(const Violation& violation);
  void Handle(const OutOfMemory&);
  void HandleEof();
  // Ends a stream that the peer has ended too early: nothing more can be sent on it.
  void LoseLink(const char* text);
  verbs::ReadStatus FinishRead(size_t total, verbs::ReadStatus status);

  // The message that LookDirect() has found is the stream's next.
  void NoteDirect();
  // Ends the wait for the link's room: AwaitRoom()'s, or that of a Flush.
  void ForgetRoom();
  void CollectSends();
  void StartReads();
  void EndReading(verbs::LinkEnd end, std::string text, int os_error = 0);
  void StopSending();
  void FlushReads();
  void FailLocally(std::string text);
  // Ends the connection, because the peer of a local link is wrong.
  void FailByMemory();
  [[nodiscard]] bool may_send() const { return send_open_ || stream_.fpdus() > 0; }

  TcpLink link_;
  std::optional<LocalLink> local_;  // the bytes' way, in place of link_
  // What LookDirect() has found: in the ring, the message there, and its first bytes.
  struct Found {
    RingReader::Unread there;
    Arrived message;
    std::array<std::byte, kMostHeader> header{};
    bool still_next = false;
  };
  Found found_;
  std::optional<PollFor> polling_;  // the caller of this read comes again soon
  uint16_t ird_;
  uint16_t ord_;
  // Responder: false until the initiator's first FPDU (RFC 5044, 7.1.2, 4), unless both ends have kept the
  // memory.
  bool send_open_;
  uint64_t placed_then_ = 0;  // bytes, when the last message or RDMA Read was complete
  bool send_broken_ = false;
  bool failed_midway_ = false;
  bool read_ended_ = false;
  bool link_full_ = false;  // the link did not take all of the last Flush; or AwaitRoom()
  bool crc_;
  Ending ending_ = Ending::kNo;
  verbs::LinkCause cause_;
  std::string why_not_local_;
  StagTable stags_;
  ReceiveBuffers buffers_;
  ReadQueue reads_;
  ReceiveStream stream_;
  SendQueue send_queue_;
  std::optional<FilePayload> file_;  // from BorrowFile() to ReturnFile()
  ReadyQueue ready_;
  mutable verbs::QpCounters counters_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_SOFT_QP_H_
