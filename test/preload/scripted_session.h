// A Session between a real engine and a queue pair of the test's.
#ifndef SDP_TEST_PRELOAD_SCRIPTED_SESSION_H_
#define SDP_TEST_PRELOAD_SCRIPTED_SESSION_H_

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/message.h"
#include "preload/socket/session.h"

namespace sdp::preload {

// Takes `room` sends at a time; a flush makes room again. What comes in is what the test gives it.
class ScriptedQueuePair : public verbs::QueuePair,
                          public verbs::Pollable,
                          public verbs::Direct,
                          public verbs::DeviceLink {
 public:
  // kQueue: sends past its queue, and polls nothing.
  enum class Kind { kEmbedded, kDevice, kMemory, kQueue };
  explicit ScriptedQueuePair(Kind kind = Kind::kEmbedded, verbs::MovableRegions* movable_regions = nullptr)
      : QueuePair(facts, {.movable_regions = movable_regions,
                          .pollable = kind == Kind::kQueue ? nullptr : this,
                          .direct_send = kind == Kind::kMemory || kind == Kind::kQueue ? this : nullptr,
                          .direct = kind == Kind::kMemory ? this : nullptr,
                          .device = kind == Kind::kDevice ? this : nullptr}) {}
  struct Incoming {
    std::vector<std::byte> bytes;
  };
  size_t room = SIZE_MAX;
  bool link_full = false;
  size_t posted = 0;  // since the last flush
  size_t most_posted = 0;
  int direct_sends = 0;
  int flushes = 0, detaches = 0, reads = 0, polls = 0, aborts = 0, disconnects = 0;
  std::string sent;    // payload, in order
  bool ended = false;  // by the peer
  verbs::LinkFacts facts{.rnic = "scripted", .link = "none", .ird = 1, .ord = 1};
  bool endless = false;
  std::vector<std::byte> again;  // what every read brings if `endless`
  std::deque<std::vector<std::byte>> ready;
  // kMemory: what the link has. A read makes it ready.
  std::deque<std::vector<std::byte>> in_link;
  std::vector<std::byte> lent;  // from LendDirect() to ReturnLent()
  std::deque<WorkId> signaled;  // complete at once

  verbs::PostResult PostSend(const verbs::SendWork& work) override {
    if (posted == room) return verbs::PostResult::kNoResource;
    if (work.signaled) signaled.push_back(work.id);
    most_posted = std::max(most_posted, ++posted);
    for (const Bytes& piece : work.payload)
      sent.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return verbs::PostResult::kOk;
  }
  verbs::PostResult PostRdmaWrite(const verbs::RdmaWriteWork&) override { return verbs::PostResult::kBroken; }
  verbs::PostResult PostRdmaRead(const verbs::RdmaReadWork&) override { return verbs::PostResult::kBroken; }
  void PostReceives(uint32_t) override {}
  bool SetReceiveBufferSize(uint32_t, uint32_t) override { return true; }
  void Release(verbs::ReceiveToken) override {}
  uint32_t ReceiveCost(uint32_t length) const override { return length; }
  std::optional<verbs::MemoryRegion> Register(MutableBytes, verbs::Access) override { return std::nullopt; }
  void Deregister(STag) override {}
  bool IsRegistered(STag) const override { return false; }
  bool Flush() override {
    ++flushes;
    if (!link_full) posted = 0;
    return !link_full;
  }
  void DetachBorrowed() override { ++detaches; }
  verbs::ReadStatus ReadLink() override {
    ++reads;
    CHECK(lent.empty());
    for (; !in_link.empty(); in_link.pop_front()) ready.push_back(in_link.front());
    if (ended) return verbs::ReadStatus::kEnded;
    if (!endless) return verbs::ReadStatus::kWouldBlock;
    ready.push_back(again);
    return verbs::ReadStatus::kProgress;
  }
  verbs::ReadStatus PollLink(PollFor /*wanted*/) override {
    ++polls;
    CHECK(lent.empty());
    return verbs::ReadStatus::kWouldBlock;
  }
  verbs::ReadStatus ReadForSolicited() override { return ReadLink(); }
  bool may_sleep() override { return false; }
  bool has_untold() const override { return false; }
  bool PollCompletion(verbs::Completion* out) override {
    if (!signaled.empty()) {
      *out = {};
      out->id = signaled.front();
      out->opcode = verbs::Opcode::kSend;
      out->status = verbs::Status::kSuccess;
      signaled.pop_front();
      return true;
    }
    if (ready.empty()) return false;
    current_ = std::move(ready.front());
    ready.pop_front();
    out->opcode = verbs::Opcode::kReceive;
    out->status = verbs::Status::kSuccess;
    out->length = static_cast<uint32_t>(current_.size());
    out->piece_count = 1;
    out->pieces[0] = current_;
    return true;
  }
  bool MaySendDirect(size_t) override { return !link_full; }
  void SendDirect(Bytes header, std::span<const Bytes> payload) override {
    CHECK(header.size() == engine::kDataHeader);
    ++direct_sends;
    for (const Bytes& piece : payload) sent.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  std::optional<Arrived> LookDirect(MutableBytes header, const Arrived* before) override {
    const uint32_t ahead = before != nullptr ? before->untaken : 0;
    if (!ready.empty() || in_link.size() <= ahead || in_link[ahead].size() < header.size())
      return std::nullopt;
    const std::vector<std::byte>& message = in_link[ahead];
    std::copy_n(message.begin(), header.size(), header.begin());
    return Arrived{.length = static_cast<uint32_t>(message.size()),
                   .end = (before != nullptr ? before->end : 0) + message.size(),
                   .untaken = ahead + 1};
  }
  uint64_t InLink() const override {
    uint64_t bytes = lent.size();
    for (const auto& message : in_link) bytes += message.size();
    return bytes;
  }
  std::array<Bytes, 2> LendDirect(size_t header) override {
    lent = in_link.front();
    in_link.pop_front();
    const Bytes payload = Bytes(lent).subspan(header);
    return {payload.first(1), payload.subspan(1)};
  }
  void ReturnLent() override {
    std::fill(lent.begin(), lent.end(), std::byte{'?'});  // the peer writes there
    lent.clear();
  }
  void TakeDirect(size_t header, std::span<const MutableBytes> payload) override {
    auto from = in_link.front().begin() + static_cast<ptrdiff_t>(header);
    for (const MutableBytes& piece : payload) {
      std::copy_n(from, piece.size(), piece.begin());
      from += static_cast<ptrdiff_t>(piece.size());
    }
    in_link.pop_front();
  }
  int event_fd() const override { return -1; }
  void Names(sockaddr_storage*, sockaddr_storage*) const override {}
  void SetEventFd(int) override {}
  verbs::Interest interest() const override { return {.read = true, .write = link_full}; }
  uint64_t unsent_bytes() const override { return link_full ? std::max<uint64_t>(posted, 1) : 0; }
  void Disconnect() override { ++disconnects; }
  void Abort() override { ++aborts; }
  void SetOrd(uint16_t) override {}
  const verbs::QpCounters& counters() const override { return counters_; }

 private:
  std::vector<std::byte> current_;
  verbs::QpCounters counters_;
};

// The connecting end of a connection whose peer has posted `credits` buffers of 128 bytes.
struct Connected {
  explicit Connected(uint16_t credits,
                     std::unique_ptr<ScriptedQueuePair> queue = std::make_unique<ScriptedQueuePair>()) {
    engine::Options small;
    small.receive_buffers = credits;
    small.receive_buffer_size = 128;
    auto engine = std::make_unique<engine::Engine>(engine::Role::kConnecting, engine::Options{});
    engine::Engine peer(engine::Role::kAccepting, small);
    const auto hello = engine->Hello();
    REQUIRE(peer.HandleHello(hello).has_value());
    const auto ack = peer.HelloAck();
    REQUIRE(engine->HandleReply(ack).has_value());
    queue_pair = queue.get();
    session = std::make_unique<Session>(std::move(engine), std::move(queue));
    session->Pump();
    queue_pair->posted = queue_pair->most_posted = 0;
  }
  // One write of as many messages as credit allows; the bytes taken.
  std::string Send(size_t bytes) {
    std::string data(bytes, ' ');
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>('a' + i * i % 23);
    const Bytes piece = std::as_bytes(std::span(data));
    const size_t taken = session->engine().Send({&piece, 1}, {});
    session->Pump();
    return data.substr(0, taken);
  }

  std::unique_ptr<Session> session;
  ScriptedQueuePair* queue_pair;
};

}  // namespace sdp::preload

#endif  // SDP_TEST_PRELOAD_SCRIPTED_SESSION_H_
