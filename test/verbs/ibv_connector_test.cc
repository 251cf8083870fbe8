// The connecting side over a kernel RNIC, with a device and a connection manager that the test plays.
#include "verbs/ibv/ibv_connector.h"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "test/verbs/fake_device.h"

namespace sdp::ibv {
namespace {

using namespace std::chrono_literals;
using test::FakeDevice;
using verbs::ConnectState;
using verbs::LinkEnd;

constexpr Duration kTimeout = 10s;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

struct Fixture {
  void Begin(uint16_t source_port = 0) {
    const sockaddr_in local = Loopback(source_port);
    const sockaddr_in target = Loopback(9);
    connector = std::make_unique<IbvConnector>(
        FakeDevice::api(), nullptr, reinterpret_cast<const sockaddr*>(&local),
        reinterpret_cast<const sockaddr*>(&target), std::as_bytes(std::span("hello", 5)),
        verbs::QpOptions{.receive_buffer_size = 4096, .initial_receives = 8}, kTimeout, now);
    fd = connector->event_fd();
  }
  // As long as there is news.
  ConnectState Run() {
    ConnectState state = connector->Step(now);
    for (pollfd news{.fd = fd, .events = POLLIN, .revents = 0};
         state == ConnectState::kInProgress && ::poll(&news, 1, 0) == 1;)
      state = connector->Step(now);
    return state;
  }

  // To the end, with a peer that answers.
  std::unique_ptr<verbs::QueuePair> Establish() {
    REQUIRE(Run() == ConnectState::kInProgress);
    device.Tell(RDMA_CM_EVENT_ESTABLISHED);
    REQUIRE(Run() == ConnectState::kInProgress);
    now += 1s;  // the peer's RNIC has been asked, and its answer is waited for no longer
    REQUIRE(Run() == ConnectState::kEstablished);
    return connector->TakeQueuePair();
  }

  FakeDevice device;
  std::unique_ptr<IbvConnector> connector;
  int fd = -1;
  Time now{1h};
};

TEST_CASE_METHOD(
    Fixture,
    "A source port that somebody has is not the end: others are tried, and who waits need not know") {
  device.connect_errors = {EADDRINUSE, EADDRNOTAVAIL, EADDRINUSE};
  Begin();
  REQUIRE(Run() == ConnectState::kInProgress);
  // The connection manager's choice; then those that no TCP socket has.
  REQUIRE(device.source_ports.size() == 4);
  CHECK(device.source_ports[0] == 0);
  CHECK(std::count(device.source_ports.begin() + 1, device.source_ports.end(), 0) == 0);
  CHECK(connector->event_fd() == fd);
  const auto qp = Establish();
  REQUIRE(qp != nullptr);
  CHECK(qp->event_fd() == fd);
}

TEST_CASE_METHOD(Fixture, "A port that no TCP socket has may be RDMA's: the next is tried") {
  device.connect_errors = {EADDRINUSE};
  device.resolve_errors = {0, EADDRINUSE, EADDRINUSE};
  Begin();
  CHECK(Run() == ConnectState::kInProgress);
  CHECK(device.source_ports.size() == 4);
  CHECK(device.connect_errors.empty());
}

TEST_CASE_METHOD(Fixture, "Ports are tried a few times, and that they are taken is this host's trouble") {
  device.connect_errors.assign(100, EADDRINUSE);
  Begin();
  REQUIRE(Run() == ConnectState::kFailed);
  CHECK(device.source_ports.size() == 9);
  CHECK(connector->cause().end == LinkEnd::kFailed);
  CHECK(connector->cause().os_error == EADDRINUSE);
  CHECK(connector->cause().text == "rdma_connect: Address already in use");
}

TEST_CASE_METHOD(Fixture, "Of a port that the caller names he hears what there is to hear") {
  device.connect_errors = {EADDRINUSE};
  Begin(4711);
  REQUIRE(Run() == ConnectState::kFailed);
  CHECK(device.source_ports == std::vector<uint16_t>{4711});
  CHECK(connector->cause().os_error == EADDRINUSE);
}

TEST_CASE_METHOD(Fixture, "What failed here is told from what the peer or the way did") {
  const auto [error, end] = GENERATE(table<int, LinkEnd>({
      {ECONNREFUSED, LinkEnd::kReset},
      {ETIMEDOUT, LinkEnd::kReset},
      {EHOSTUNREACH, LinkEnd::kReset},
      {EHOSTDOWN, LinkEnd::kReset},
      {ENETDOWN, LinkEnd::kFailed},
      {ENOMEM, LinkEnd::kFailed},
      {EMFILE, LinkEnd::kFailed},
      {EINVAL, LinkEnd::kFailed},
  }));
  const bool early = GENERATE(true, false);
  (early ? device.resolve_errors : device.connect_errors) = {error};
  Begin();
  REQUIRE(Run() == ConnectState::kFailed);
  CHECK(connector->cause().end == end);
  CHECK(connector->cause().os_error == error);
  CHECK(device.source_ports.size() == 1);
}

TEST_CASE_METHOD(Fixture, "IRD, ORD and queues are within what the device has") {
  device.limits.max_qp_wr = 100;
  device.limits.max_cqe = 90;
  device.limits.max_qp_rd_atom = 3;
  device.limits.max_qp_init_rd_atom = 5;
  Begin();
  REQUIRE(Run() == ConnectState::kInProgress);
  CHECK(device.asked.responder_resources == 3);
  CHECK(device.asked.initiator_depth == 5);
  CHECK(device.made.cap.max_send_wr == 90);
  CHECK(device.made.cap.max_recv_wr <= 90);
}

TEST_CASE_METHOD(Fixture,
                 "Short messages are inlined where the device can; one that invalidates is not, which siw "
                 "would never send") {
  device.inlines = GENERATE(true, false);
  Begin();
  const auto qp = Establish();
  device.TakeSent();
  const std::vector<std::byte> content(81);
  for (const size_t size : {80u, 81u}) {
    const Bytes payload = Bytes(content).first(size);
    REQUIRE(qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)}) == verbs::PostResult::kOk);
  }
  REQUIRE(qp->PostSend({.id = WorkId(2), .invalidate = STag(3), .header = Bytes(content).first(16)}) ==
          verbs::PostResult::kOk);
  qp->Flush();
  std::vector<bool> inlined;
  for (const FakeDevice::Sent& one : device.TakeSent()) inlined.push_back(one.inlined);
  CHECK(inlined == std::vector<bool>{device.inlines, false, false});
}

TEST_CASE_METHOD(Fixture, "A set-up that takes too long is not this host's failure") {
  Begin();
  REQUIRE(Run() == ConnectState::kInProgress);
  now += kTimeout;
  REQUIRE(Run() == ConnectState::kFailed);
  CHECK(connector->cause().end == LinkEnd::kReset);
  CHECK(connector->cause().os_error == ETIMEDOUT);
}

}  // namespace
}  // namespace sdp::ibv
