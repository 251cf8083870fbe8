#include "verbs/ibv/ibv_qp.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace sdp::ibv {
namespace {

constexpr size_t kRingSize = 256 * 1024;

}  // namespace

IbvParts::IbvParts(std::unique_ptr<Resources> the_resources, const verbs::QpOptions& the_options)
    : resources_(std::move(the_resources)),
      options_(the_options),
      name_(resources_->id->verbs->device->name),
      facts_{.rnic = name_.c_str(), .link = "rdma"},
      arming_(*resources_),
      ending_(*resources_, facts_),
      regions_(*resources_),
      received_(*resources_, arming_, ending_, regions_, completed_, counters_, options_.receive_buffer_size),
      sends_(*resources_, arming_, ending_, regions_, completed_, received_, counters_),
      reader_(*resources_, name_, arming_, ending_, completed_, received_, sends_, counters_),
      link_(*resources_, facts_, sends_, counters_) {}

IbvQp::IbvQp(std::unique_ptr<Resources> resources, const verbs::QpOptions& options)
    : IbvParts(std::move(resources), options), QueuePair(facts_, {.pollable = &reader_, .device = &link_}) {}

IbvQp::~IbvQp() {
  // Destroy the queue pair before the memory that it may be reading.
  if (resources_->id->qp != nullptr) resources_->api.rdma_destroy_qp(resources_->id);
}

bool IbvQp::Prepare() {
  if (!sends_.Make(std::max<size_t>(kRingSize, size_t{4} * options_.receive_buffer_size))) {
    return resources_->Fail("registering the send buffer");
  }
  return received_.Post(options_.initial_receives) || resources_->Fail("registering the receive buffers");
}

void IbvQp::Establish(uint16_t ird, uint16_t ord) {
  facts_.ird = ird;
  facts_.ord = std::min(ord, options_.ord);
  sends_.SetOrd(facts_.ord);
  arming_.ArmReceives(Awaited::kAll);
}

void IbvQp::SetOrd(uint16_t ord) {
  facts_.ord = std::min(facts_.ord, ord);
  sends_.SetOrd(facts_.ord);
}

bool IbvQp::HasReceived() {
  received_.Poll();
  return !completed_.empty();
}

void IbvQp::PostReceives(uint32_t count) {
  if (ending_.ended() || received_.Post(count)) return;
  ending_.SetFailure(errno, "no registered memory to receive into");
  Abort();
}

void IbvQp::Disconnect() {
  if (ending_.disconnect_asked() || ending_.ended()) return;
  ending_.AskDisconnect();
  Flush();
}

}  // namespace sdp::ibv
