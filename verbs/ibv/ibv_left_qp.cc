// LeftQp stands for a connection that has ended, until the next one takes its place.
#include <memory>
#include <string>
#include <utility>

#include "verbs/ibv/ibv_connector.h"
#include "verbs/ibv/ibv_link.h"

namespace sdp::ibv {
namespace {

class LeftQp final : public verbs::QueuePair, public verbs::Pollable, public verbs::DeviceLink {
 public:
  LeftQp(const Resources& resources, const verbs::LinkFacts& facts, const verbs::QpCounters& counters)
      : QueuePair(facts_, {.pollable = this, .device = this}),
        api_(resources.api),
        events_(resources.events()),
        name_(facts.rnic),
        counters_(counters),
        facts_{.rnic = name_.c_str(), .link = facts.link, .cause = facts.cause},
        names_(resources.id->route.addr) {}

  std::unique_ptr<verbs::Connector> ConnectAgain(const sockaddr* local, const sockaddr* target,
                                                 Bytes private_data, const verbs::QpOptions& options,
                                                 Duration timeout, Time now) override {
    return std::make_unique<IbvConnector>(api_, events_, local, target, private_data, options, timeout, now);
  }
  [[nodiscard]] int event_fd() const override { return events_->fd(); }
  void SetEventFd(int) override {}
  void Names(sockaddr_storage* local, sockaddr_storage* peer) const override {
    *local = names_.src_storage;
    *peer = names_.dst_storage;
  }
  [[nodiscard]] const verbs::QpCounters& counters() const override { return counters_; }

  // No operation does anything, and no memory is lent.
  verbs::PostResult PostSend(const verbs::SendWork&) override { return verbs::PostResult::kBroken; }
  verbs::PostResult PostRdmaWrite(const verbs::RdmaWriteWork&) override { return verbs::PostResult::kBroken; }
  verbs::PostResult PostRdmaRead(const verbs::RdmaReadWork&) override { return verbs::PostResult::kBroken; }
  void PostReceives(uint32_t) override {}
  bool SetReceiveBufferSize(uint32_t, uint32_t) override { return true; }
  void Release(verbs::ReceiveToken) override {}
  [[nodiscard]] uint32_t ReceiveCost(uint32_t length) const override { return length; }
  std::optional<verbs::MemoryRegion> Register(MutableBytes, verbs::Access) override { return std::nullopt; }
  void Deregister(STag) override {}
  [[nodiscard]] bool IsRegistered(STag) const override { return false; }
  bool Flush() override { return true; }
  void DetachBorrowed() override {}
  verbs::ReadStatus ReadLink() override { return verbs::ReadStatus::kEnded; }
  verbs::ReadStatus PollLink(PollFor /*wanted*/) override { return verbs::ReadStatus::kEnded; }
  verbs::ReadStatus ReadForSolicited() override { return verbs::ReadStatus::kEnded; }
  [[nodiscard]] bool may_sleep() override { return false; }
  [[nodiscard]] bool has_untold() const override { return false; }
  bool PollCompletion(verbs::Completion*) override { return false; }
  [[nodiscard]] verbs::Interest interest() const override { return {.read = false, .write = false}; }
  [[nodiscard]] uint64_t unsent_bytes() const override { return 0; }
  void Disconnect() override {}
  void Abort() override {}
  void SetOrd(uint16_t) override {}

 private:
  const Api& api_;
  const std::shared_ptr<EventDescriptor> events_;
  const std::string name_;
  const verbs::QpCounters counters_;
  const verbs::LinkFacts facts_;
  const rdma_addr names_;
};

}  // namespace

std::unique_ptr<verbs::QueuePair> IbvLink::Leave() {
  return std::make_unique<LeftQp>(resources_, facts_, counters_);
}

}  // namespace sdp::ibv
