// A kernel RNIC's queue pair, with a device that the test plays.
#include "verbs/ibv/ibv_qp.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "test/verbs/fake_device.h"

namespace sdp::ibv {
namespace {

using test::FakeDevice;
using verbs::Completion;
using verbs::LinkEnd;
using verbs::Opcode;
using verbs::PostResult;
using verbs::ReadStatus;
using verbs::Status;
using Armed = FakeDevice::Armed;

struct Fixture {
  explicit Fixture(uint32_t depth = 64, uint32_t vendor = 1) {
    device.vendor = vendor;
    qp = std::make_unique<IbvQp>(device.Make(depth),
                                 verbs::QpOptions{.receive_buffer_size = 4096, .initial_receives = 8});
    REQUIRE(qp->Prepare());
    qp->Establish(4, 4);
  }
  PostResult Post(uint64_t id, bool signaled = false) {
    const Bytes payload = std::as_bytes(std::span("x", 1));
    return qp->PostSend({.id = WorkId(id), .signaled = signaled, .payload = std::span(&payload, 1)});
  }
  void PostRead(uint64_t id, const verbs::MemoryRegion& region) {
    REQUIRE(qp->PostRdmaRead({.id = WorkId(id),
                              .local_stag = region.stag,
                              .local_to = region.base_to,
                              .length = 1,
                              .remote_stag = STag(9),
                              .remote_to = 0}) == PostResult::kOk);
  }
  std::vector<Completion> Completions() {
    std::vector<Completion> all;
    Completion completion;
    while (qp->PollCompletion(&completion)) all.push_back(completion);
    return all;
  }
  [[nodiscard]] bool Tells() const { return FakeDevice::Tells(qp->resources()); }

  FakeDevice device;
  std::unique_ptr<IbvQp> qp;
};

TEST_CASE_METHOD(
    Fixture,
    "Work that the device refuses in the middle of a chain ends the connection, each completion told once") {
  std::vector<std::byte> memory(10);
  const auto region = qp->Register(memory, verbs::Access::kLocal);
  REQUIRE(region);
  device.room = 2;
  device.refusal = ENOMEM;
  for (const uint64_t id : {1u, 2u, 3u, 4u}) REQUIRE(Post(id, /*signaled=*/id != 2) == PostResult::kOk);
  PostRead(5, *region);
  CHECK_FALSE(qp->facts().send_failed);
  qp->Flush();
  REQUIRE(device.sent.size() == 2);
  // The peer sees a reset; the owner hears of it by what it does next.
  CHECK(device.in_error);
  CHECK(device.disconnects == 1);
  CHECK(qp->facts().send_failed);
  CHECK_FALSE(qp->pollable()->may_sleep());
  CHECK(qp->pollable()->has_untold());
  device.Complete(device.sent[0].id);
  device.Bring("before it");
  device.Complete(device.sent[1].id, IBV_WC_WR_FLUSH_ERR);
  CHECK(Tells());
  CHECK((GENERATE(true, false) ? qp->ReadLink() : qp->pollable()->PollLink()) == ReadStatus::kEnded);
  CHECK(qp->cause().end == LinkEnd::kFailed);
  CHECK(qp->cause().os_error == ENOMEM);
  CHECK(qp->cause().text == "fake0 refused a work request: Cannot allocate memory");
  std::vector<std::pair<uint64_t, Status>> work;
  size_t received = 0;
  for (const Completion& c : Completions()) {
    if (c.opcode == Opcode::kReceive) {
      ++received;
      continue;
    }
    work.emplace_back(c.id.value(), c.status);
  }
  std::sort(work.begin(), work.end());
  CHECK(work ==
        std::vector<std::pair<uint64_t, Status>>{
            {1, Status::kSuccess}, {3, Status::kFlushed}, {4, Status::kFlushed}, {5, Status::kFlushed}});
  CHECK(received == 1);  // what came before the end is delivered
  CHECK(Post(6) == PostResult::kBroken);
  CHECK(qp->unsent_bytes() == 0);
  CHECK(device.disconnects == 1);
  device.TellEnd();
  CHECK(qp->ReadLink() == ReadStatus::kEnded);
  CHECK(Completions().empty());
}

TEST_CASE_METHOD(Fixture, "A queue pair that refuses because the connection has ended ends with that end") {
  device.room = 0;
  device.refusal = EINVAL;
  switch (GENERATE(0, 1, 2)) {
    case 0:  // the connection manager has said so
      device.TellEnd();
      break;
    case 1:  // it will, and has flushed what was posted
      device.FlushReceive();
      break;
    default:
      device.refusal = ENOTCONN;
  }
  REQUIRE(Post(1, /*signaled=*/true) == PostResult::kOk);
  qp->Flush();
  CHECK_FALSE(device.in_error);
  CHECK_FALSE(qp->facts().send_failed);
  device.TellEnd();
  while (qp->ReadLink() != ReadStatus::kEnded) REQUIRE(Tells());
  CHECK(qp->cause().end == LinkEnd::kClosedByPeer);
  const auto left = Completions();
  REQUIRE(left.size() == 1);
  CHECK(left[0].status == Status::kFlushed);
}

struct ShallowFixture : Fixture {
  ShallowFixture() : Fixture(8) {}
};

TEST_CASE_METHOD(ShallowFixture, "No more is posted than the send queue holds, whatever it is") {
  std::vector<std::byte> memory(10);
  const auto region = qp->Register(memory, verbs::Access::kLocal);
  REQUIRE(region);
  // The question of the set-up takes a place until it is answered, as an RDMA Read does.
  REQUIRE(qp->AskPeer());
  for (const uint64_t id : {1u, 2u}) PostRead(id, *region);
  for (uint64_t id = 3; id < 20; ++id) REQUIRE(Post(id) == PostResult::kOk);
  CHECK_FALSE(qp->Flush());
  CHECK(device.sent.size() == 8);
  const auto question = device.sent.front();
  REQUIRE(question.opcode == IBV_WR_RDMA_READ);
  device.Complete(question.id);
  REQUIRE(qp->ReadLink() == ReadStatus::kProgress);
  CHECK(qp->has_answer());
  CHECK(device.sent.size() == 9);
}

TEST_CASE_METHOD(Fixture,
                 "A sleep is safe when what comes from then on is told, and nothing is that was taken") {
  CHECK(qp->pollable()->may_sleep());
  CHECK_FALSE(Tells());
  device.Bring("one");
  CHECK(Tells());
  CHECK(qp->pollable()->PollLink() == ReadStatus::kProgress);
  CHECK(Completions().size() == 1);
  CHECK_FALSE(qp->pollable()->may_sleep());  // its event is still there
  CHECK(Tells());
  CHECK(qp->ReadLink() == ReadStatus::kWouldBlock);
  CHECK(qp->pollable()->may_sleep());
  CHECK_FALSE(Tells());
  CHECK(device.events_taken() == 1);
  CHECK(device.receives_armed() == Armed::kAll);

  // Who waits for the completion of work of its own is to hear of it.
  REQUIRE(Post(1, /*signaled=*/true) == PostResult::kOk);
  CHECK_FALSE(qp->pollable()->may_sleep());
  CHECK(device.sends_armed() == Armed::kNot);
  qp->Flush();
  CHECK(device.sends_armed() == Armed::kAll);
  CHECK(qp->pollable()->may_sleep());
  device.Complete(device.sent[0].id);
  CHECK(Tells());
  CHECK(qp->ReadLink() == ReadStatus::kProgress);
  CHECK_FALSE(qp->pollable()->may_sleep());
  CHECK(Completions().size() == 1);
}

TEST_CASE_METHOD(Fixture,
                 "A connection whose work the device has refused is over before a sleep, not in it") {
  REQUIRE(qp->pollable()->may_sleep());
  device.room = 0;
  device.refusal = ENOMEM;
  REQUIRE(Post(1) == PostResult::kOk);
  qp->Flush();
  REQUIRE(qp->facts().send_failed);
  CHECK_FALSE(qp->pollable()->may_sleep());
  CHECK(qp->pollable()->ReadForSolicited() == ReadStatus::kEnded);
}

TEST_CASE_METHOD(Fixture,
                 "What the device says of a queue pair, a port or itself ends the connection with a reset, "
                 "and with its name") {
  const auto [type, text] = GENERATE(table<ibv_event_type, const char*>({
      {IBV_EVENT_QP_FATAL, "fake0: the queue pair failed"},
      {IBV_EVENT_QP_ACCESS_ERR, "fake0: the queue pair met an access without the right"},
      {IBV_EVENT_CQ_ERR, "fake0: a completion queue overran"},
      {IBV_EVENT_PORT_ERR, "fake0: the RDMA device's port went down"},
      {IBV_EVENT_DEVICE_FATAL, "fake0: the RDMA device failed"},
  }));
  REQUIRE(Post(1, /*signaled=*/true) == PostResult::kOk);
  qp->Flush();
  REQUIRE(qp->ReadLink() == ReadStatus::kWouldBlock);
  REQUIRE_FALSE(Tells());
  device.Bring("before it");
  ibv_async_event event{};
  event.event_type = type;
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      event.element.cq = qp->resources().receive_cq;
      break;
    case IBV_EVENT_PORT_ERR:
      event.element.port_num = 1;
      break;
    default:
      event.element.qp = qp->resources().id->qp;
  }
  device.TellDevice(event);
  CHECK(Tells());
  while (qp->ReadLink() != ReadStatus::kEnded) REQUIRE(Tells());
  CHECK(qp->cause().end == LinkEnd::kFailed);
  CHECK(qp->cause().text == text);
  CHECK(device.in_error);  // the peer sees a reset
  CHECK(device.disconnects == 1);
  const auto left = Completions();
  REQUIRE(left.size() == 2);
  CHECK(left[0].opcode == Opcode::kReceive);  // what came before the end is delivered
  CHECK(left[1].status == Status::kFlushed);
  CHECK(Post(2) == PostResult::kBroken);
}

// SDP 14.2.
TEST_CASE(
    "Who waits for solicited messages alone hears of those, of his own work and of errors, and of nothing "
    "else") {
  Fixture f;
  // Armed for all since the connection stands; that is not taken back, but its event is the last for all.
  f.device.Bring("one");
  CHECK(f.qp->pollable()->ReadForSolicited() == ReadStatus::kProgress);
  CHECK(f.Completions().size() == 1);
  CHECK(f.qp->pollable()->ReadForSolicited() == ReadStatus::kWouldBlock);
  CHECK(f.device.receives_armed() == Armed::kSolicited);
  CHECK(f.qp->pollable()->has_untold());
  CHECK_FALSE(f.qp->pollable()->may_sleep());
  for (int i = 0; i < 3; ++i) f.device.Bring("data");
  CHECK_FALSE(f.Tells());
  switch (GENERATE(0, 1, 2)) {
    case 0:
      f.device.Bring("RdmaRdCompl", /*solicited=*/true);
      break;
    case 1:
      REQUIRE(f.Post(1, /*signaled=*/true) == PostResult::kOk);
      f.qp->Flush();
      f.device.Complete(f.device.sent[0].id);
      break;
    default:
      f.device.FlushReceive();
  }
  CHECK(f.Tells());
  CHECK(f.qp->pollable()->ReadForSolicited() == ReadStatus::kProgress);
  CHECK(f.Completions().size() >= 3);
  CHECK(f.qp->pollable()->ReadForSolicited() == ReadStatus::kWouldBlock);
  CHECK(f.device.receives_armed() == Armed::kSolicited);
}

TEST_CASE_METHOD(Fixture, "Who waits for all hears of all behind one who did not, whatever his read finds") {
  device.Bring("one");
  qp->ReadLink();
  REQUIRE(qp->pollable()->ReadForSolicited() == ReadStatus::kWouldBlock);
  REQUIRE(device.receives_armed() == Armed::kSolicited);
  Completions();
  const bool found = GENERATE(true, false);
  if (found) device.Bring("two");
  CHECK(qp->ReadLink() == (found ? ReadStatus::kProgress : ReadStatus::kWouldBlock));
  CHECK(device.receives_armed() == Armed::kAll);
  Completions();
  CHECK_FALSE(qp->pollable()->has_untold());
  CHECK_FALSE(Tells());
  device.Bring("three");
  CHECK(Tells());
}

struct SiwFixture : Fixture {
  SiwFixture() : Fixture(64, 0x626d74) {}
};

TEST_CASE_METHOD(SiwFixture, "A device that does not tell of solicited messages tells of all") {
  device.Bring("one");
  qp->ReadLink();
  CHECK(qp->pollable()->ReadForSolicited() == ReadStatus::kWouldBlock);
  Completions();
  CHECK(device.receives_armed() == Armed::kAll);
  CHECK(qp->pollable()->may_sleep());
  CHECK_FALSE(qp->pollable()->has_untold());
}

TEST_CASE("Who waits for room gets it, whatever is sent and however late the peer says what it has") {
  Fixture at;
  at.qp->resources().sends_pages = true;
  at.qp->resources().lockable = GENERATE(uint64_t{0}, UINT64_MAX);  // without and with kept Sends
  const bool prompt = GENERATE(false, true);
  const uint32_t rare = GENERATE(3u, 20u);  // how seldom a short one comes
  const uint32_t lazy = GENERATE(4u, 40u);  // how seldom the device is done, and asked
  std::mt19937 random(GENERATE(range(1u, 20u)));
  const std::string content(40'000, 'c');
  std::vector<size_t> sizes;
  size_t completed = 0;  // of what the device has been given
  uint64_t peer_has = 0;
  const auto complete = [&] {  // the next that asks for it, which says the same of all before it
    while (completed < at.device.sent.size() && !at.device.sent[completed].signaled) ++completed;
    if (completed < at.device.sent.size()) at.device.Complete(at.device.sent[completed++].id);
  };
  const auto sends = [&] {
    return std::count_if(at.device.sent.begin(), at.device.sent.end(),
                         [](const auto& one) { return one.opcode == IBV_WR_SEND; });
  };
  for (int i = 0; i < 1000; ++i) {
    const size_t size =
        random() % rare != 0 ? 4096 + random() % 34'000 : 1 + random() % (random() % 2 == 0 ? 20 : 4000);
    const Bytes payload = std::as_bytes(std::span(content)).first(size);
    REQUIRE(at.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)}) == PostResult::kOk);
    sizes.push_back(size);
    if (random() % 3 != 0) at.qp->Flush();
    if (random() % lazy == 0) complete();
    if (random() % lazy == 0) at.qp->ReadLink();
    if (prompt) {
      peer_has = static_cast<uint64_t>(sends());
      at.qp->device()->NotePeerHas(sizes.size() - peer_has);
    } else if (random() % 16 == 0) {
      peer_has += random() % (static_cast<uint64_t>(sends()) - peer_has + 1);
      at.qp->device()->NotePeerHas(sizes.size() - peer_has);
    }
  }
  at.qp->Flush();
  // The peer says nothing any more.
  for (int i = 0; i < 5000 && at.qp->unsent_bytes() != 0; ++i) {
    complete();
    at.qp->ReadLink();
    at.qp->Flush();
  }
  REQUIRE(at.qp->unsent_bytes() == 0);
  size_t next = 0;
  for (const FakeDevice::Sent& one : at.device.sent) {
    if (one.opcode == IBV_WR_SEND) REQUIRE(one.bytes.size() == sizes[next++]);
  }
  REQUIRE(next == sizes.size());
}

}  // namespace
}  // namespace sdp::ibv
